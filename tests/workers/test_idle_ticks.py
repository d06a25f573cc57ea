"""Ticks with nothing to do ask Redis little, however many shards there are, and find what becomes due in time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import redis.asyncio
from support.clock import T0, Clock
from support.redis_server import RedisServer
from support.writers import Echo, chat_message

from redismem import Memory, Settings
from redismem.protocol.owner.calls import SOON_MS, owner_keys, read_index
from redismem.recall.owner.upkeep import OwnerIndex
from redismem.workers.idle_windows import IDLE_MS, IdleWindows
from redismem.workers.owner_indexes import OwnerChecks
from redismem.workers.scheduler import Scheduler

SHARDS = 128
SETTINGS = Settings(shards=SHARDS, deadline_s=30, reply_timeout_s=30)


async def count_calls(client: Any) -> dict[str, int]:
    return {name.removeprefix("cmdstat_"): row["calls"] for name, row in (await client.info("commandstats")).items()}


async def test_a_minute_of_idle_ticks(redis_server: RedisServer, namespace: str, clock: Clock) -> None:
    async with (
        redis.asyncio.Redis(port=redis_server.port) as client,
        Memory.connect(redis_server.url, namespace=namespace, settings=SETTINGS, clock=clock) as memory,
    ):
        scheduler = Scheduler(memory.store, Echo())
        for count in range(61):
            if count == 1:
                before = await count_calls(client)
            clock.now_ms += 1_000
            await scheduler.tick()
            await asyncio.gather(*scheduler._running)
        after = await count_calls(client)
        await scheduler.stop()
    calls = {name: count - before.get(name, 0) for name, count in after.items()}
    assert calls["zcard"] == 0, "no shard has an owner, so none can have an idle session of one for five minutes"
    # Per shard: 60 polls of overdue sessions, 8 of leases, 6 each of three kinds of evictions, 5 of the sweep, and one
    # of the owners' indexes, where it was 6; and 15 of running turns.
    assert calls["zrangebyscore"] <= SHARDS * (60 + 8 + 18 + 5 + 1 + 15)
    assert calls["zscan"] == SHARDS * 4
    assert calls.get("exec", 0) < 10, "the sweep reads many shards in one round trip, without transactions"


@pytest.fixture
async def memory(redis_server: RedisServer, namespace: str, clock: Clock) -> Any:
    async with Memory.connect(redis_server.url, namespace=namespace, settings=SETTINGS, clock=clock) as memory:
        yield memory


async def test_an_index_is_checked_when_it_is_due_and_not_a_look_later(memory: Memory, clock: Clock) -> None:
    checks = OwnerChecks(memory.store)
    assert await checks.check_due() == 0
    clock.now_ms = T0 + 30_000
    session = memory.session("a", owner="ann")
    await session.append(chat_message(1, "walrus"))
    index = OwnerIndex(memory.store, "ann")
    await index.update("a", with_window=True)
    for later_ms, count in ((SOON_MS - 1, 0), (SOON_MS, 1), (SOON_MS + 1, 0)):
        clock.now_ms = T0 + 30_000 + later_ms
        assert await checks.check_due() == count, later_ms
    await index.note()
    clock.now_ms = T0
    assert await checks.check_due() == 0, "the clock was set back"
    clock.now_ms += 2 * SOON_MS + 31_000
    assert await checks.check_due() == 1


async def test_a_session_that_expires_soon_leaves_the_index_within_seconds(
    memory: Memory, redis_server: RedisServer, clock: Clock
) -> None:
    keys, of_session = owner_keys(memory.store.keys, "ann"), memory.store.keys.session("a")
    session = memory.session("a", owner="ann")
    await session.append(chat_message(1, "walrus"))
    await OwnerIndex(memory.store, "ann").update("a", with_window=True)
    checks, expires_ms = OwnerChecks(memory.store), T0 + memory.settings.idle_timeout_ms
    clock.now_ms = expires_ms - 20_000
    assert await checks.check_due() == 1
    async with redis.asyncio.Redis(port=redis_server.port) as raw:
        await raw.delete(of_session.messages, of_session.state)  # as an expiry does, which follows the clock of Redis
    clock.now_ms = expires_ms + 1_000
    assert await checks.check_due() == 1
    assert await memory.store.run(read_index(keys)) == {}


async def test_a_session_of_a_shard_without_owners_is_indexed_once_it_is_idle(memory: Memory, clock: Clock) -> None:
    windows = IdleWindows(memory.store)
    assert await windows.index() == 0
    clock.now_ms += 1
    await memory.session("a", owner="ann").append(chat_message(1, "walrus"))
    clock.now_ms += IDLE_MS
    assert await windows.index() == 0, "it is idle from the next millisecond on"
    clock.now_ms += 60_000
    assert await windows.index() == 1
