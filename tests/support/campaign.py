"""A campaign of faults: three producers and three workers, real processes, and what the faults have cost them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from redismem import Memory, Settings, StoreUnavailable, Unconfirmed
from redismem.inspection.check import check
from redismem.protocol.keys import Keys
from redismem.transport.nodes.slots import slot_of
from support import pods
from support.checks import until
from support.cluster_servers import ClusterServers
from support.sentinel_servers import SentinelServers

ROUNDS = int(os.environ.get("FAULT_ROUNDS", "0"))
"""How often each kind of fault is made; 0: once, as a part of the tests, and not a campaign of its own."""
NAMESPACE = "faults"
EVERYTHING = set(range(16_384))
_KEYS = Keys(NAMESPACE, pods.CAMPAIGN.shards)
# Between two faults: so many more appends of each producer. What one has cost is not to be counted with the next.
_BETWEEN_COUNT = 600 if ROUNDS else 40


def slot(session_id: str) -> int:
    return slot_of(_KEYS.session(session_id).state)


class Campaign:
    """The pods, and what was done to their servers."""

    def __init__(self, servers: ClusterServers | SentinelServers, folder: Path) -> None:
        self.servers = servers
        self._folder = folder
        self._faults: list[Fault] = []
        self.pods: list[subprocess.Popen[str]] = []

    def start(self) -> None:
        for number in range(pods.PRODUCERS_COUNT):
            given = (self.servers.url, NAMESPACE)
            self.pods.append(pods.start_pod("campaign-producer", *given, number, self._folder / f"pod-{number}"))
            self.pods.append(pods.start_pod("campaign-worker", *given))

    def acked(self) -> list[Any]:
        """Session, text, when it began and when it ended, of each append."""
        ledgers = (self._folder / f"pod-{number}" for number in range(pods.PRODUCERS_COUNT))
        return [append for ledger in ledgers for append in pods.read_ledger(ledger)]

    async def until_more(self, count: int = _BETWEEN_COUNT) -> None:
        """Until each producer has had so many more appends acknowledged, and each session one at least."""
        since_s = time.monotonic()
        wanted = {name for number in range(pods.PRODUCERS_COUNT) for name in pods.own_sessions(number)}

        async def reached() -> bool:
            assert all(pod.poll() is None for pod in self.pods), "a pod has died"
            await asyncio.sleep(0.1)  # between two looks, as each reads all that was acknowledged
            new = [append for append in self.acked() if append[2] > since_s]
            counts = Counter(append[1].partition(".")[0] for append in new)
            return {append[0] for append in new} >= wanted and min(counts.values()) >= count

        await until(reached, 300)

    async def run(self, kinds: Mapping[str, Callable[[], Awaitable[set[int]]]]) -> dict[str, Row]:
        """Each kind of fault in turn, round for round. Each gives the slots that it hits."""
        await self.until_more()
        for _ in range(max(1, ROUNDS)):
            for kind, fault in kinds.items():
                await self._inject(kind, fault)
        return await self._finish()

    async def _inject(self, kind: str, fault: Callable[[], Awaitable[set[int]]]) -> None:
        begun_s = time.monotonic()
        slots = await fault()
        await self.until_more()
        self._faults.append(Fault(kind, begun_s, time.monotonic(), slots))

    async def _finish(self) -> dict[str, Row]:
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
        async with Memory.connect(self.servers.url, namespace=NAMESPACE, settings=pods.CAMPAIGN) as memory:
            for session_id, appends in by_session.items():
                messages = await memory.session(session_id).messages(include_originals=True)
                texts = Counter(str(message.content) for message in messages)
                doubled = [text for text, count in texts.items() if count > 1]
                assert not doubled, f"doubled in {session_id}: {doubled}"
                for number in range(pods.PRODUCERS_COUNT):
                    own = [int(text.partition(".")[2]) for text in texts if text.startswith(f"{number}.")]
                    assert own == sorted(own), "overtaken"
                lost += [append for append in appends if append[1] not in texts]
                assert not (pods.CONFIRM and lost), "lost, though replicas had confirmed it"
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


@contextlib.asynccontextmanager
async def campaign_on(servers: ClusterServers | SentinelServers, folder: Path) -> AsyncIterator[Campaign]:
    """Starts all, and ends all."""
    campaign = Campaign(servers, folder)
    try:
        await asyncio.to_thread(servers.start)
        campaign.start()
        yield campaign
    finally:
        for pod in campaign.pods:
            pod.kill()
            await asyncio.to_thread(pod.communicate)
        servers.stop()


@dataclass(slots=True)
class Row:
    """What a kind of fault came to."""

    injected: int = 0
    acked: int = 0
    hit_s: float = 0.0
    healthy_s: float = 0.0
    lost: int = 0


@dataclass(slots=True)
class Fault:
    """One that was injected. `slots`: of the node that was hit."""

    kind: str
    begun_s: float
    ended_s: float
    slots: set[int] = field(repr=False)


def show(title: str, rows: dict[str, Row]) -> None:
    """Prints a row a kind."""
    head = "injected, acknowledged, lost, doubled, torn, longest stall of the hit shards, of the healthy ones"
    lines = [f"\n{title}: {head}"]
    for kind, row in rows.items():
        stalls = f"{row.hit_s:.1f} s | {row.healthy_s:.1f} s"
        lines.append(f"| {kind} | {row.injected} | {row.acked} | {row.lost} | 0 | 0 | {stalls} |")
    sys.stdout.write("\n".join(lines) + "\n")


_PACE_S = 0.05


class Append(NamedTuple):
    """One that was acknowledged."""

    session_id: str
    number: int
    begun_s: float
    ended_s: float


class Ledger:
    """What is not acknowledged is sent again with its id, until it is."""

    def __init__(self, memory: Memory, names: Sequence[str]) -> None:
        self._memory = memory
        self._names = names
        self._is_over = False
        self.acked: list[Append] = []

    async def write(self, name: str) -> None:
        session, number, begun_s = self._memory.session(name), 0, time.monotonic()
        while not self._is_over:
            try:
                receipt = await session.append({"role": "user", "content": str(number)}, id=str(number))
            except (StoreUnavailable, Unconfirmed):
                await asyncio.sleep(_PACE_S)  # whoever is refused at once tries again soon
                continue
            assert receipt.replicas, "acknowledged, and no replica has it"
            self.acked.append(Append(name, number, begun_s, time.monotonic()))
            await asyncio.sleep(_PACE_S)
            number, begun_s = number + 1, time.monotonic()

    def since(self, begun_s: float, names: Collection[str]) -> list[Append]:
        """Appends to these sessions that began after that."""
        return [append for append in self.acked if append.begun_s > begun_s and append.session_id in names]

    async def until_more(self, names: Collection[str], count: int = 10) -> None:
        """Until so many more are acknowledged in each of these sessions that begin from now on."""
        begun_s = time.monotonic()

        async def reached() -> bool:
            found = [append.session_id for append in self.since(begun_s, names)]
            return all(found.count(name) >= count for name in names)

        await until(reached, 120, every_s=0.05)

    def end(self) -> None:
        """Each writer makes its last append."""
        self._is_over = True

    async def check(self) -> None:
        """All that was acknowledged is there, once and in order; nothing is torn."""
        for name in self._names:
            messages = await self._memory.session(name).messages(include_originals=True)
            there = [int(str(message.content)) for message in messages]
            acked = [append.number for append in self.acked if append.session_id == name]
            # The last one may have been made without anybody having been told.
            assert there in (acked, [*acked, len(acked)]), f"{name}: lost, doubled or overtaken"
        assert [violation async for violation in check(self._memory.store)] == [], "torn"

    def row(self, begun_s: float, ended_s: float, hit: Collection[str]) -> Row:
        """What a fault came to for those that were acknowledged meanwhile."""
        during = [append for append in self.acked if append.begun_s < ended_s and append.ended_s > begun_s]
        waited_s = {True: 0.0, False: 0.0}
        for append in during:
            is_hit = append.session_id in hit
            waited_s[is_hit] = max(waited_s[is_hit], append.ended_s - append.begun_s)
        return Row(1, len(during), waited_s[True], waited_s[False])


@contextlib.asynccontextmanager
async def writing(url: str, namespace: str, settings: Settings, names: Sequence[str]) -> AsyncIterator[Ledger]:
    """A writer for each of the names, over one memory; in the end all is checked."""
    async with Memory.connect(url, namespace=namespace, settings=settings) as memory:
        ledger = Ledger(memory, names)
        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(ledger.write(name))
            yield ledger
            ledger.end()
        await ledger.check()
