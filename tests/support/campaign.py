"""Campaigns of faults under producers and workers, which are processes, and the cost of each kind of fault."""

from __future__ import annotations

import asyncio
import contextlib
import os
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
from support.commands import wait_for_exit
from support.forks import Fork
from support.sentinel_servers import SentinelServers

ROUNDS = int(os.environ.get("FAULT_ROUNDS", "0"))
"""The number of rounds of each kind of fault. 0 makes one round, as an ordinary test."""
NAMESPACE = "faults"
EVERYTHING = set(range(16_384))
_KEYS = Keys(NAMESPACE, pods.CAMPAIGN.shards)
# Appends of each producer between two faults, so that the cost of a fault is not counted with the next one.
_BETWEEN_COUNT = 600 if ROUNDS else 40


def slot(session_id: str) -> int:
    return slot_of(_KEYS.session(session_id).state)


class Campaign:
    """The pods, their servers, and the faults so far."""

    def __init__(self, servers: ClusterServers | SentinelServers, folder: Path) -> None:
        self.servers = servers
        self._folder = folder
        self._faults: list[Fault] = []
        self.pods: list[Fork] = []

    def start(self) -> None:
        for number in range(pods.PRODUCERS_COUNT):
            given = (self.servers.url, NAMESPACE)
            self.pods.append(pods.start_pod("campaign-producer", *given, number, self._folder / f"pod-{number}"))
            self.pods.append(pods.start_pod("campaign-worker", *given))

    def read_appends(self) -> list[Any]:
        """Return session, text, start and end of each append."""
        ledgers = (self._folder / f"pod-{number}" for number in range(pods.PRODUCERS_COUNT))
        return [append for ledger in ledgers for append in pods.read_ledger(ledger)]

    async def until_more(self, count: int = _BETWEEN_COUNT) -> None:
        """Wait until each producer has `count` more acknowledged appends, and each session at least one."""
        since_s = time.monotonic()
        wanted = {name for number in range(pods.PRODUCERS_COUNT) for name in pods.own_sessions(number)}

        async def reached() -> bool:
            assert all(pod.poll() is None for pod in self.pods), "a pod has died"
            await asyncio.sleep(0.1)  # each poll reads all ledgers
            new = [append for append in self.read_appends() if append[2] > since_s]
            counts = Counter(append[1].partition(".")[0] for append in new)
            return {append[0] for append in new} >= wanted and min(counts.values()) >= count

        await until(reached, 300)

    async def run(self, kinds: Mapping[str, Callable[[], Awaitable[set[int]]]]) -> dict[str, Row]:
        """Inject each kind of fault in turn, round after round. A fault returns the slots that it hits."""
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
        """Stop the pods, check the stored messages, and return a row per kind of fault."""
        for pod in self.pods:
            assert pod.stdin is not None
            pod.stdin.close()
        for pod in self.pods:
            assert (await asyncio.to_thread(wait_for_exit, pod)).code == 0
        return self._rows(await self._lost_appends())

    async def _lost_appends(self) -> list[Any]:
        """Return the lost appends. Checks that all others exist once and in order, and that nothing is torn."""
        by_session: dict[str, list[Any]] = {}
        for append in self.read_appends():
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
            for session_id, _, begun_s, ended_s in self.read_appends():
                if begun_s < fault.ended_s and ended_s >= fault.begun_s:
                    row.acked += 1
                    if slot(session_id) in fault.slots:
                        row.hit_s = max(row.hit_s, ended_s - begun_s)
                    else:
                        row.healthy_s = max(row.healthy_s, ended_s - begun_s)
            # A fault loses appends acknowledged shortly before it, or before it was noticed.
            row.lost += sum(fault.begun_s - 1 <= append[3] <= fault.ended_s for append in lost)
        return rows


@contextlib.asynccontextmanager
async def run_campaign(servers: ClusterServers | SentinelServers, folder: Path) -> AsyncIterator[Campaign]:
    """Start servers and pods, and stop them at the end."""
    campaign = Campaign(servers, folder)
    try:
        await asyncio.to_thread(servers.start)
        campaign.start()
        yield campaign
    finally:
        for pod in campaign.pods:
            with pod:
                pod.kill()
        servers.stop()


