"""confirm=n on a cluster: the replicas of the node that owns the session confirm the append."""

from __future__ import annotations

import asyncio

import pytest
from support.callers import PATIENT, open_caller
from support.checks import until
from support.cluster_servers import ClusterServers

from redismem.transport.nodes.cluster import Cluster
from redismem.transport.nodes.seeds import parse_cluster
from redismem.transport.nodes.sides import LoopSide, ThreadSide
from redismem.transport.nodes.slots import slot_of
from redismem.transport.replicas import Wanted

KINDS = ("asyncio", pytest.param("blocking", marks=pytest.mark.nightly))
CONFIRMING = PATIENT.model_copy(update={"confirm": 1, "confirm_timeout_s": 30, "reply_timeout_s": 30})


@pytest.mark.parametrize("kind", KINDS)
async def test_a_cluster_confirms_also_where_a_slot_has_moved(
    kind: str, cluster_servers: ClusterServers, namespace: str
) -> None:
    async with open_caller(kind, cluster_servers.url, namespace, CONFIRMING) as caller:
        source = cluster_servers.owner(caller.slot("user-42"))
        target = next(node for node in cluster_servers.primaries() if node is not source)
        assert (await caller.append("user-42", "a")).replicas == 1
        cluster_servers.move(caller.slot("user-42"), target)
        try:
            for text in ("b", "c"):
                assert (await caller.append("user-42", text)).replicas == 1
            assert await caller.texts("user-42") == ["a", "b", "c"]
        finally:
            cluster_servers.move(caller.slot("user-42"), source)


@pytest.mark.parametrize("kind", KINDS)
async def test_the_replicas_of_an_importing_node_confirm(
    kind: str, cluster_servers: ClusterServers, namespace: str
) -> None:
    key, wanted = f"{{{namespace}}}:list".encode(), Wanted(1, 30)
    side = LoopSide(60) if kind == "asyncio" else ThreadSide(16)
    lanes = Cluster(parse_cluster(cluster_servers.url), side, reply_timeout_s=60)
    source = cluster_servers.owner(slot_of(key))
    target = next(node for node in cluster_servers.primaries() if node is not source)
    cluster_servers.begin_move(slot_of(key), source, target)
    try:
        assert await lanes.run_confirmed([("RPUSH", key, "a")], 60, None, wanted) == [1, 1]
        turn = [("RPUSH", key, "b"), ("LRANGE", key, 0, -1)]
        assert await lanes.run_confirmed(turn, 60, None, wanted) == [2, [b"a", b"b"], 1]
    finally:
        cluster_servers.end_move(slot_of(key), target)
        cluster_servers.move(slot_of(key), source)
        await lanes.aclose()


async def test_a_topology_refresh_does_not_cut_off_a_wait_for_replicas(
    cluster_servers: ClusterServers, namespace: str
) -> None:
    """The importing node owns no slot yet, so a refresh of the topology finds no reason to keep its lane."""
    key = f"{{{namespace}}}:list".encode()
    lanes = Cluster(parse_cluster(cluster_servers.url), LoopSide(60), reply_timeout_s=60)
    source = cluster_servers.owner(slot_of(key))
    new = await asyncio.to_thread(cluster_servers.new_node)

    async def is_waiting() -> bool:
        return b"blocked_clients:1" in new.say("INFO", "clients")

    try:
        cluster_servers.begin_move(slot_of(key), source, new)
        call = asyncio.ensure_future(lanes.run_confirmed([("RPUSH", key, "a")], 60, None, Wanted(1, 60)))
        await until(is_waiting)
        await lanes._nodes._refresh(60)
        assert new.place not in lanes.places
        (waiting,) = [line for line in new.say("CLIENT", "LIST").splitlines() if b" cmd=wait " in line]
        new.say("CLIENT", "UNBLOCK", waiting.split()[0].removeprefix(b"id="))  # as if its timeout had passed
        assert await call == [1, 0]
    finally:
        cluster_servers.move(slot_of(key), new)
        cluster_servers.move(slot_of(key), source)
        cluster_servers.forget(new)
        await lanes.aclose()
