"""Limits of the fallback, and the end of a process that has a backlog."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import threading
from typing import Any

import pytest
from support.checks import catch_unavailable, check_silent, contents, silent_logs, until, user  # noqa: F401 (an autouse fixture)
from support.faulty import LIMITS, Faulty, open_memory, wait_until_replayed
from support.proxy import Proxy
from support.stores import short_deadlines

from redismem import FallbackFull, Memory, Settings, StoreUnavailable, TooLarge
from redismem.blocking import memory as blocking
from redismem.store.breaker import BreakerState
from redismem.store.fallback.fallback import Fallback


def texts(context: Any) -> list[str]:
    return [message.content for message in context.messages]


@pytest.mark.parametrize(
    "limit", [{"max_backlog_count": 3}, {"max_backlog_bytes": 5000, "max_message_bytes": 64 * 1024}], ids=str
)
async def test_a_full_backlog_accepts_nothing_and_drops_nothing(faulty: Faulty, namespace: str, limit: Any) -> None:
    text = "x" * (1 if "max_backlog_count" in limit else 1100)
    async with open_memory(faulty, namespace, Settings(**LIMITS, **limit)) as memory:
        await memory.session("a").append_and_read(user(0))
        faulty.is_away = True
        for number in range(3):
            await memory.session("ab"[number % 2]).append(user(f"{number} {text}"))
        for session_id in ("a", "c"):
            with pytest.raises(FallbackFull) as full:
                await memory.session(session_id).append(user(f"4 {text}"))
            check_silent(full.value)
            assert (full.value.session_id, isinstance(full.value, StoreUnavailable)) == (session_id, True)
        health = memory.health()
        assert (health.backlog_session_count, health.backlog_message_count) == (2, 3)
        assert len(texts(await memory.session("a").read())) == 3, "what was refused is not shown"
        faulty.is_away = False
        await wait_until_replayed(memory)
        assert memory.health().backlog_bytes == 0
        assert await contents(memory.session("a")) == [user(n)["content"] for n in (0, f"0 {text}", f"2 {text}")]
        assert await contents(memory.session("b")) == [user(f"1 {text}")["content"]]
        faulty.is_away = True
        assert (await memory.session("c").append(user(5))).degraded, "there is room again"
        faulty.heal()


async def test_an_append_that_a_script_would_refuse_is_refused_at_once(faulty: Faulty, namespace: str) -> None:
    async with open_memory(faulty, namespace, Settings(**LIMITS, max_params_count=2, max_window_count=10)) as memory:
        await memory.session("a").append_and_read(*map(user, range(9)), merge={"a": 1})
        faulty.is_away = True
        await memory.session("a").append(user(9), merge={"b": 2})
        with pytest.raises(TooLarge, match="params"):
            await memory.session("b").update(merge={"c": 3, "d": 4, "e": 5})
        with pytest.raises(TooLarge, match="window"):
            await memory.session("a").append(user(10))
        assert memory.health().backlog_message_count == 1
        faulty.heal()


async def test_no_turn_is_refused_for_the_bytes_of_earlier_ones(faulty: Faulty, namespace: str) -> None:
    large = user("x" * 20_000)
    limits = LIMITS | {"max_backlog_bytes": 1_000_000}
    async with open_memory(faulty, namespace, Settings(**limits, max_window_bytes=65_536)) as memory:
        session = memory.session("a")
        await session.append_and_read(large)
        faulty.is_away = True
        for _ in range(3):
            await session.append(large)
        assert len((await session.read()).messages) == 4
        faulty.is_away = False
        await wait_until_replayed(memory)
        assert len(await contents(session)) == 4


async def test_closing_replays_the_backlog(faulty: Faulty, namespace: str) -> None:
    async with open_memory(faulty, namespace) as memory:
        faulty.is_away = True
        await memory.session("a").append(user(1))
        faulty.is_away = False
    async with Memory.connect(client=faulty._client, namespace=namespace) as after:
        assert await contents(after.session("a")) == [user(1)["content"]]


async def test_closing_does_not_wait_until_a_probe_is_due(faulty: Faulty, namespace: str) -> None:
    """Redis has just returned, and the process ends before it would have noticed."""
    async with open_memory(faulty, namespace) as memory:
        faulty.is_away = True
        await memory.session("a").append(user(1))
        breaker = memory.store.availability.breaker
        await until(lambda: breaker.state is BreakerState.OPEN)
        breaker._probe_at = breaker._clock() + 3_600
        faulty.is_away = False
    async with Memory.connect(client=faulty._client, namespace=namespace) as after:
        assert await contents(after.session("a")) == [user(1)["content"]]


async def test_closing_logs_lost_messages_as_an_error(
    faulty: Faulty, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_memory(faulty, namespace, Settings(**LIMITS | {"deadline_s": 0.2})) as memory:
        faulty.is_away = True
        await memory.session("a").append(user(1), user(2))
        await memory.session("b").append(user(3))
    (lost,) = [record for record in caplog.records if getattr(record, "outcome", "") == "lost"]
    assert (lost.levelno, lost.__dict__["message_count"], lost.__dict__["session_count"]) == (logging.ERROR, 3, 2)


async def test_a_blocking_memory_logs_lost_messages_and_leaves_no_thread(
    proxy: Proxy, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    await proxy.refuse()

    def talk() -> None:
        settings = Settings(deadline_s=0.3, fallback_after_s=0.1)
        with blocking.Memory.connect(proxy.url, namespace=namespace, settings=settings, fallback=True) as memory:
            assert memory.session("a").append(user(1)).degraded

    await asyncio.to_thread(talk)
    (lost,) = [record for record in caplog.records if getattr(record, "outcome", "") == "lost"]
    assert lost.__dict__["message_count"] == 1

    async def ended() -> bool:
        return not [thread for thread in threading.enumerate() if thread.name == "redismem-replay"]

    await until(ended)


@pytest.mark.parametrize("asked", ["read", "ping"])
async def test_a_replay_that_gets_no_thread_begins_with_a_later_call(
    proxy: Proxy, direct_memory: Memory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, asked: str
) -> None:
    loop, began, may_begin = asyncio.get_running_loop(), threading.Thread.start, threading.Event()

    def begin(thread: threading.Thread) -> None:
        if thread.name == "redismem-replay" and not may_begin.is_set():
            raise RuntimeError("can't start new thread")
        began(thread)

    def talk() -> None:
        settings = Settings(deadline_s=60, reply_timeout_s=20, fallback_after_s=20)
        namespace = direct_memory.store.keys.namespace
        with blocking.Memory.connect(proxy.url, namespace=namespace, settings=settings, fallback=True) as memory:
            session = memory.session("a")
            session.append(user(0))
            asyncio.run_coroutine_threadsafe(proxy.refuse(), loop).result()
            with short_deadlines(memory):
                assert [session.append(user(number)).degraded for number in (1, 2)] == [True, True]
            asyncio.run_coroutine_threadsafe(proxy.accept_again(), loop).result()
            assert session.read().degraded, "no replay probes Redis"
            may_begin.set()
            while memory.health().backlog_message_count:
                with contextlib.suppress(StoreUnavailable):
                    session.read() if asked == "read" else memory.ping()

    monkeypatch.setattr(threading.Thread, "start", begin)
    await asyncio.to_thread(talk)
    assert await contents(direct_memory.session("a")) == [user(number)["content"] for number in range(3)]
    assert [record.levelno for record in caplog.records if "replay could not start" in record.message] == [
        logging.ERROR
    ]


async def test_a_memory_that_is_never_closed_logs_lost_messages_too(
    faulty: Faulty, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    memory = open_memory(faulty, namespace)
    faulty.is_away = True
    await memory.session("a").append(user(1))
    assert isinstance(memory.store.fallback, Fallback)
    await memory.store.fallback._background.end(0)  # as the end of the event loop does
    del memory

    async def said() -> bool:
        gc.collect()
        return [record.levelno for record in caplog.records if getattr(record, "outcome", "") == "lost"] == [
            logging.ERROR
        ]

    await until(said)


async def test_a_child_has_nothing_to_replay(degradable: Memory, faulty: Faulty) -> None:
    faulty.is_away = True
    await degradable.session("a").append(user(1))
    child = os.fork()
    if not child:
        os._exit(degradable.health().backlog_message_count)
    assert os.waitpid(child, 0)[1] == 0  # noqa: ASYNC222 (it ends at once)
    assert degradable.health().backlog_message_count == 1


async def test_cached_contexts_are_bounded(faulty: Faulty, namespace: str) -> None:
    async with open_memory(faulty, namespace, Settings(**LIMITS, max_cached_sessions=2)) as memory:
        store = memory.store
        fallback = store.fallback
        assert isinstance(fallback, Fallback)
        for name in "abac":
            await memory.session(name).append_and_read(user(name))
        assert len(fallback._seen) == 2
        faulty.is_away = True
        assert [len(texts(await memory.session(name).read())) for name in "abc"] == [2, 0, 1], "b was used least"
    faulty.is_away = False
    async with open_memory(faulty, f"{namespace}-2", Settings(**LIMITS, max_cached_bytes=20_000)) as memory:
        store = memory.store
        fallback = store.fallback
        assert isinstance(fallback, Fallback)
        for number in range(50):
            await memory.session(f"s-{number % 9}").append_and_read(user("x" * 1000))
            await memory.session(f"s-{number % 9}").append(user("x" * 1000))
            assert fallback._seen.size_bytes <= 20_000
        assert 0 < len(fallback._seen) < 9


async def test_contexts_that_are_dropped_leave_room_for_others(faulty: Faulty, namespace: str) -> None:
    async with open_memory(faulty, namespace, Settings(**LIMITS, max_cached_bytes=20_000)) as memory:
        fallback = memory.store.fallback
        assert isinstance(fallback, Fallback)
        for _ in range(30):
            await memory.session("cleared").append_and_read(user("x" * 1_000))
            await memory.session("cleared").clear()
        assert (len(fallback._seen), fallback._seen.size_bytes) == (0, 0)
        await memory.session("kept").append_and_read(user(1))
        faulty.is_away = True
        assert texts(await memory.session("kept").read()) == [user(1)["content"]]


async def test_a_replay_with_entries_is_logged(
    degradable: Memory, faulty: Faulty, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "redismem")
    faulty.is_away = True
    await degradable.session("a").append(user(1))
    faulty.is_away = False

    def told() -> list[Any]:
        return [record.args for record in caplog.records if getattr(record, "op", "") == "replay"]

    async def replayed() -> bool:
        return any(args[0] == "replayed" for args in told())

    await until(replayed)
    assert all(done_count for _, done_count, *_ in told())


async def test_an_append_to_an_unreadable_session_is_seen_once(faulty: Faulty, degradable: Memory) -> None:
    session = degradable.session("a")
    await session.append_and_read(user(1))
    keys = degradable.store.keys.session("a")
    await faulty._client.delete(keys.messages)
    assert (await session.append(user(2))).created, "the other one is in quarantine"
    faulty.is_away = True
    context = await session.append_and_read(user(3))
    assert [message.content for message in context.messages] == [user(n)["content"] for n in (2, 3)]
    assert context.last_seq == 2
