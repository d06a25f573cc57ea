"""Depths of a namespace: of many shards in small round trips, and with the workers that poll them."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.checks import catch_unavailable, until
from support.cluster_servers import ClusterServers
from support.redis_server import free_port

from redismem import Memory, Policy, Queues, Settings
from redismem.context.info import QUEUES, Depth
from redismem.events import Event
from redismem.store.depths import depths_of
from redismem.workers.scheduler import Scheduler


async def test_depths_of_many_shards_are_read_in_parts(store: Any, namespace: str, raw: Any) -> None:
    events: list[Event] = []
    async with store.memory(namespace, Settings(shards=256), on_event=events.append) as memory:
        for number in range(300):
            name = f"s-{number}"
            await raw.zadd(memory.store.keys.session(name).shard.dead, {name: 1_000_000 - number})
        await memory.session("a").merge({"x": 1})
        events.clear()
        depths = await depths_of(memory.store)
    assert (len(depths.shards), depths.sessions_count, depths.fences) == (256, 1, 1)
    assert (depths.total("dead").count, depths.total("dead").first_ms) == (300, 1_000_000 - 299)
    assert [event.op for event in events].count("depths") == 3


async def test_queues_report_lags_and_who_polls(store: Any, namespace: str, clock: Any) -> None:
    async with store.memory(namespace, Settings(threshold=4, recent_limit=2, max_sessions=7)) as memory:
        none = Depth(0, None)
        expected = Queues(namespace, clock.now_ms, 0, 7, none, none, none, none, ticked_ms=None, process_count=0)
        assert await memory.queues() == expected
        for name in ("a", "b"):
            await memory.session(name).append(*({"role": "user", "content": "x"} for _ in range(5)))
        begun_ms = clock.now_ms
        clock.now_ms += 90_000
        queues = await memory.queues()
        assert (queues.session_count, queues.overdue, queues.tick_age_ms) == (2, Depth(2, begun_ms), None)
        assert [queues.lag_ms(queue) for queue in QUEUES] == [90_000, 0, 0, 0]
        with pytest.raises(ValueError, match="overdue, leased"):
            queues.lag_ms("active")
        pods = [Scheduler(memory.store), Scheduler(memory.store)]
        for pod in pods:
            await pod.tick()
            await asyncio.gather(*pod._running)
        clock.now_ms += 2_000
        queues = await memory.queues()
        assert (queues.overdue.count, queues.tick_age_ms, queues.process_count) == (0, 2_000, 2)
        for pod in pods:
            await pod.start()
            await until(partial(has_ticked, pod))
            await pod.stop()
        assert (await memory.queues()).process_count == 0


async def has_ticked(pod: Scheduler) -> bool:
    return pod._tick_count > 1


async def test_exempt_sessions_do_not_count_for_the_limit(store: Any, namespace: str) -> None:
    async with store.memory(namespace, Settings(max_sessions=1)) as memory:
        for name in ("a", "b"):
            await memory.session(name, policy=Policy(exempt=name == "b")).append({"role": "user", "content": "x"})
        assert (await memory.queues()).session_count == 1
        assert (await depths_of(memory.store)).over == 0


async def test_queues_of_an_unreachable_redis_raise() -> None:
    memory = Memory.connect(f"redis://127.0.0.1:{free_port()}/0", settings=Settings(deadline_s=0.05))
    await catch_unavailable(memory.queues())
    await memory.aclose()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", [0, *(pytest.param(number, marks=pytest.mark.nightly) for number in (1, 2))])
async def test_without_a_node_the_queues_are_degraded_and_wait_for_nothing(
    tmp_path: Path, namespace: str, number: int
) -> None:
    """One node has the ticks, and the first one answers commands without a key. A wait would outlast the test."""
    servers = ClusterServers(tmp_path, node_timeout_ms=600_000, replicas=False)
    settings = Settings(shards=16, deadline_s=120, reply_timeout_s=120)
    try:
        await asyncio.to_thread(servers.start)
        async with Memory.connect(servers.url, namespace=namespace, settings=settings) as memory:
            for name in range(30):
                await memory.session(f"s-{name}").append({"role": "user", "content": "x"})
            queues = await memory.queues()
            assert (queues.session_count, queues.degraded) == (30, False)
            transport: Any = memory.store.transport
            lane = transport._nodes.lane(servers.nodes[number].place)
            servers.nodes[number].kill()
            await until(lambda: lane._connection is None)
            async with asyncio.timeout(60):
                for _ in range(3):
                    queues = await memory.queues()
                    assert (0 < queues.session_count < 30, queues.degraded) == (True, True)
    finally:
        servers.stop()
