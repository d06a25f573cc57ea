"""A cluster that serves no slot because a primary without a replica is gone: calls fail with CLUSTERDOWN until it is
back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.callers import open_caller, session_ids_by_place
from support.checks import catch_unavailable, until
from support.cluster_servers import ClusterNode, ClusterServers
from support.http_service import numbered_message, serve_memory

from redismem import Settings

HASTY = Settings(shards=16, deadline_s=3, reply_timeout_s=1)
pytestmark = pytest.mark.timeout(300)


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


@pytest.mark.parametrize("kind", ["asyncio", "blocking"])
async def test_a_cluster_that_is_down(kind: str, servers: ClusterServers, namespace: str) -> None:
    async with (
        open_caller(kind, servers.url, namespace) as caller,
        open_caller(kind, servers.url, namespace, HASTY) as hasty,
    ):
        owners = servers.topology().owners
        names = session_ids_by_place(caller, owners)
        record = owners[caller.slot_of_record()]
        for (name,) in names.values():
            await caller.append(name, "a")
        gone = servers.node_at(next(place for place in names if place != record))
        (name,) = names[record]
        gone.kill()
        there = [node for node in servers.nodes if node is not gone]
        set_timeout(there, 1_000)  # and not before, even on a busy machine

        async def is_down() -> bool:
            return all(node.facts()["cluster_state"] == "fail" for node in there)

        await until(is_down)

        async def is_refused() -> bool:
            """A node that was just busy may have timed out instead."""
            return (await catch_unavailable(hasty.append(name, "b", id="b"))).reason == "CLUSTERDOWN"

        await until(is_refused)
        if kind == "asyncio":
            async with serve_memory(hasty.memory) as http:
                answer = await http.ask("POST", f"/v1/sessions/{name}/messages", json=numbered_message(1))
                assert (answer.status_code, answer.json()["reason"]) == (503, "CLUSTERDOWN")
        waiting = asyncio.ensure_future(caller.append(name, "b", id="b"))
        await asyncio.to_thread(gone.start)
        await waiting
        assert await caller.texts(name) == ["a", "b"]
