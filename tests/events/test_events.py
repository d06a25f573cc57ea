"""The event hook hears of each call and its outcome, but receives no content."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.callers import Awaiting
from support.checks import Panic
from support.redis_server import RedisServer
from support.watched import CANARY, NAME, Events, Place, user

import redismem
from redismem import Conflict, SessionNotFound, Settings, TooLarge
from redismem.blocking import memory as blocking
from redismem.concurrency import run_sync
from redismem.events import Event
from redismem.protocol.ids import session_hash

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"


async def test_each_operation_sends_an_event_with_its_outcome(place: Place, events: Events) -> None:
    async with place.memory(events.append) as memory:
        assert events.drain() == [("recorded", "nothing"), ("record", "ok")]
        session = memory.session(NAME)
        assert events.drain() == [], "a handle is no call"
        await session.read()
        await session.exists()
        await session.touch()
        assert events.drain() == [("read", "nothing"), ("exists", "nothing"), ("touch", "nothing")]
        with pytest.raises(SessionNotFound):
            await session.info()
        with pytest.raises(SessionNotFound):
            await session.messages()
        with pytest.raises(SessionNotFound):
            await session.prune(1)
        assert events.drain() == [("info", "nothing"), ("messages", "nothing"), ("read_window", "nothing")]
        await session.clear()
        assert events.drain() == [("clear", "nothing")]
        await session.append(user(1))
        await session.append_and_read(user(2), merge={CANARY: CANARY})
        assert events.drain() == [("append", "ok"), ("append_and_read", "ok")]
        await session.read(limit=1)
        await session.messages()
        await session.exists()
        await session.touch()
        await session.info()
        assert events.drain() == [(op, "ok") for op in ("read", "messages", "exists", "touch", "info")]
        await session.set_plan([CANARY])
        await session.params()
        await session.state()
        await session.telemetry()
        assert events.drain() == [(op, "ok") for op in ("update", "state", "state", "info")]
        await session.prune(1)
        await session.clear()
        assert events.drain() == [(op, "ok") for op in ("read_window", "prune", "clear")]
        await memory.ping()
        await memory.count()
        await memory.sessions()
        assert events.drain() == [(op, "ok") for op in ("ping", "server_time", "count", "server_time", "sessions")]
        await session.append(user(3))


async def test_an_append_tells_its_sizes_and_its_session_by_hash(place: Place, events: Events) -> None:
    async with place.memory(events.append) as memory:
        session = memory.session(NAME)
        await session.append(user(1))
        await session.append_and_read(user(2), user(3), merge={"a": 1}, id="the id")
        first, both = events[-2:]
        elements = place.raw.lrange(place.keys(NAME).messages, 0, -1)
        assert (first.session, first.sent_count, first.window_count) == (session_hash(NAME), 1, 1)
        assert (first.message_count, first.message_bytes) == (1, len(elements[0]) - 9), "without the server's time"
        assert (both.message_count, both.window_count) == (2, 3)
        assert both.message_bytes == len(elements[1]) + len(elements[2]) - 18
        assert first.tokens + both.tokens == (await session.info()).window_tokens
        assert (await session.read()).last_seq == events[-1].window_count
        assert len(await session.messages()) == events[-1].message_count == 3
        assert await session.prune(2) == events[-1].message_count == 1
        await memory.ping()
        assert (events[-1].session, events[-1].message_count, events[-1].window_count) == (None, 0, None)


async def test_a_duplicate_and_a_conflict_are_no_errors_of_the_store(place: Place, events: Events) -> None:
    async with place.memory(events.append) as memory:
        session = memory.session(NAME)
        await session.append(user(1), id=CANARY)
        assert (await session.append(user(1), id=CANARY)).duplicate
        await session.append_and_read(user(1), id=CANARY)
        with pytest.raises(Conflict):
            await session.append(user(2), expect=7)
    assert events.drain()[2:] == [
        ("append", "ok"),
        ("append", "duplicate"),
        ("read", "ok"),  # compares the messages with those of the first append
        ("append_and_read", "duplicate"),
        ("append", "conflict"),
    ]


async def test_a_refusal_is_named_by_its_class(place: Place, events: Events) -> None:
    async with place.memory(events.append, Settings(max_window_count=10)) as memory:
        session = memory.session(NAME)
        await session.append(*map(user, range(10)))
        with pytest.raises(TooLarge):
            await session.append(user(11))
        place.raw.set(place.keys(NAME).state, "x")
        with pytest.raises(redismem.CorruptSession):
            await redismem_store(memory).run(redismem_store(memory).session_calls(NAME).read())
    assert [event.outcome for event in events[-2:]] == ["TooLarge", "CorruptSession"]


def redismem_store(memory: Any) -> Any:
    """Return the store of either memory, with async methods."""
    if not isinstance(memory, Awaiting):
        return memory.store
    store = memory._inner.store

    class Stepped:
        session_calls = staticmethod(store.session_calls)

        async def run(self, call: Any) -> Any:
            return run_sync.run_without_loop(store.run(call))

    return Stepped()


async def test_a_quarantine_sends_an_event_of_its_own(place: Place, events: Events) -> None:
    async with place.memory(events.append) as memory:
        place.raw.set(place.keys(NAME).state, "x")
        assert (await memory.session(NAME).append(user(1))).created
    assert events.drain()[2:] == [("quarantine", "ok"), ("append", "ok")]


async def test_a_hook_that_fails_disturbs_no_call(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    failures: Iterator[Exception] = iter([ValueError("secret 1"), ValueError("secret 2"), KeyError("secret 3")])

    def failing(event: Event) -> None:
        if event.op in ("append", "read"):
            raise next(failures)

    async with place.memory(failing) as memory:
        session = memory.session(NAME)
        assert (await session.append(user(1))).created
        with pytest.raises(Conflict):
            await session.append(user(2), expect=7)
        assert len((await session.read()).messages) == 1
    assert next(failures, None) is None
    records: list[Any] = [record for record in caplog.records if record.name.startswith("redismem")]
    assert [(record.levelno, record.op, record.error) for record in records] == [
        (logging.ERROR, "on_event", "ValueError"),
        (logging.ERROR, "on_event", "KeyError"),
    ]
    assert "raise next(failures)\nValueError\n" in caplog.text, "the traceback without the text"
    assert "secret" not in caplog.text


@pytest.mark.parametrize("memory", [redismem.Memory, blocking.Memory])
def test_a_hook_that_must_be_awaited_is_refused(memory: Any) -> None:
    async def hook(event: Event) -> None:
        del event

    for wrong in (hook, "hook"):
        with pytest.raises(TypeError, match="a plain function"):
            memory.connect(on_event=wrong)


def test_without_a_hook_the_store_is_a_plain_one() -> None:
    for memory in (redismem.Memory.connect(), blocking.Memory.connect()):
        assert memory.store.hook is None


def test_the_page_for_operators_counts_and_sums(server: RedisServer | None) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (shown,) = (block for block in blocks if "on_event=measure" in block)
    names: dict[str, Any] = {"url": server.url if server else "memory://"}
    exec(shown.replace("from redismem import Memory", "from redismem.blocking import Memory"), names)
    with names["memory"] as memory:
        session = memory.session(memory.new_session_id())
        begun_s = time.monotonic()
        for _ in range(2):
            session.append(user(1), id="a")
        took_ms = (time.monotonic() - begun_s) * 1000
        session.clear()
    calls, total_ms = names["calls"], names["total_ms"]
    assert calls["append", "ok"] == calls["append", "duplicate"] == calls["clear", "ok"] == 1
    assert 0 < total_ms["append"] <= took_ms


class Awaited:
    async def __call__(self, event: Event) -> None: ...


def generating(event: Event) -> Iterator[None]:
    yield


@pytest.mark.parametrize("hook", [Awaited(), generating, 5])
def test_a_hook_that_a_call_would_not_run_is_refused(hook: Any) -> None:
    for connect in (redismem.Memory.connect, blocking.Memory.connect):
        with pytest.raises(TypeError, match="plain function"):
            connect("memory://", on_event=hook)


def test_calls_inside_a_hook_send_no_events() -> None:
    seen: list[str] = []

    def hook(event: Event) -> None:
        seen.append(event.op)
        memory.ping()

    memory = blocking.Memory.connect("memory://", on_event=hook)
    with memory:
        memory.session("a").append(user(1))
    assert seen == ["recorded", "record", "append"]


@pytest.mark.parametrize("kind", [asyncio.CancelledError, Panic])
async def test_a_hook_that_raises_a_base_exception_fails_no_call(
    place: Place, caplog: pytest.LogCaptureFixture, kind: type[BaseException]
) -> None:
    def hook(event: Event) -> None:
        raise kind(event.op)

    async with place.memory(hook) as memory:
        assert (await memory.session(NAME).append(user(1))).created
        assert (await memory.session(NAME).append(user(2))).total == 2
    assert caplog.text.count(f"on_event failed with {kind.__name__}") == 1


async def test_a_hook_may_end_the_process(place: Place) -> None:
    def hook(event: Event) -> None:
        if event.op == "append":
            raise SystemExit

    async with place.memory(hook) as memory:
        with pytest.raises(SystemExit):
            await memory.session(NAME).append(user(1))