@dataclass(slots=True)
class Row:
    """The cost of a kind of fault."""

    injected: int = 0
    acked: int = 0
    hit_s: float = 0.0
    healthy_s: float = 0.0
    lost: int = 0


@dataclass(slots=True)
class Fault:
    """An injected fault. `slots` are the slots of the node that it hit."""

    kind: str
    begun_s: float
    ended_s: float
    slots: set[int] = field(repr=False)


def print_rows(title: str, rows: dict[str, Row]) -> None:
    """Print a row per kind of fault."""
    head = "injected, acknowledged, lost, doubled, torn, longest stall of the hit shards, of the healthy ones"
    lines = [f"\n{title}: {head}"]
    for kind, row in rows.items():
        stalls = f"{row.hit_s:.1f} s | {row.healthy_s:.1f} s"
        lines.append(f"| {kind} | {row.injected} | {row.acked} | {row.lost} | 0 | 0 | {stalls} |")
    sys.stdout.write("\n".join(lines) + "\n")


_PACE_S = 0.05


class Append(NamedTuple):
    """An acknowledged append."""

    session_id: str
    number: int
    begun_s: float
    ended_s: float


class Ledger:
    """Writers with a session each, and their acknowledged appends. An append is retried with its id until then."""

    def __init__(self, memory: Memory, names: Sequence[str]) -> None:
        self._memory = memory
        self._names = names
        self._is_over = False
        self.confirm: int | None = None
        """The number of replicas that must confirm an append; `None` means that of the settings."""
        self.acked: list[Append] = []

    async def write(self, name: str) -> None:
        session, number, begun_s = self._memory.session(name), 0, time.monotonic()
        while not self._is_over:
            try:
                message = {"role": "user", "content": str(number)}
                receipt = await session.append(message, id=str(number), confirm=self.confirm)
            except (StoreUnavailable, Unconfirmed):
                await asyncio.sleep(_PACE_S)  # a refusal may come at once
                continue
            assert receipt.replicas, "acknowledged, and no replica has it"
            self.acked.append(Append(name, number, begun_s, time.monotonic()))
            await asyncio.sleep(_PACE_S)
            number, begun_s = number + 1, time.monotonic()

    def appends_since(self, begun_s: float, names: Collection[str]) -> list[Append]:
        """Return the appends to these sessions that began after that time."""
        return [append for append in self.acked if append.begun_s > begun_s and append.session_id in names]

    async def until_more(self, names: Collection[str], count: int = 10) -> None:
        """Wait until each of these sessions has `count` acknowledged appends that began after this call."""
        begun_s = time.monotonic()

        async def reached() -> bool:
            found = [append.session_id for append in self.appends_since(begun_s, names)]
            return all(found.count(name) >= count for name in names)

        await until(reached, 120)

    def end(self) -> None:
        """Stop each writer after its current append."""
        self._is_over = True

    async def check(self) -> None:
        """Check that all acknowledged appends exist once and in order, and that nothing is torn."""
        for name in self._names:
            messages = await self._memory.session(name).messages(include_originals=True)
            there = [int(str(message.content)) for message in messages]
            acked = [append.number for append in self.acked if append.session_id == name]
            # The last append may be stored without an acknowledgement.
            lost = sorted({*acked} - {*there})
            assert there in (acked, [*acked, len(acked)]), f"{name}: doubled, overtaken, or lost: {lost}"
        assert [violation async for violation in check(self._memory.store)] == [], "torn"

    def row(self, begun_s: float, ended_s: float, hit: Collection[str]) -> Row:
        """Return the cost of a fault to the appends acknowledged during it."""
        during = [append for append in self.acked if append.begun_s < ended_s and append.ended_s > begun_s]
        waited_s = {True: 0.0, False: 0.0}
        for append in during:
            is_hit = append.session_id in hit
            waited_s[is_hit] = max(waited_s[is_hit], append.ended_s - append.begun_s)
        return Row(1, len(during), waited_s[True], waited_s[False])


@contextlib.asynccontextmanager
async def run_writers(url: str, namespace: str, settings: Settings, names: Sequence[str]) -> AsyncIterator[Ledger]:
    """Run a writer per session over one memory, and check the stored messages at the end."""
    async with Memory.connect(url, namespace=namespace, settings=settings) as memory:
        ledger = Ledger(memory, names)
        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(ledger.write(name))
            yield ledger
            ledger.end()
        await ledger.check()
