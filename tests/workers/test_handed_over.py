"""A session stays until its transcript is handed over, for up to a day. On both stores."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.clock import T0, Clock
from support.examples import queue_members
from support.stores import Store
from support.writers import Echo, chat_message, fill

from redismem import Settings
from redismem.context.context import Context
from redismem.workers.eviction import Eviction
from redismem.workers.summaries import Worker

TIMEOUT_MS = 86_400_000


class Archive:
    """An on_evict that records session ids, unless it is set to fail."""

    def __init__(self) -> None:
        self.failing = True
        self.handed: list[str] = []

    async def __call__(self, session_id: str, context: Context) -> None:
        if self.failing:
            raise OSError("the disk is full")
        self.handed.append(session_id)


async def test_a_session_that_is_chosen_lives_for_a_day_to_be_handed_over(
    store: Store, namespace: str, raw: Any, clock: Clock
) -> None:
    day_ms = 86_400_000
    async with store.memory(namespace, Settings(shards=2, idle_timeout_s=20)) as memory:
        archive = Archive()
        eviction, session = Eviction(memory.store, archive), memory.session("s-0")
        await clock.run_at(T0, fill(session, 30))
        await clock.run_at(T0, Worker(memory.store, Echo()).drain())
        chosen_ms = T0 + 10_000
        for now_ms in (chosen_ms, chosen_ms + 40_000, chosen_ms + day_ms - 80_000):
            assert await clock.run_at(now_ms, eviction.enforce()) == 0
            keys = memory.store.keys.session("s-0")
            stored = [key for key in (keys.state, keys.messages, keys.originals) if await raw.exists(key)]
            assert len(stored) == 3
            assert {await raw.pexpiretime(key) for key in stored} == {chosen_ms + day_ms}, "no longer for each attempt"
        archive.failing = False
        assert await clock.run_at(chosen_ms + day_ms - 40_000, eviction.enforce()) == 1
        assert archive.handed == ["s-0"]
        await clock.run_at(T0, session.append(chat_message(1)))
        expires_ms = T0 + 20_000
        assert (await session.info()).expires_ms == expires_ms
        assert await clock.run_at(expires_ms, Eviction(memory.store).queue_idle()) == 0
        assert await clock.run_at(expires_ms + 1, Eviction(memory.store).queue_idle()) == 1
        assert (await session.info()).expires_ms < chosen_ms + day_ms, "nobody is to have its transcript"


@pytest.mark.parametrize(("idle_timeout_s", "is_warned"), [(19, True), (20, False)])
async def test_a_timeout_shorter_than_two_polls_is_warned_of(
    store: Store, namespace: str, caplog: pytest.LogCaptureFixture, idle_timeout_s: int, is_warned: bool
) -> None:
    async with store.memory(namespace, Settings(idle_timeout_s=idle_timeout_s, tick_s=1)) as memory:
        Eviction(memory.store)
        assert "on_evict" not in caplog.text
        Eviction(memory.store, Archive())
        assert ("on_evict may miss sessions" in caplog.text) is is_warned


async def test_all_that_are_idle_are_chosen_however_many_cannot_be_handed_over(
    store: Store, namespace: str, clock: Clock
) -> None:
    async with store.memory(namespace, Settings(shards=2)) as memory:
        archive = Archive()
        for number in range(450):  # at the very same time, and more of a shard than one page has
            await clock.run_at(T0, memory.session(f"t-{number}").append(chat_message(1)))
        for number in range(250):
            await clock.run_at(T0 + number * 1_000, memory.session(f"s-{number}").append(chat_message(1)))
        eviction = Eviction(memory.store, archive)
        assert await clock.run_at(T0 + TIMEOUT_MS + 250_000, eviction.queue_idle()) == 700
        assert await clock.run_at(T0 + TIMEOUT_MS + 250_000, eviction.queue_idle()) == 0
        assert len(await queue_members(memory, "evictions")) == 700


async def test_what_expired_before_it_was_handed_over_is_told_once(
    store: Store, namespace: str, raw: Any, clock: Clock, caplog: Any
) -> None:
    async with store.memory(namespace, Settings(shards=2)) as memory:
        for number in range(5):
            await clock.run_at(T0, memory.session(f"s-{number}").append(chat_message(1)))
        for number in range(3):
            keys = memory.store.keys.session(f"s-{number}")
            await raw.delete(keys.state, keys.messages)
        await memory.session("s-3").clear()
        for _ in range(2):
            await clock.run_at(T0 + TIMEOUT_MS + 1, Eviction(memory.store, Archive()).enforce())
    (record,) = [record for record in caplog.records if "expired before on_evict" in record.message]
    assert (record.levelname, record.session_count, record.op) == ("ERROR", 3, "enforce")


async def test_an_on_evict_that_goes_on_though_it_is_cancelled_keeps_no_other_session(
    store: Store, namespace: str, clock: Clock
) -> None:
    gate, handed = asyncio.Event(), list[str]()

    async def closing(session_id: str, context: Context) -> None:
        try:
            if session_id == "s-0":
                await gate.wait()
        finally:
            if session_id == "s-0":
                await gate.wait()  # as what closes a connection to somebody who does not answer
        handed.append(session_id)

    settings = Settings(shards=2, idle_timeout_s=20, lease_s=0.05)
    async with store.memory(namespace, settings) as memory, asyncio.timeout(60):
        for number in range(3):
            await clock.run_at(T0 + number, memory.session(f"s-{number}").append(chat_message(1)))
        eviction = Eviction(memory.store, closing)
        assert await clock.run_at(T0 + 60_000, eviction.enforce()) == 2
        assert sorted(handed) == ["s-1", "s-2"]
        assert await memory.session("s-0").exists(), "nobody has its transcript"
        gate.set()
        assert await clock.run_at(T0 + 120_000, eviction.enforce()) == 1
        assert handed[-1] == "s-0"
