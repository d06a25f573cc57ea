"""Partial outages under pods with the fallback: affected sessions are degraded, nothing is lost, others notice nothing.

On a cluster without replicas one primary fails; behind sentinels the only one. Pods are processes. `make outages` runs
longer outages and prints their durations.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
from support.cluster_servers import ClusterNode, ClusterServers
from support.outages import NAMESPACE, PATIENT_S, SECONDS, Pods, outage
from support.pods import CHATS
from support.redis_server import RedisServer
from support.sentinel_servers import SentinelServers
from support.waiting import wait_until

from redismem.protocol.keys import Keys
from redismem.transport.nodes.slots import slot_of

KEYS = Keys(NAMESPACE, CHATS.shards)
NODE_TIMEOUT_MS = 1_500
WAYS = ("killed", "stopped")
# With everysec and a slow disk, Redis acknowledges up to two seconds of writes before it passes them to the kernel.
UNSYNCED = ("--appendfsync", "no")
pytestmark = [pytest.mark.timeout(600), pytest.mark.nightly]  # other tests show it in one process


class OnCluster:
    """The cluster, the pods, and the primary that fails: one that does not hold the namespace's record."""

    def __init__(self, servers: ClusterServers, folder: Path) -> None:
        self.servers = servers
        self.pods = Pods(folder, servers.url, fallback_after_s=PATIENT_S)
        owners = servers.topology().owners
        places = [owners[slot_of(shard.active)] for shard in KEYS.shards()]
        self.lost: ClusterNode = servers.node_at(
            next(place for place in places if place != owners[slot_of(KEYS.record)])
        )
        self._places = places

    def is_hit(self, session_id: str) -> bool:
        return self._places[KEYS.shard_of(session_id)] == self.lost.place

    async def begin(self, way: str) -> None:
        go(self.lost, way)

    async def begin_whole(self) -> None:
        """Make each node report the cluster as down, by taking the slots from one."""
        self.lost.kill()
        others = [node for node in self.servers.nodes if node is not self.lost]
        await asyncio.to_thread(
            wait_until, lambda: all(node.facts()["cluster_state"] == "fail" for node in others), "that it is down"
        )

    async def end(self) -> None:
        await asyncio.to_thread(self.servers.bring_back, self.lost)


def go(node: RedisServer, way: str) -> None:
    node.kill() if way == "killed" else node.stop_process()


@pytest.fixture
async def on_cluster(tmp_path: Path) -> AsyncIterator[OnCluster]:
    servers = ClusterServers(tmp_path / "cluster", node_timeout_ms=NODE_TIMEOUT_MS, replicas=False, more=UNSYNCED)
    scene = None
    try:
        await asyncio.to_thread(servers.start)
        scene = OnCluster(servers, tmp_path)
        yield scene
    finally:
        if scene is not None:
            await scene.pods.kill()
        servers.stop()


@pytest.mark.parametrize("seconds", SECONDS)
@pytest.mark.parametrize("way", WAYS)
async def test_on_a_cluster_only_affected_sessions_are_degraded(
    on_cluster: OnCluster, way: str, seconds: float
) -> None:
    # With one of three nodes down, a slow second one would leave the third without a majority, and it would refuse
    # calls too.
    on_cluster.servers.set_timeout(60_000)
    begin = partial(on_cluster.begin, way)
    row = await outage(on_cluster.pods, f"a primary {way}", seconds, begin, on_cluster.end, on_cluster.is_hit)
    print(f"\n{row}")  # noqa: T201 (with `make outages`)


@pytest.mark.parametrize("seconds", SECONDS)
async def test_a_cluster_that_is_down_as_a_whole_is_degraded(on_cluster: OnCluster, seconds: float) -> None:
    for node in on_cluster.servers.nodes:
        node.say("CONFIG", "SET", "cluster-require-full-coverage", "yes")
    row = await outage(on_cluster.pods, "all down for one", seconds, on_cluster.begin_whole, on_cluster.end)
    print(f"\n{row}")  # noqa: T201


@pytest.mark.parametrize("seconds", SECONDS)
@pytest.mark.parametrize("way", WAYS)
async def test_behind_sentinels_without_a_primary_all_is_degraded(tmp_path: Path, way: str, seconds: float) -> None:
    servers = SentinelServers(tmp_path / "sentinel", down_after_ms=1_000, nodes_count=1, options=UNSYNCED)
    pods = Pods(tmp_path, servers.url)

    async def begin() -> None:
        go(servers.nodes[0], way)

    async def end() -> None:
        await asyncio.to_thread(servers.mend)

    try:
        await asyncio.to_thread(servers.start)
        row = await outage(pods, f"the only primary {way}", seconds, begin, end)
        print(f"\n{row}")  # noqa: T201
    finally:
        await pods.kill()
        servers.stop()
