"""Faults under load: three producers and three workers, which are processes, while nodes are killed, stopped or
replaced.

`make faults` runs more rounds of each, and prints a row per kind of fault. No replica confirms appends here, so a
failover may lose acknowledged ones. The test counts and prints them, and the waiting times of calls, for the shards of
the faulty node and for the others.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from support.campaign import EVERYTHING, ROUNDS, print_rows, run_campaign, slot
from support.cluster_servers import ClusterNode, ClusterServers
from support.pods import own_sessions
from support.sentinel_servers import SentinelServers

NODE_TIMEOUT_MS = 1_500
pytestmark = pytest.mark.timeout(3_000)


class OnCluster:
    """The faults of a cluster. Each method returns the slots of its node."""

    def __init__(self, servers: ClusterServers) -> None:
        self._servers = servers

    def _some(self) -> tuple[ClusterNode, set[int]]:
        """Return a primary and its slots."""
        topology = self._servers.topology()
        place = random.choice(topology.primaries[:3])
        return self._servers.node_at(place), {slot for slot, owner in enumerate(topology.owners) if owner == place}

    async def kill(self) -> set[int]:
        node, slots = self._some()
        node.kill()
        await self._over(node)
        return slots

    async def stop(self) -> set[int]:
        node, slots = self._some()
        node.stop_process()
        await self._over(node)
        return slots

    async def _over(self, node: ClusterNode) -> None:
        await asyncio.to_thread(self._servers.until_failed_over, node)
        await asyncio.to_thread(self._servers.bring_back, node)

    async def move(self) -> set[int]:
        """Move busy slots to another node and back."""
        slots = {slot(name) for name in random.sample(own_sessions(0), 2)}
        for moving_slot in slots:
            source = self._servers.owner(moving_slot)
            target = next(node for node in self._servers.primaries() if node is not source)
            await asyncio.to_thread(self._servers.move, moving_slot, target)
            await asyncio.to_thread(self._servers.move, moving_slot, source)
        return slots

    async def flush(self) -> set[int]:
        for node in self._servers.nodes:
            await asyncio.to_thread(node.say, "SCRIPT", "FLUSH")
        return EVERYTHING

    async def new(self) -> set[int]:
        """Add a node, move a busy slot there and back, and remove the node."""
        each = slot(own_sessions(1)[0])
        source = self._servers.owner(each)
        node = await asyncio.to_thread(self._servers.new_node)
        await asyncio.to_thread(self._servers.move, each, node)
        await asyncio.to_thread(self._servers.move, each, source)
        await asyncio.to_thread(self._servers.forget, node)
        return {each}


@pytest.mark.nightly
async def test_a_cluster_with_bad_days(tmp_path: Path) -> None:
    servers = ClusterServers(tmp_path / "cluster", node_timeout_ms=NODE_TIMEOUT_MS)
    faults = OnCluster(servers)
    kinds = {
        "kill -9 of a primary": faults.kill,
        "busy slots move": faults.move,
        "SCRIPT FLUSH everywhere": faults.flush,
        "SIGSTOP of a primary": faults.stop,
        "a node comes and goes": faults.new,
    }
    async with run_campaign(servers, tmp_path) as campaign:
        rows = await campaign.run(dict(list(kinds.items())[: None if ROUNDS else 3]))
    if ROUNDS:
        print_rows("Cluster", rows)
    for kind in ("busy slots move", "SCRIPT FLUSH everywhere"):
        assert rows[kind].lost == 0


@pytest.mark.skipif(not ROUNDS, reason="test_sentinel.py has each fault by itself; make faults has them together")
async def test_sentinels_with_bad_days(tmp_path: Path) -> None:
    servers = SentinelServers(tmp_path / "sentinel", down_after_ms=2_000)

    async def remove_primary(how: str) -> set[int]:
        node = servers.primary
        getattr(node, how)()
        await asyncio.to_thread(servers.until_failed_over, node)
        await asyncio.to_thread(servers.mend)
        return EVERYTHING

    async def fail_over() -> set[int]:
        await asyncio.to_thread(servers.fail_over)
        await asyncio.to_thread(servers.mend)
        return EVERYTHING

    kinds: dict[str, Callable[[], Awaitable[set[int]]]] = {
        "kill -9 of the primary": lambda: remove_primary("kill"),
        "SIGSTOP of the primary": lambda: remove_primary("stop_process"),
        "planned failover": fail_over,
    }
    async with run_campaign(servers, tmp_path) as campaign:
        print_rows("Sentinel", await campaign.run(kinds))
