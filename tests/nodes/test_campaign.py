"""Bad days: three producers and three workers, real processes, while nodes are killed, stopped, moved and replaced.

`make faults` has more rounds of each, and prints a row for each kind of fault. What is acknowledged is not confirmed by
a replica here, so a failover may lose it: that is counted and shown, and so is how long calls have waited, for the
shards of the node that was hit and for the others.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from support import nodes_pod
from support.checks import until
from support.cluster_servers import ClusterNode, ClusterServers
from support.fault_rows import Fault, Row, show
from support.sentinel_servers import SentinelServers

from redismem import Memory
from redismem.inspection.check import check
from redismem.protocol.keys import Keys
from redismem.transport.topology import slot_of

ROUNDS = int(os.environ.get("FAULT_ROUNDS", "0"))
NAMESPACE = "faults"
KEYS = Keys(NAMESPACE, nodes_pod.SETTINGS.shards)
NODE_TIMEOUT_MS = 1_500
# Between two faults: so many more appends of each producer. What one has cost is not to be counted with the next.
_BETWEEN_COUNT = 600 if ROUNDS else 40
pytestmark = pytest.mark.timeout(3_000)


def slot(session_id: str) -> int:
    return slot_of(KEYS.session(session_id).state)


class Campaign:
    """The pods, and what was done to their servers."""

    def __init__(self, servers: ClusterServers | SentinelServers, folder: Path) -> None:
        self.servers = servers
        self._folder = folder
        self._faults: list[Fault] = []
        self.pods: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        for role in ("producer", "worker"):
            for number in range(nodes_pod.PRODUCERS):
                given = (role, self.servers.url, NAMESPACE, str(number), str(self._folder / f"pod-{number}"))
                command = [sys.executable, nodes_pod.__file__, *given]
                self.pods.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL))

    def acked(self) -> list[Any]:
        """Session, text, when it began and when it ended, of each append."""
        found = []
        for number in range(nodes_pod.PRODUCERS):
            path = self._folder / f"pod-{number}"
            lines = path.read_text().splitlines(keepends=True) if path.exists() else []
            found += [json.loads(line) for line in lines if line.endswith("\n")]
        return found

    async def until_more(self, count: int = _BETWEEN_COUNT) -> None:
        """Until each producer has had so many more appends acknowledged, and each session one at least."""
        since_s = time.monotonic()
        wanted = {name for number in range(nodes_pod.PRODUCERS) for name in nodes_pod.own(number)}

        async def reached() -> bool:
            assert all(pod.poll() is None for pod in self.pods), "a pod has died"
            await asyncio.sleep(0.1)
            new = [append for append in self.acked() if append[2] > since_s]
            counts = Counter(append[1].partition(".")[0] for append in new)
            return {append[0] for append in new} >= wanted and min(counts.values()) >= count

        await until(reached, 300)

    async def inject(self, kind: str, fault: Callable[[], Awaitable[set[int]]]) -> None:
        begun_s = time.monotonic()
        slots = await fault()
        await self.until_more()
        self._faults.append(Fault(kind, begun_s, time.monotonic(), slots))

    async def finish(self) -> dict[str, Row]:
        """Lets the pods end, checks what is there, and gives a row for each kind."""
        for pod in self.pods:
            assert pod.stdin is not None
            pod.stdin.close()
            pod.stdin = None
        for pod in self.pods:
            await asyncio.to_thread(pod.communicate, timeout=120)
            assert pod.returncode == 0
        return self._rows(await self._lost())

    async def _lost(self) -> list[Any]:
        """The appends that are not there; all others are, once and in order a producer, and nothing is torn."""
        by_session: dict[str, list[Any]] = {}
        for append in self.acked():
            by_session.setdefault(append[0], []).append(append)
        lost = []
        async with Memory.connect(self.servers.url, namespace=NAMESPACE, settings=nodes_pod.SETTINGS) as memory:
            for session_id, appends in by_session.items():
                messages = await memory.session(session_id).messages(include_originals=True)
                texts = Counter(str(message.content) for message in messages)
                assert max(texts.values(), default=1) == 1, "doubled"
                for number in range(nodes_pod.PRODUCERS):
                    own = [int(text.partition(".")[2]) for text in texts if text.startswith(f"{number}.")]
                    assert own == sorted(own), "overtaken"
                lost += [append for append in appends if append[1] not in texts]
                assert not (nodes_pod.CONFIRM and lost), "lost, though replicas had confirmed it"
            assert [violation async for violation in check(memory.store)] == [], "torn"
        return lost

    def _rows(self, lost: list[Any]) -> dict[str, Row]:
        rows: dict[str, Row] = {}
        for fault in self._faults:
            row = rows.setdefault(fault.kind, Row())
            row.injected += 1
            for session_id, _, begun_s, ended_s in self.acked():
                if begun_s < fault.ended_s and ended_s >= fault.begun_s:
                    row.acked += 1
                    if slot(session_id) in fault.slots:
                        row.hit_s = max(row.hit_s, ended_s - begun_s)
                    else:
                        row.healthy_s = max(row.healthy_s, ended_s - begun_s)
            # Lost is what was acknowledged shortly before it, or while nobody knew of it yet.
            row.lost += sum(fault.begun_s - 1 <= append[3] <= fault.ended_s for append in lost)
        return rows


@pytest.fixture
async def on_cluster(tmp_path: Path) -> AsyncIterator[Campaign]:
    servers = ClusterServers(tmp_path / "cluster", node_timeout_ms=NODE_TIMEOUT_MS)
    campaign = Campaign(servers, tmp_path)
    try:
        await asyncio.to_thread(servers.start)
        campaign.start()
        yield campaign
    finally:
        await _end(campaign)


@pytest.fixture
async def on_sentinel(tmp_path: Path) -> AsyncIterator[Campaign]:
    servers = SentinelServers(tmp_path / "sentinel", down_after_ms=2_000)
    campaign = Campaign(servers, tmp_path)
    try:
        await asyncio.to_thread(servers.start)
        campaign.start()
        yield campaign
    finally:
        await _end(campaign)


async def _end(campaign: Campaign) -> None:
    for pod in campaign.pods:
        pod.kill()
        await asyncio.to_thread(pod.communicate)
    campaign.servers.stop()


class OnCluster:
    """The faults of a cluster. Each gives the slots of the node that it hits."""

    def __init__(self, servers: ClusterServers) -> None:
        self._servers = servers

    def _some(self) -> tuple[ClusterNode, set[int]]:
        """A primary, and its slots."""
        topology = self._servers.topology()
        place = random.choice(topology.primaries[:3])
        return self._servers.at(place), {slot for slot, owner in enumerate(topology.owners) if owner == place}

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
        """Busy slots, to another node and back."""
        hit = {slot(name) for name in random.sample(nodes_pod.own(0), 2)}
        for each in hit:
            source = self._servers.owner(each)
            target = next(node for node in self._servers.primaries() if node is not source)
            await asyncio.to_thread(self._servers.move, each, target)
            await asyncio.to_thread(self._servers.move, each, source)
        return hit

    async def flush(self) -> set[int]:
        for node in self._servers.nodes:
            await asyncio.to_thread(node.say, "SCRIPT", "FLUSH")
        return set(range(16_384))

    async def new(self) -> set[int]:
        """A new node that takes a busy slot, gives it back, and is removed."""
        each = slot(nodes_pod.own(1)[0])
        source = self._servers.owner(each)
        node = await asyncio.to_thread(self._servers.new_node)
        await asyncio.to_thread(self._servers.move, each, node)
        await asyncio.to_thread(self._servers.move, each, source)
        await asyncio.to_thread(self._servers.forget, node)
        return {each}


async def test_a_cluster_with_bad_days(on_cluster: Campaign) -> None:
    servers = on_cluster.servers
    assert isinstance(servers, ClusterServers)
    faults = OnCluster(servers)
    kinds = {
        "kill -9 of a primary": faults.kill,
        "busy slots move": faults.move,
        "SCRIPT FLUSH everywhere": faults.flush,
        "SIGSTOP of a primary": faults.stop,
        "a node comes and goes": faults.new,
    }
    await on_cluster.until_more()
    for _ in range(max(1, ROUNDS)):
        for kind, fault in list(kinds.items())[: None if ROUNDS else 3]:
            await on_cluster.inject(kind, fault)
    rows = await on_cluster.finish()
    if ROUNDS:
        show("Cluster", rows)
    for kind in ("busy slots move", "SCRIPT FLUSH everywhere"):
        assert rows[kind].lost == 0


@pytest.mark.skipif(not ROUNDS, reason="test_sentinel.py has each fault by itself; make faults has them together")
async def test_sentinels_with_bad_days(on_sentinel: Campaign) -> None:
    servers = on_sentinel.servers
    assert isinstance(servers, SentinelServers)
    everything = set(range(16_384))

    async def gone(how: str) -> set[int]:
        node = servers.primary
        getattr(node, how)()
        await asyncio.to_thread(servers.until_failed_over, node)
        await asyncio.to_thread(servers.mend)
        return everything

    async def planned() -> set[int]:
        await asyncio.to_thread(servers.fail_over)
        await asyncio.to_thread(servers.mend)
        return everything

    kinds: dict[str, Callable[[], Awaitable[set[int]]]] = {
        "kill -9 of the primary": lambda: gone("kill"),
        "SIGSTOP of the primary": lambda: gone("stop_process"),
        "planned failover": planned,
    }
    await on_sentinel.until_more()
    for _ in range(max(1, ROUNDS)):
        for kind, fault in list(kinds.items())[: None if ROUNDS else 1]:
            await on_sentinel.inject(kind, fault)
    if ROUNDS:
        show("Sentinel", await on_sentinel.finish())
