"""Subscriptions on a cluster and behind sentinels: slots that move, and primaries that die or hand over."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

import pytest
from support.checks import until
from support.cluster_servers import ON_DEMAND, ClusterServers
from support.redis_server import RedisServer
from support.sentinel_servers import SentinelServers
from support.subscribed import Hearer, links_count, publish, subscribed, subscribers_count

from redismem.protocol.server_errors import ConnectionLost, ServerError
from redismem.transport.base import Transport
from redismem.transport.nodes.slots import slot_of
from redismem.transport.subscriptions.subscriptions import Subscriptions

NODE_TIMEOUT_MS = 60_000
NIGHTLY = [pytest.param(how, marks=pytest.mark.nightly) for how in ("cut off", "hand over", "stop_process")]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterServers]:
    """A cluster that fails over only on command, not because this machine is busy."""
    servers = ClusterServers(tmp_path_factory.mktemp("cluster"), node_timeout_ms=NODE_TIMEOUT_MS, more=ON_DEMAND)
    try:
        yield servers.start()
    finally:
        servers.stop()


@pytest.fixture(scope="module")
def sentinels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SentinelServers]:
    """Sentinels that fail over only on command."""
    servers = SentinelServers(tmp_path_factory.mktemp("sentinel"), down_after_ms=60_000)
    try:
        yield servers.start()
    finally:
        servers.stop()


@pytest.fixture(autouse=True)
def well(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "sentinels" in request.fixturenames:
        request.getfixturevalue("sentinels").mend()
        return
    servers: ClusterServers = request.getfixturevalue("cluster")
    servers.set_timeout(1_000)  # nodes tell each other changes sooner
    servers.until_well()
    servers.set_timeout(NODE_TIMEOUT_MS)


async def publish_until_heard(transport: Transport, name: bytes, hearer: Hearer, payload: bytes) -> None:
    """Publish the message until the listener has it: a node that dies takes the call, or a gap hides the message."""

    async def is_heard() -> bool:
        with contextlib.suppress(ConnectionLost, ServerError):
            await publish(transport, name, payload)
        return payload in hearer.payloads

    await until(is_heard)


class Heard:
    """A channel on each primary of a cluster, each with a listener."""

    def __init__(self, subscriptions: Subscriptions, transport: Transport, servers: ClusterServers) -> None:
        self.subscriptions, self.transport = subscriptions, transport
        owners, names = servers.topology().owners, [b"rm:{%d}:live:a" % number for number in range(100)]
        self.hearers = {name: Hearer() for name in {owners[slot_of(name)]: name for name in names}.values()}
        self.place_of = {name: owners[slot_of(name)] for name in self.hearers}

    async def until_heard(self, payload: bytes) -> None:
        """Publish a message to each channel until its listener has it."""
        for name, hearer in self.hearers.items():
            await publish_until_heard(self.transport, name, hearer, payload)

    def gaps(self) -> dict[bytes, int]:
        """Return the channels whose listeners had to read, each with the number of gaps."""
        return {name: hearer.gaps_count for name, hearer in self.hearers.items() if hearer.gaps_count}


@pytest.fixture(params=["", pytest.param("?protocol=3", marks=pytest.mark.nightly)], ids=["RESP2", "RESP3"])
async def heard(request: pytest.FixtureRequest, cluster: ClusterServers) -> AsyncIterator[Heard]:
    async with subscribed(cluster.url + request.param) as (subscriptions, transport):
        heard = Heard(subscriptions, transport, cluster)
        assert all([await subscriptions.add(name, hearer) for name, hearer in heard.hearers.items()])
        await heard.until_heard(b"first")
        yield heard


async def test_a_channel_follows_its_slot(heard: Heard, cluster: ClusterServers) -> None:
    (moved, *_), nodes = heard.hearers, cluster.primaries()
    source = cluster.owner(slot_of(moved))
    target = next(node for node in nodes if node is not source)
    assert [links_count(node) for node in nodes] == [1, 1, 1]
    await asyncio.to_thread(cluster.move, slot_of(moved), target)
    try:
        await until(lambda: heard.gaps() and heard.subscriptions.is_on(moved))
        assert heard.gaps() == {moved: 1}
        assert (subscribers_count(target, moved), links_count(target)) == (1, 1), "over the connection of that node"
        await heard.until_heard(b"moved")
        late, hearer = moved + b"2", Hearer()  # the topology knows it now
        assert await heard.subscriptions.add(late, hearer)
    finally:
        await asyncio.to_thread(cluster.move, slot_of(moved), source)
    await until(lambda: subscribers_count(source, moved) == 1)


async def test_a_channel_whose_slot_has_moved_before_is_found(cluster: ClusterServers) -> None:
    """The first node that is asked names the right one."""
    async with subscribed(cluster.url) as (subscriptions, transport):
        await publish(transport, b"{a}", b"the topology is known")
        source = cluster.owner(slot_of(b"{a}"))
        target = next(node for node in cluster.primaries() if node is not source)
        await asyncio.to_thread(cluster.move, slot_of(b"{a}"), target)
        try:
            assert await subscriptions.add(b"{a}", Hearer())
            assert subscribers_count(target, b"{a}") == 1
        finally:
            await asyncio.to_thread(cluster.move, slot_of(b"{a}"), source)


async def test_a_dead_primary_costs_only_its_own_channels_a_gap(heard: Heard, cluster: ClusterServers) -> None:
    lost, *_ = heard.hearers
    node = cluster.node_at(heard.place_of[lost])
    node.kill()
    try:
        await until(lambda: heard.gaps() == {lost: 1})
        assert not heard.subscriptions.is_on(lost), "its listener polls"
        await asyncio.to_thread(cluster.fail_over, node)
        await until(lambda: heard.subscriptions.is_on(lost))
        await heard.until_heard(b"second")
        assert heard.gaps()[lost] > 1
        assert list(heard.gaps()) == [lost]
    finally:
        await asyncio.to_thread(cluster.bring_back, node)


async def test_a_planned_failover_of_a_cluster_is_followed(heard: Heard, cluster: ClusterServers) -> None:
    handed, *_ = heard.hearers
    node = cluster.node_at(heard.place_of[handed])
    successor = await asyncio.to_thread(cluster.hand_over, node)
    await until(lambda: subscribers_count(successor, handed) == 1)
    await heard.until_heard(b"second")
    assert list(heard.gaps()) == [handed]
    await until(lambda: subscribers_count(node, handed) == 0)


@pytest.mark.parametrize("how", ["kill", *NIGHTLY])
async def test_the_new_primary_of_sentinels_is_followed(how: str, sentinels: SentinelServers) -> None:
    hearer, was = Hearer(), sentinels.primary
    async with subscribed(sentinels.url) as (subscriptions, transport):
        assert await subscriptions.add(b"a", hearer)
        await publish(transport, b"a", b"first")
        await until(lambda: hearer.payloads == [b"first"])
        sentinels.until_in_step()
        if how == "cut off":
            sentinels.cut_off(was)
        elif how != "hand over":
            getattr(was, how)()
        try:
            await asyncio.to_thread(sentinels.fail_over)
            primary: RedisServer = sentinels.primary
            await until(lambda: subscribers_count(primary, b"a") == 1 and subscriptions.is_on(b"a"))
            assert hearer.gaps_count
            await publish_until_heard(transport, b"a", hearer, b"second")
        finally:
            if how == "cut off":
                sentinels.join(was)


async def test_sentinels_that_are_away_end_no_subscription(sentinels: SentinelServers) -> None:
    hearer, late = Hearer(), Hearer()
    primary = sentinels.primary
    async with subscribed(sentinels.url) as (subscriptions, _):
        assert await subscriptions.add(b"a", hearer)
        for sentinel in sentinels.sentinels:
            sentinel.stop()
        try:
            assert not await subscriptions.add(b"b", late), "nobody names its node"
            primary.say("SPUBLISH", "a", "x")
            await until(lambda: hearer.payloads == [b"x"])
            assert subscriptions.is_on(b"a")
        finally:
            await asyncio.to_thread(sentinels.mend)
        await until(lambda: late.gaps_count)
        assert subscriptions.is_on(b"b")
        assert hearer.gaps_count == 0
