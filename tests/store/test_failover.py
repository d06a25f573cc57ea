"""A primary becomes a replica, and its address leads to its successor: a failover by DNS or virtual IP."""

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


class Failover(Proxy):
    """An address that leads to the old primary until `fail_over`."""

    successor_port: int

    def fail_over(self) -> None:
        with redis.Redis(port=self._server_port) as client:
            client.replicaof("127.0.0.1", self.successor_port)
        self.lead_to(self.successor_port)


@pytest.fixture
async def proxy(tmp_path: Path) -> AsyncIterator[Failover]:
    servers = [RedisServer(tmp_path / name).start() for name in ("old", "new")]
    async with Failover(servers[0].port) as proxy:
        proxy.successor_port = servers[1].port
        yield proxy
    for server in servers:
        server.stop()


async def turns(proxy: Failover, memory: Memory) -> None:
    session = memory.session("a")
    await asyncio.gather(*(memory.session(f"a-{number}").append(user(number)) for number in range(8)))
    proxy.fail_over()
    receipts = await asyncio.gather(*(session.append(user(number)) for number in range(8)))
    assert sorted(receipt.last_seq for receipt in receipts) == list(range(1, 9))


async def test_the_lane_finds_the_successor(proxy: Failover) -> None:
    async with Memory.connect(proxy.url, settings=PATIENT) as memory:
        await turns(proxy, memory)


async def test_a_provided_client_finds_the_successor_too(proxy: Failover) -> None:
    async with (
        redis.asyncio.Redis.from_url(proxy.url) as client,
        Memory.connect(client=client, settings=PATIENT) as memory,
    ):
        await turns(proxy, memory)


async def test_blocking_callers_find_it_too(proxy: Failover) -> None:
    def turn() -> int:
        with redismem.blocking.Memory.connect(proxy.url, settings=PATIENT) as memory:
            memory.session("a").append(user(1))
            proxy.fail_over()
            return memory.session("b").append(user(2)).last_seq

    assert await asyncio.to_thread(turn) == 1
