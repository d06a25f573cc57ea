"""The choice among sentinels that disagree, and connections to a primary that the sentinels have deposed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.answering import AnsweringServer, primary_at
from support.redis_server import RedisServer

from redismem.concurrency.run_sync import run_without_loop
from redismem.transport.nodes.seeds import parse_sentinel
from redismem.transport.nodes.sentinel import BlockingSentinelLane, Sentinels
from redismem.transport.nodes.sides import LoopSide, T, Work


class InOrder(LoopSide):
    """The sentinels answer in the order of the URL."""

    async def first_results(self, works: Sequence[Work[T]], grace_s: float = 0) -> list[T]:
        return [await work() for work in works]


@pytest.mark.parametrize("epochs", [(1, 2), (2, 1), (9, 10), (10, 9)])
async def test_the_sentinel_that_knows_the_latest_failover_is_believed(epochs: tuple[int, int]) -> None:
    """Its primary is on the port with the number of the epoch."""
    first, second = (AnsweringServer(lambda _, epoch=epoch: primary_at(epoch, epoch)) for epoch in epochs)  # type: ignore[misc]
    async with first, second:
        places = parse_sentinel(f"redis+sentinel://127.0.0.1:{first.port},127.0.0.1:{second.port}/chats")
        sentinels = Sentinels(places, InOrder(60))
        assert (await sentinels.primary(60)).port == max(epochs)
        await sentinels.aclose()


async def test_blocking_callers_leave_idle_connections_to_a_deposed_primary(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    """The deposed one is cut off from the sentinels, so that it still takes itself for the primary."""
    successor = RedisServer(tmp_path / "successor").start()
    async with AnsweringServer(lambda _: primary_at(redis_server.port, 1)) as sentinel:
        places = parse_sentinel(f"redis+sentinel://127.0.0.1:{sentinel.port}/chats")
        lane = BlockingSentinelLane(places, max_connections=4)

        def port_asked() -> int:
            ((_, port),) = run_without_loop(lane.run([("CONFIG", "GET", "port")], 60))
            return int(port)

        def check() -> Any:
            return run_without_loop(lane._check_primary())

        try:
            assert await asyncio.to_thread(port_asked) == redis_server.port
            sentinel.answer = lambda _: primary_at(successor.port, 2)
            await asyncio.to_thread(check)
            assert await asyncio.to_thread(port_asked) == successor.port
        finally:
            await asyncio.to_thread(run_without_loop, lane.aclose())
            successor.stop()
