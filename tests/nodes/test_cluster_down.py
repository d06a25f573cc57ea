"""A cluster that serves no slot because a primary without a replica is gone: calls fail with CLUSTERDOWN until it is
back, or the fallback serves them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from time import monotonic

import pytest
from support.callers import PATIENT, Caller, open_caller, session_ids_by_place
from support.checks import until, until_unavailable
from support.cluster_servers import ClusterNode, ClusterServers
from support.http_service import numbered_message, serve_memory
from support.stores import short_deadlines

from redismem import StoreUnavailable
from redismem.protocol.server_errors import ConnectionLost
from redismem.transport.nodes.cluster import Cluster
from redismem.transport.nodes.seeds import parse_cluster
from redismem.transport.nodes.sides import LoopSide
from redismem.transport.nodes.slots import slot_of

KINDS = ("asyncio", "blocking")
WITH_FALLBACK = PATIENT.model_copy(update={"fallback_after_s": 60})


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[ClusterServers]:
    servers = ClusterServers(tmp_path, node_timeout_ms=60_000, replicas=False)
    try:
        servers.start()
        for node in servers.nodes:
            node.say("CONFIG", "SET", "cluster-require-full-coverage", "yes")
        yield servers
    finally:
        servers.stop()


def set_timeout(nodes: list[ClusterNode], node_timeout_ms: int) -> None:
    for node in nodes:
        node.say("CONFIG", "SET", "cluster-node-timeout", node_timeout_ms)


async def check_refused(caller: Caller, name: str, place: str) -> None:
    append = partial(caller.append, name, "b", id="b")
    with short_deadlines(caller.memory):
        await until_unavailable(append, "CLUSTERDOWN, a part of the cluster is down, and cluster-require-full-coverage")
        # The node would answer a PING: a probe must ask it for a key.
        caller.events.clear()
        for _ in range(3):
            await until_unavailable(append, "CLUSTERDOWN")
    assert set(caller.sent_counts()) == {0}
    assert caller.memory.health().away_nodes == (place,)


async def is_stored(caller: Caller, name: str) -> bool:
    try:
        return bool(await caller.append(name, "b", id="b"))
    except StoreUnavailable:
        return False


@contextlib.asynccontextmanager
async def callers(servers: ClusterServers, namespace: str) -> AsyncIterator[tuple[list[Caller], list[Caller], Caller]]:
    """Open callers that will be refused, callers that will wait, and one with the fallback."""
    async with contextlib.AsyncExitStack() as stack:

        async def of_each_kind() -> list[Caller]:
            opening = [open_caller(kind, servers.url, namespace) for kind in KINDS]
            return [await stack.enter_async_context(caller) for caller in opening]

        with_fallback = open_caller("asyncio", servers.url, namespace, WITH_FALLBACK, fallback=True)
        yield await of_each_kind(), await of_each_kind(), await stack.enter_async_context(with_fallback)


async def test_a_cluster_that_is_down(servers: ClusterServers, namespace: str) -> None:
    async with callers(servers, namespace) as (refused, waiting, degraded):
        owners = servers.topology().owners
        names = session_ids_by_place(degraded, owners, 2)
        record = owners[degraded.slot_of_record()]
        for each in (name for pair in names.values() for name in pair):
            await degraded.turn(each, "a")
        gone = servers.node_at(next(place for place in names if place != record))
        name, other = names[record]
        gone.kill()
        there = [node for node in servers.nodes if node is not gone]
        set_timeout(there, 1_000)  # and not before, even on a busy machine
        await until(lambda: all(node.facts()["cluster_state"] == "fail" for node in there))
        for caller in refused:
            await check_refused(caller, name, record)
        await check_refused_over_http(refused[0], name)
        with short_deadlines(degraded.memory):
            context = await degraded.turn(other, "b")
        assert context.degraded
        assert [message.content for message in context.messages] == ["a", "b"]
        appends = [asyncio.ensure_future(caller.append(name, "b", id="b")) for caller in waiting]
        await asyncio.to_thread(gone.start)
        await asyncio.gather(*appends)
        for caller in refused:
            await until(partial(is_stored, caller, name))
        assert await refused[0].texts(name) == ["a", "b"]
        await until(lambda: not degraded.memory.health().backlog_message_count)
        assert await waiting[0].texts(other) == ["a", "b"]


async def check_refused_over_http(caller: Caller, name: str) -> None:
    async with serve_memory(caller.memory) as http:

        async def is_refused() -> bool:
            """On a busy machine, a probe may time out instead."""
            answer = await http.ask("POST", f"/v1/sessions/{name}/messages", json=numbered_message(1))
            assert answer.status_code == 503
            return bool(answer.json()["reason"] == "CLUSTERDOWN")

        with short_deadlines(caller.memory):
            await until(is_refused)


async def test_a_node_that_just_failed_delays_the_replies_of_the_others_little(servers: ClusterServers) -> None:
    lanes = Cluster(parse_cluster(servers.url), LoopSide(60), reply_timeout_s=60)
    away, well = servers.primaries()[:2]
    keys = [
        next(key for key in map(str, range(100)) if servers.owner(slot_of(key.encode())) is node)
        for node in (away, well)
    ]
    away.stop_process()
    try:
        for timeout_s, within_s in ((0.5, 60), (8, 6)):
            begun = monotonic()
            lost, reply = await lanes.run_independent([("GET", key) for key in keys], timeout_s)
            assert (type(lost), reply) == (ConnectionLost, None)
            assert monotonic() - begun < within_s
    finally:
        away.go_on()
        await lanes.aclose()
