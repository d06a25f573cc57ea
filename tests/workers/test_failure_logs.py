"""Logs: facts as attributes, sessions by hash, and failures with a reason an operator can use."""

from __future__ import annotations

import asyncio
import errno
import logging
from typing import Any

import pytest
from support.checks import Panic, until
from support.clock import T0, Clock
from support.stores import Store
from support.worked import drain_at
from support.writers import Echo, fill

from redismem import CorruptSession, Message, Settings
from redismem.context.context import Context
from redismem.errors import ModelFailed, ProviderUnavailable
from redismem.events import FACTS
from redismem.protocol.ids import session_hash
from redismem.workers.eviction import Eviction
from redismem.workers.scheduler import Scheduler
from redismem.workers.summaries import Worker

SECRET = "the text of a message"
NAME = "user-42"


def records(caplog: pytest.LogCaptureFixture, op: str) -> list[Any]:
    """Return the records of this op, after checking that all have facts and none quotes an id or a message."""
    ours = [record for record in caplog.records if record.name.partition(".")[0] == "redismem"]
    for record in ours:
        assert "op" in vars(record), record.getMessage()
        shown = record.getMessage() + repr([vars(record).get(name) for name in FACTS])
        assert NAME not in shown
        assert SECRET not in shown
        assert SECRET not in logging.Formatter().format(record)
    return [record for record in ours if vars(record)["op"] == op]


@pytest.fixture(autouse=True)
def every_level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="redismem")


async def test_a_summary_is_logged_with_its_facts(store: Store, namespace: str, caplog: Any) -> None:
    async with store.memory(namespace) as memory:
        await fill(memory.session(NAME), 11, SECRET)
        assert await Worker(memory.store, Echo()).drain() == 1
    (record,) = records(caplog, "summary")
    assert record.levelno == logging.INFO
    assert (record.session, record.outcome, record.message_count, record.folded_count) == (
        session_hash(NAME),
        "ok",
        5,
        0,
    )
    assert type(record.duration_ms) is int
    assert record.getMessage() == (
        f"session {record.session}: 5 messages covered, 0 summaries folded, in {record.duration_ms} ms: ok"
    )


async def test_an_error_of_redismem_is_quoted_and_needs_no_traceback(
    store: Store, namespace: str, caplog: Any, clock: Clock
) -> None:
    async with store.memory(namespace) as memory:
        await fill(memory.session(NAME), 11, SECRET)
        echo = Echo()
        echo.failures.append(ModelFailed("openai answered 400", NAME, reason="openai answered 400", retry_after_s=7))
        assert await drain_at(Worker(memory.store, echo), T0) == 0
    (record,) = records(caplog, "summary")
    assert record.getMessage() == (
        f"session {session_hash(NAME)}: attempt 1 at a summary failed, retry in 7.0 s: ModelFailed: openai answered 400"
    )
    assert record.reason == "openai answered 400"
    assert (record.error, record.attempt, record.backoff_ms, record.exc_info) == ("ModelFailed", 1, 7_000, None)


KINDS: list[type[BaseException]] = [KeyError, asyncio.CancelledError, Panic]
"""The kinds of errors that a caller's code raises: its task may be cancelled, its library may panic."""


def traceback_end(line: str, kind: type[BaseException]) -> str:
    """Return the end of a traceback that shows where an error was raised, without its text."""
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
    return f"{line}\n{name}"


@pytest.mark.parametrize("kind", KINDS)
async def test_an_error_of_a_strategy_of_the_callers_own_is_logged_with_its_traceback(
    store: Store, namespace: str, caplog: Any, kind: type[BaseException]
) -> None:
    failure = kind(SECRET)
    failure.__cause__ = ValueError(SECRET)
    failure.add_note(SECRET)
    async with store.memory(namespace, Settings(max_attempts=1, extractive_after_s=0)) as memory:
        await fill(memory.session(NAME), 11, SECRET)
        echo = Echo()
        echo.failures.append(failure)
        assert await Worker(memory.store, echo).drain() == 0
    (record,) = records(caplog, "summary")
    assert record.getMessage().endswith(f"attempt 1 at a summary failed, dead: {kind.__name__}")
    assert (record.error, record.outcome) == (kind.__name__, "dead")
    assert traceback_end("compact\n    raise self.failures.popleft()", kind) in caplog.text


