"""Ticks with nothing to do ask Redis little, however many shards there are."""

from __future__ import annotations

import asyncio
from typing import Any

import redis.asyncio
from support.clock import Clock
from support.redis_server import RedisServer
from support.writers import Echo

from redismem import Memory, Settings
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
    # Per shard: 60 polls of overdue sessions, 8 of leases, 6 each of three kinds of evictions, 5 of the sweep, and
    # 15 of running turns.
    assert calls["zrangebyscore"] <= SHARDS * (60 + 8 + 18 + 5 + 15)
    assert calls["zscan"] == SHARDS * 5
    assert calls.get("exec", 0) < 10, "the sweep reads many shards in one round trip, without transactions"
