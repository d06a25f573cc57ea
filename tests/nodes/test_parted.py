"""Network partitions: real servers in network namespaces, and writers that wait for a replica.

The writers still reach the isolated primary of Sentinel, and not that of the cluster; in a nightly run, each is both.
Nothing acknowledged is lost, doubled or torn. `-s` prints the waiting times of the writers.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
from support import selection
from support.callers import Caller, open_caller
from support.campaign import EVERYTHING, ROUNDS, Row, print_rows, run_campaign, run_writers
from support.checks import until
from support.cluster_servers import ClusterServers
from support.network import Network, hosts
from support.redis_server import RedisServer
from support.sentinel_servers import SERVICE, SentinelServers
from support.stores import short_deadlines
from support.waiting import START_S, wait_until

from redismem import Settings, StoreUnavailable, Unconfirmed
from redismem.protocol.keys import Keys
from redismem.transport.nodes.slots import slot_of

CONFIRMING = Settings(shards=16, deadline_s=30, reply_timeout_s=1, confirm=1, confirm_timeout_s=0.5)
OPEN = ("--protected-mode", "no")
BOUND = ("--min-replicas-to-write", "1", "--min-replicas-max-lag", "2")
REPLICAS_COUNT = 2
NAMES = [f"user-{number}" for number in range(8)]
REACHES = {True: "the primary's host is cut off from the others", False: "and from the writers"}
pytestmark = pytest.mark.timeout(600)


def partitions(reaches: bool) -> list[tuple[bool, str]]:
    """Return this partition and its name; all partitions in a nightly run."""
    return [row for row in REACHES.items() if selection.EVERYTHING or row[0] == reaches]


class Deposed:
    """Pods that know only the sentinel on the isolated host, and so never learn of another primary."""

    def __init__(self, confirming: Caller, free: Caller) -> None:
        self._confirming = confirming
        self._free = free
        self.acked_count = 0
        """Appends that were acknowledged while no other host had them."""

    async def begin(self) -> None:
        for caller, name in ((self._confirming, "confirming"), (self._free, "free")):
            await caller.append_confirmed(name, "begun", REPLICAS_COUNT)

    async def until_refused(self) -> None:
        """Append until min-replicas-to-write makes the primary refuse."""

        async def is_refused() -> bool:
            return await self._outcome() == "NOREPLICAS"

        with self._impatient():
            refused = asyncio.ensure_future(until(is_refused))
            while not refused.done():
                assert not await self._is_confirmed()
            await refused

    async def _outcome(self) -> str:
        """Return the reason why one more append without confirm was refused; "" if it was accepted."""
        text = str(self.acked_count)
        try:
            await self._free.append("free", text, id=text)
        except StoreUnavailable as refused:
            return refused.reason
        self.acked_count += 1
        return ""

    async def _is_confirmed(self) -> bool:
        try:
            return bool(await self._confirming.append("confirming", "next", id="next"))
        except (StoreUnavailable, Unconfirmed):
            return False

    async def check_refused(self) -> None:
        with self._impatient():
            for _ in range(3):
                assert await self._outcome()
                assert not await self._is_confirmed()

    def _impatient(self) -> contextlib.AbstractContextManager[None]:
        """Shorten the deadlines: a primary without replicas refuses calls until theirs."""
        return short_deadlines(self._confirming.memory, self._free.memory)

    async def check_lost(self) -> int:
        """Return the number of missing messages: all that were unconfirmed, and no others."""
        await until(self._is_confirmed)
        assert await self._confirming.texts("confirming") == ["begun", "next"]
        assert await self._confirming.texts("free") == ["begun"], "whoever confirms is the new primary"
        return self.acked_count


@contextlib.asynccontextmanager
async def depose_primary(servers: SentinelServers, namespace: str) -> AsyncIterator[Deposed]:
    near = next(sentinel for sentinel in servers.sentinels if sentinel.host == servers.primary.host)
    url = f"redis+sentinel://{near.place}/{SERVICE}/0"
    unconfirmed = CONFIRMING.model_copy(update={"confirm": 0})
    async with (
        open_caller("blocking", url, namespace, CONFIRMING) as confirming,
        open_caller("asyncio", url, namespace, unconfirmed) as free,
    ):
        pods = Deposed(confirming, free)
        await pods.begin()
        yield pods


def names_on_each(servers: ClusterServers, keys: Keys) -> dict[str, set[str]]:
    """Return some session ids of each primary, by its place."""
    owners = servers.topology().owners
    found: dict[str, set[str]] = {}
    for number in range(200):
        name = f"user-{number}"
        names = found.setdefault(owners[slot_of(keys.session(name).state)], set())
        if len(names) < 3:
            names.add(name)
    return found


def until_promoted(servers: SentinelServers, lost: RedisServer) -> None:
    """Wait until the other sentinels name another primary, which says so itself."""
    others = [sentinel for sentinel in servers.sentinels if sentinel.host != lost.host]

    def is_over() -> bool:
        ports = {int(servers.describe_primary(sentinel)[b"port"]) for sentinel in others}
        return any(node.is_primary for node in servers.nodes if node is not lost and ports == {node.port})

    wait_until(is_over, "the promotion", START_S)


def heal(network: Network, servers: SentinelServers, lost: RedisServer) -> None:
    network.heal()
    servers.until_failed_over(lost)
    servers.mend()


@pytest.mark.nightly  # a cluster shows it nearly as well
async def test_sentinels_depose_a_primary_that_is_cut_off(tmp_path: Path, namespace: str) -> None:
    rows: dict[str, Row] = {}
    with hosts(3) as network:
        servers = SentinelServers(tmp_path, down_after_ms=2_000, options=(*BOUND, *OPEN), hosts=network.hosts)
        try:
            await asyncio.to_thread(servers.start)
            async with run_writers(servers.url, namespace, CONFIRMING, NAMES) as ledger:
                for reaches, kind in partitions(True):
                    ledger.confirm = REPLICAS_COUNT  # either may be promoted
                    await ledger.until_more(NAMES)
                    lost = servers.primary
                    others = [host for host in network.hosts if host != lost.host]
                    async with contextlib.AsyncExitStack() as stack:
                        pods = await stack.enter_async_context(depose_primary(servers, namespace)) if reaches else None
                        begun_s = time.monotonic()
                        network.part(lost.host, others if reaches else [*others, network.here])
                        if pods is not None:
                            await pods.until_refused()
                        await asyncio.to_thread(until_promoted, servers, lost)
                        ledger.confirm = 1  # the other is the primary now
                        await ledger.until_more(NAMES)
                        ledger.confirm = REPLICAS_COUNT
                        if pods is not None:
                            assert lost.is_primary, "it has heard of nothing"
                            await pods.check_refused()
                        await asyncio.to_thread(heal, network, servers, lost)
                        rows[kind] = ledger.row(begun_s, time.monotonic(), NAMES)
                        if pods is not None:
                            rows["the same, without confirm"] = Row(1, pods.acked_count, lost=await pods.check_lost())
        finally:
            servers.stop()
    print_rows("Sentinel", rows)


@pytest.mark.nightly
async def test_a_cluster_replaces_a_primary_that_is_cut_off(tmp_path: Path, namespace: str) -> None:
    keys, rows = Keys(namespace, CONFIRMING.shards), {}
    with hosts(4) as network:
        with_replicas = network.hosts[-1]
        servers = ClusterServers(tmp_path, node_timeout_ms=3_000, more=OPEN, hosts=network.hosts)
        try:
            await asyncio.to_thread(servers.start)
            names = set().union(*names_on_each(servers, keys).values())
            async with run_writers(servers.url, namespace, CONFIRMING, sorted(names)) as ledger:
                for reaches, kind in partitions(False):
                    await ledger.until_more(names)
                    lost = next(node for node in servers.primaries() if node.host != with_replicas)
                    hit = names & names_on_each(servers, keys)[lost.place]
                    others = [host for host in network.hosts if host != lost.host]
                    begun_s = time.monotonic()
                    network.part(lost.host, others if reaches else [*others, network.here])
                    parted_s = time.monotonic()
                    lost.is_stopped = True  # its own view does not matter any more
                    await ledger.until_more(names - hit)
                    await asyncio.to_thread(servers.until_failed_over, lost)
                    await ledger.until_more(names - hit)
                    # Neither the isolated primary nor its successor has a replica now.
                    assert ledger.appends_since(parted_s, hit) == []
                    network.heal()
                    await asyncio.to_thread(servers.bring_back, lost)
                    await ledger.until_more(names)
                    rows[kind] = ledger.row(begun_s, time.monotonic(), hit)
        finally:
            servers.stop()
    print_rows("Cluster", rows)


@pytest.mark.timeout(3_000)
@pytest.mark.skipif(not ROUNDS, reason="make faults has them together with what other processes do meanwhile")
async def test_sentinels_with_partitions(tmp_path: Path) -> None:
    with hosts(3) as network:
        servers = SentinelServers(tmp_path, down_after_ms=2_000, options=(*BOUND, *OPEN), hosts=network.hosts)

        async def part(reaches: bool) -> set[int]:
            lost = servers.primary
            others = [host for host in network.hosts if host != lost.host]
            network.part(lost.host, others if reaches else [*others, network.here])
            await asyncio.to_thread(until_promoted, servers, lost)
            await asyncio.to_thread(heal, network, servers, lost)
            return EVERYTHING

        async with run_campaign(servers, tmp_path) as campaign:
            print_rows(
                "Sentinel", await campaign.run({kind: partial(part, reaches) for reaches, kind in REACHES.items()})
            )


@pytest.mark.timeout(3_000)
@pytest.mark.skipif(not ROUNDS, reason="likewise")
async def test_a_cluster_with_partitions(tmp_path: Path) -> None:
    with hosts(4) as network:
        servers = ClusterServers(tmp_path, node_timeout_ms=3_000, more=OPEN, hosts=network.hosts)

        async def part(reaches: bool) -> set[int]:
            lost = random.choice(servers.primaries())
            owners = servers.topology().owners
            others = [host for host in network.hosts if host != lost.host]
            network.part(lost.host, others if reaches else [*others, network.here])
            lost.is_stopped = True
            await asyncio.to_thread(servers.until_failed_over, lost)
            network.heal()
            await asyncio.to_thread(servers.bring_back, lost)
            # It gets its place back: no host ever runs two primaries.
            lost.say("CLUSTER", "FAILOVER")
            await asyncio.to_thread(wait_until, lambda: lost in servers.primaries(), "that it is primary again")
            await asyncio.to_thread(servers.until_well)
            return {slot for slot, owner in enumerate(owners) if owner == lost.place}

        async with run_campaign(servers, tmp_path) as campaign:
            print_rows(
                "Cluster", await campaign.run({kind: partial(part, reaches) for reaches, kind in REACHES.items()})
            )
