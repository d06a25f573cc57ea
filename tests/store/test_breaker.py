"""The circuit breaker: when it opens, who probes Redis, and what does not open it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

import pytest
from support.checks import catch_unavailable, until, user
from support.faulty import Faulty, open_memory
from support.proxy import Proxy
from support.redis_server import RedisServer
from support.stores import short_deadlines

import redismem.blocking
from redismem import Conflict, Memory, Settings, StoreUnavailable
from redismem.protocol.server_errors import ConnectionLost
from redismem.store.breaker import LONGEST_PAUSE_S, Breaker, BreakerState
from redismem.store.store import Store
from redismem.workers.scheduler import Scheduler
from redismem.workers.strategies import Trim

HASTY = Settings(deadline_s=0.02, reply_timeout_s=0.02)
"""For the embedded store, whose answers nothing in this process times."""


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_one_probe_at_a_time_with_growing_bounded_pauses(clock: Clock) -> None:
    breaker = Breaker(clock)
    assert breaker.trip(95.0, "TimeoutError")
    assert (breaker.state, breaker.is_closed, breaker.away_s()) == (BreakerState.OPEN, False, 5.0)
    pauses = []
    for _ in range(12):
        clock.now += breaker.probe_in_s()
        assert breaker.begin_probe()
        assert breaker.state is BreakerState.HALF_OPEN
        assert not breaker.begin_probe(), "one at a time"
        assert not breaker.begin_probe(at_once=True), "one at a time"
        breaker.fail_probe("TimeoutError")
        pauses.append(breaker.probe_in_s())
        assert not breaker.begin_probe(), "not yet"
    assert pauses[0] < 0.06
    assert max(pauses) <= LONGEST_PAUSE_S
    assert min(pauses[-3:]) >= LONGEST_PAUSE_S / 2
    assert breaker.begin_probe(at_once=True)
    breaker.close()
    breaker.fail_probe("")
    assert (breaker.state, breaker.is_closed, breaker.away_s(), breaker.reason) == (BreakerState.CLOSED, True, 0.0, "")
    assert not breaker.begin_probe()


def test_a_failed_probe_replaces_the_reason_and_its_details(clock: Clock) -> None:
    """The outage may begin as a timeout, and go on because credentials() fails."""
    breaker = Breaker(clock)
    breaker.trip(95.0, "TimeoutError")
    for reason, text in (("CredentialsFailed", "credentials() raised"), ("TimeoutError", "")):
        assert breaker.begin_probe(at_once=True)
        breaker.fail_probe(reason, text)
        assert (breaker.reason, breaker.text) == (reason, text)


def test_an_unanswered_call_opens_nothing_if_a_later_one_was_answered(clock: Clock) -> None:
    breaker = Breaker(clock)
    breaker.answered_s = 96.0
    assert not breaker.trip(95.0, "TimeoutError")
    assert breaker.is_closed
    assert breaker.trip(97.0, "TimeoutError")
    assert not breaker.trip(97.0, "TimeoutError"), "it is open already"


async def test_while_it_is_open_calls_fail_at_once_and_nothing_is_sent(faulty: Faulty, namespace: str) -> None:
    async with Memory(Store(faulty, namespace, HASTY)) as memory:
        session = memory.session("a")
        await session.append(user(1))
        assert memory.health().state == "closed"
        faulty.is_away = True
        error = await catch_unavailable(session.append(user(2)))
        assert (error.session_id, error.reason) == ("a", "ConnectionRefusedError")
        health = memory.health()
        assert (health.state, health.reason, health.fallback) == ("open", "ConnectionRefusedError", False)
        assert health.since_ms is not None
        sent_count = len(faulty.called)
        for _ in range(1000):
            error = await catch_unavailable(session.read())
            assert error.reason == "ConnectionRefusedError"
        assert set(faulty.called[sent_count:]) == {"PING"}, "those that looked for it"
        assert len(faulty.called[sent_count:]) < 100
        faulty.is_away = False

        async def back() -> bool:
            try:
                return (await session.append(user(2), id="2")).last_seq == 2
            except StoreUnavailable:
                return False

        await until(back)
        assert memory.health() == memory.store.health()
        assert (memory.health().state, memory.health().since_ms, memory.health().reason) == ("closed", None, "")


@pytest.mark.parametrize("word", ["LOADING", "READONLY", "OOM", "NOAUTH", "BUSY"])
async def test_an_error_reply_opens_nothing(faulty: Faulty, namespace: str, word: str) -> None:
    async with Memory(Store(faulty, namespace, HASTY)) as memory:
        await memory.session("a").append(user(1))
        faulty.says = word
        for _ in range(3):
            assert (await catch_unavailable(memory.session("a").append(user(2)))).reason == word
        assert memory.health().state == "closed"
        faulty.says = ""
        assert (await memory.session("a").append(user(2))).last_seq == 2


async def test_a_refusal_of_a_script_opens_nothing(faulty: Faulty, namespace: str) -> None:
    async with Memory(Store(faulty, namespace, HASTY)) as memory:
        await memory.session("a").append(user(1))
        for _ in range(5):
            with pytest.raises(Conflict):
                await memory.session("a").append(user(2), expect=7)
        assert memory.health().state == "closed"


@pytest.mark.parametrize("word", ["LOADING", "READONLY"])
async def test_a_server_that_loads_its_data_is_not_back_yet(faulty: Faulty, namespace: str, word: str) -> None:
    async with Memory(Store(faulty, namespace, HASTY)) as memory:
        faulty.is_away = True
        await catch_unavailable(memory.session("a").append(user(1)))
        faulty.is_away, faulty.says = False, word
        await memory.store.availability.probe(at_once=True)
        assert memory.health().state == ("open" if word == "LOADING" else "closed")
        assert memory.health().reason == ("LOADING" if word == "LOADING" else "")


@pytest.mark.parametrize("fallback", [False, True])
async def test_one_call_that_fails_while_others_are_answered_opens_nothing(
    faulty: Faulty, namespace: str, fallback: bool
) -> None:
    settings = HASTY.model_copy(update={"fallback_after_s": 0.01})
    async with open_memory(faulty, namespace, settings, fallback=fallback) as memory:
        slow, run, is_answered = memory.store.keys.session("slow").state, faulty.run, asyncio.Event()

        async def lose_one(commands: Any, timeout_s: float, script: Any = None, subject: Any = None) -> list[Any]:
            if slow not in commands[0]:
                return await run(commands, timeout_s, script, subject)
            await is_answered.wait()
            raise ConnectionLost("TimeoutError")

        faulty.run = lose_one  # type: ignore[method-assign]
        failing = asyncio.ensure_future(catch_unavailable(memory.session("slow").append(user(1))))
        await asyncio.sleep(0)
        await memory.session("a").append(user(1))
        is_answered.set()
        assert (await failing).reason == "TimeoutError"
        assert memory.health().state == "closed"


async def test_workers_pause_while_it_is_open(faulty: Faulty, namespace: str) -> None:
    settings = HASTY.model_copy(update={"fallback_after_s": 0.01, "tick_s": 0.01})
    async with open_memory(faulty, namespace, settings) as memory:
        scheduler = Scheduler(memory.store, Trim())
        faulty.is_away = True
        assert (await memory.session("a").append(user(1))).degraded
        await scheduler.start()
        faulty.called.clear()

        async def has_probed() -> bool:
            return len(faulty.called) >= 6

        await until(has_probed)
        assert set(faulty.called) == {"PING"}
        faulty.is_away = False

        async def is_drained() -> bool:
            return "independent" in faulty.called

        await until(is_drained)
        await scheduler.stop()


async def test_each_change_of_state_is_reported_and_logged(
    faulty: Faulty, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    events: list[Any] = []
    async with open_memory(faulty, namespace, HASTY, fallback=False, on_event=events.append) as memory:
        faulty.is_away = True
        await catch_unavailable(memory.session("a").append(user(1)))
        faulty.is_away = False
        assert await memory.store.availability.probe(at_once=True)
    breaker_events = [event for event in events if event.op == "breaker"]
    assert [event.outcome for event in breaker_events] == ["open", "half_open", "closed"]
    assert all(event.session is None and event.namespace == namespace for event in breaker_events)
    assert breaker_events[-1].duration_ms > 0
    records = [record for record in caplog.records if getattr(record, "op", "") == "breaker"]
    assert [(record.levelno, record.__dict__["outcome"]) for record in records] == [
        (logging.ERROR, "open"),
        (logging.WARNING, "closed"),
    ]


@pytest.mark.parametrize("ending", [SystemExit, KeyboardInterrupt])
async def test_a_hook_that_ends_the_process_leaves_no_probe_open(
    faulty: Faulty, namespace: str, ending: type[BaseException]
) -> None:
    endings = [ending()]

    def end(event: Any) -> None:
        if event.outcome == "half_open" and endings:
            raise endings.pop()

    async with open_memory(faulty, namespace, HASTY, fallback=False, on_event=end) as memory:
        faulty.is_away = True
        await catch_unavailable(memory.session("a").append(user(1)))
        with pytest.raises(ending):
            await memory.store.availability.probe(at_once=True)
        assert memory.health().state == "open"
        faulty.is_away = False
        assert await memory.store.availability.probe(at_once=True)


async def test_a_call_cancelled_in_a_probe_leaves_no_probe_open(faulty: Faulty, namespace: str) -> None:
    async with Memory(Store(faulty, namespace, HASTY)) as memory:
        faulty.is_away = True
        await catch_unavailable(memory.session("a").append(user(1)))
        faulty.run = lambda *_: asyncio.Event().wait()  # type: ignore[method-assign,assignment]
        probing = asyncio.ensure_future(memory.store.availability.probe(at_once=True))
        await until(lambda: memory.health().state == "half_open")
        probing.cancel()
        await asyncio.wait([probing])
        assert probing.cancelled()
        assert memory.health().state == "open"
        del faulty.run


async def test_the_breaker_serves_blocking_callers_too(redis_server: RedisServer, proxy: Proxy, namespace: str) -> None:
    def talk() -> None:
        settings = Settings(deadline_s=60, reply_timeout_s=20)
        with redismem.blocking.Memory.connect(proxy.url, namespace=namespace, settings=settings) as memory:
            session = memory.session("a")
            asyncio.run_coroutine_threadsafe(proxy.refuse(), loop).result()
            with short_deadlines(memory):
                for _ in range(200):
                    with pytest.raises(StoreUnavailable):
                        session.append(user(1), id="1")
            assert memory.health().state == "open"
            asyncio.run_coroutine_threadsafe(proxy.accept_again(), loop).result()
            receipt = None
            while receipt is None:
                with contextlib.suppress(StoreUnavailable):
                    receipt = session.append(user(1), id="1")
            assert receipt.last_seq == 1
            assert memory.health().state == "closed"

    loop = asyncio.get_running_loop()
    await asyncio.to_thread(talk)