async def test_a_strategy_that_takes_too_long_is_told_how_long(store: Store, namespace: str, caplog: Any) -> None:
    async with store.memory(namespace, Settings(summary_timeout_s=0.05)) as memory:
        await fill(memory.session(NAME), 11, SECRET)
        echo = Echo()
        echo.hanging = SECRET
        assert await Worker(memory.store, echo).drain() == 0
    (record,) = records(caplog, "summary")
    assert record.getMessage().endswith("ModelFailed: no summary within 0.05 s")


async def test_a_timeout_of_the_strategys_own_stays_its_own(store: Store, namespace: str, caplog: Any) -> None:
    async with store.memory(namespace) as memory:
        await fill(memory.session(NAME), 11, SECRET)
        echo = Echo()
        echo.failures.append(TimeoutError("its socket's"))
        assert await Worker(memory.store, echo).drain() == 0
    (record,) = records(caplog, "summary")
    assert (record.error, record.exc_info[0].__name__) == ("TimeoutError", "TimeoutError")


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (OSError(errno.ENOSPC, "the disk is full", SECRET), "OSError ENOSPC"),
        (asyncio.CancelledError(SECRET), "CancelledError"),
        (Panic(SECRET), "Panic"),
    ],
)
async def test_an_on_evict_that_fails_is_logged_with_its_traceback(
    store: Store, namespace: str, caplog: Any, clock: Clock, failure: BaseException, reason: str
) -> None:

    async def full(session_id: str, context: Context) -> None:
        raise failure

    async with store.memory(namespace, Settings(max_sessions=1)) as memory:
        await fill(memory.session(NAME), 1, SECRET)
        await clock.run_at(T0 + 1_000, fill(memory.session("newer"), 1, SECRET))
        assert await clock.run_at(T0 + 1_000, Eviction(memory.store, full).enforce()) == 0
        (record,) = records(caplog, "eviction")
        assert record.getMessage() == f"session {session_hash(NAME)}: not evicted: {reason}"
        assert record.reason == reason
        assert (record.session, record.error) == (session_hash(NAME), type(failure).__name__)
        assert traceback_end("in full\n    raise failure", type(failure)) in caplog.text
        assert await clock.run_at(T0 + 60_000, Eviction(memory.store).enforce()) == 1
    *warnings, record = [each for each in records(caplog, "enforce") if hasattr(each, "session_count")]
    assert [each.levelno for each in warnings] == [logging.WARNING] * 2, "it was active just now"
    assert (record.levelno, record.session_count) == (logging.INFO, 1)


async def test_a_session_in_quarantine_is_named_by_its_hash(
    store: Store, namespace: str, raw: Any, caplog: Any
) -> None:
    async with store.memory(namespace) as memory:
        await fill(memory.session(NAME), 2, SECRET)
        await raw.set(memory.store.keys.session(NAME).state, "x")
        assert (await memory.session(NAME).append(Message("user", SECRET))).created
    (record,) = records(caplog, "quarantine")
    assert (record.levelno, record.session, record.namespace) == (logging.ERROR, session_hash(NAME), namespace)
    assert record.error == CorruptSession.__name__
    assert "WRONGTYPE" in record.getMessage()


async def test_a_drain_that_stops_early_says_why(store: Store, namespace: str, raw: Any, caplog: Any) -> None:
    async with store.memory(namespace, Settings(shards=1, tick_s=0.02)) as memory:
        shard = memory.store.keys.shards()[0]
        await raw.set(shard.overdue, "no queue")
        scheduler = Scheduler(memory.store, Echo())
        await scheduler.start()

        async def stopped_early() -> bool:
            return bool(records(caplog, "drain"))

        await until(stopped_early)
        await scheduler.stop()
    record = records(caplog, "drain")[0]
    assert record.getMessage().startswith(f"a drain stopped early: {record.error}: ")
    assert record.exc_info is None


