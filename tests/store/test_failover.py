"""A primary becomes a replica while its address leads to its successor: a failover by DNS or a virtual IP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import redis
import redis.asyncio
from support.checks import user
from support.proxy import Proxy
from support.redis_server import RedisServer

import redismem.blocking
from redismem import Memory, Settings

PATIENT = Settings(deadline_s=60)


@pytest.fixture
async def proxy(tmp_path: Path) -> AsyncIterator[Proxy]:
    """Leads to the old primary, until `fail_over`."""
    servers = [RedisServer(tmp_path / name).start() for name in ("old", "new")]

    def fail_over() -> None:
        with redis.Redis(port=servers[0].port) as client:
            client.replicaof("127.0.0.1", servers[1].port)
        proxy.lead_to(servers[1].port)

    async with Proxy(servers[0].port) as proxy:
        proxy.fail_over = fail_over  # type: ignore[attr-defined]
        yield proxy
    for server in servers:
        server.stop()


async def turns(proxy: Proxy, memory: Memory) -> None:
    session = memory.session("a")
    await asyncio.gather(*(memory.session(f"a-{number}").append(user(number)) for number in range(8)))
    proxy.fail_over()  # type: ignore[attr-defined]
    receipts = await asyncio.gather(*(session.append(user(number)) for number in range(8)))
    assert sorted(receipt.last_seq for receipt in receipts) == list(range(1, 9))


async def test_the_lane_finds_the_successor(proxy: Proxy) -> None:
    async with Memory.connect(proxy.url, settings=PATIENT) as memory:
        await turns(proxy, memory)


async def test_a_client_of_the_callers_finds_it_too(proxy: Proxy) -> None:
    async with (
        redis.asyncio.Redis.from_url(proxy.url) as client,
        Memory.connect(client=client, settings=PATIENT) as memory,
    ):
        await turns(proxy, memory)


async def test_blocking_callers_find_it_too(proxy: Proxy) -> None:
    def turn() -> int:
        with redismem.blocking.Memory.connect(proxy.url, settings=PATIENT) as memory:
            memory.session("a").append(user(1))
            proxy.fail_over()  # type: ignore[attr-defined]
            return memory.session("b").append(user(2)).last_seq

    assert await asyncio.to_thread(turn) == 1