async def test_an_on_evict_that_does_not_end_is_told_how_long_it_had(
    store: Store, namespace: str, caplog: Any, clock: Clock
) -> None:
    async def hanging(session_id: str, context: Context) -> None:
        await asyncio.Event().wait()

    async with store.memory(namespace, Settings(max_sessions=1, lease_s=0.05)) as memory:
        await fill(memory.session(NAME), 1, SECRET)
        await clock.run_at(T0 + 1_000, fill(memory.session("newer"), 1, SECRET))
        assert await clock.run_at(T0 + 1_000, Eviction(memory.store, hanging).enforce()) == 0
    (record,) = records(caplog, "eviction")
    assert record.getMessage().endswith("not evicted: RedismemError: on_evict did not end within 0.05 s")


@pytest.mark.parametrize("kind", KINDS)
async def test_who_writes_instead_and_why_is_logged(
    store: Store, namespace: str, caplog: Any, clock: Clock, kind: type[BaseException]
) -> None:
    async with store.memory(namespace, Settings(max_attempts=1)) as memory:
        await fill(memory.session(NAME), 11, SECRET)
        echo = Echo()
        echo.failures.append(kind(SECRET))
        assert await drain_at(Worker(memory.store, echo), T0) == 1
    failed, _ = records(caplog, "summary")
    what = f"session {session_hash(NAME)}: the extractive summariser writes instead"
    assert failed.getMessage() == f"{what}: {kind.__name__}"
    assert (failed.levelno, failed.reason, failed.attempt) == (logging.WARNING, kind.__name__, 1)
    assert failed.exc_info[1].args == (), "where it was raised, and not what it says"
    assert traceback_end("compact\n    raise self.failures.popleft()", kind) in caplog.text


async def test_a_pause_and_its_end_are_logged_once(store: Store, namespace: str, caplog: Any, clock: Clock) -> None:
    async with store.memory(namespace) as memory:
        await fill(memory.session(NAME), 11, SECRET)
        echo = Echo()
        echo.failures.append(ProviderUnavailable(SECRET, reason="openai answered 503", retry_after_s=7))
        worker, other = Worker(memory.store, echo), Worker(memory.store, Echo())
        assert await drain_at(worker, T0) == 0
        assert await drain_at(worker, T0 + 1_000) == 0
        (record,) = records(caplog, "provider")
        assert record.getMessage() == "Echo is paused for 7.0 s, after 1 failure in 0 s: openai answered 503"
        assert (record.levelno, record.reason, record.backoff_ms) == (logging.WARNING, "openai answered 503", 7_000)
        caplog.clear()
        assert await drain_at(other, T0 + 1_000) == 0
        (record,) = records(caplog, "provider")
        assert record.getMessage().endswith(": openai answered 503")
        assert 6_000 <= record.backoff_ms <= 66_000, "what is left of it"
        caplog.clear()
        assert await drain_at(worker, T0 + 70_000) == 1
        assert await drain_at(other, T0 + 70_000) == 0
    said = [record.getMessage() for record in records(caplog, "provider")]
    assert [line.partition(",")[0] for line in said] == ["Echo answers again"] * 2, "each worker says it once"


async def test_a_pause_that_has_run_out_says_so(store: Store, namespace: str, caplog: Any, clock: Clock) -> None:
    async with store.memory(namespace) as memory:
        await fill(memory.session(NAME), 11, SECRET)
        echo = Echo()
        echo.failures.append(ProviderUnavailable(SECRET, reason="openai answered 503"))
        assert await drain_at(Worker(memory.store, echo), T0) == 0
        caplog.clear()
        assert await drain_at(Worker(memory.store, Echo()), T0 + 7_000) > 0
        record, _ = records(caplog, "provider")
        said = "Echo is paused and due to be tried again now, after 1 failure in 7 s: openai answered 503"
        assert record.getMessage() == said
