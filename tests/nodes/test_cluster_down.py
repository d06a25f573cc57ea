"""A cluster that serves no slot because a primary without a replica is gone: refused with its word, and back again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.callers import calling, on_each
from support.checks import unavailable, until
from support.cluster_servers import ClusterServers
from support.http_service import said, served

from redismem import Settings, StoreUnavailable

SETTINGS = Settings(shards=16, deadline_s=2, reply_timeout_s=0.5)
pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[ClusterServers]:
    servers = ClusterServers(tmp_path, node_timeout_ms=1_000, replicas=False)
    try:
        servers.start()
        for node in servers.nodes:
            node.say("CONFIG", "SET", "cluster-require-full-coverage", "yes")
        yield servers
    finally:
        servers.stop()


@pytest.mark.parametrize("kind", ["asyncio", "blocking"])
async def test_a_cluster_that_is_down(kind: str, servers: ClusterServers, namespace: str) -> None:
    async with calling(kind, servers.url, namespace, SETTINGS) as caller:
        owners = servers.topology().owners
        names = on_each(caller, owners)
        record = owners[caller.slot_of_record()]
        for (name,) in names.values():
            await caller.append(name, "a")
        gone = servers.at(next(place for place in names if place != record))
        (name,) = names[record]
        gone.kill()

        async def is_down() -> bool:
            return all(node.facts()["cluster_state"] == "fail" for node in servers.nodes if node is not gone)

        await until(is_down)
        refused = await unavailable(caller.append(name, "b", id="b"))
        assert (refused.reason, refused.may_be_done) == ("CLUSTERDOWN", False)
        if kind == "asyncio":
            async with served(caller.memory) as http:
                answer = await http.ask("POST", f"/v1/sessions/{name}/messages", json=said(1))
                assert (answer.status_code, answer.json()["reason"]) == (503, "CLUSTERDOWN")
        await asyncio.to_thread(gone.start)

        async def is_back() -> bool:
            try:
                return bool(await caller.append(name, "b", id="b"))
            except StoreUnavailable:
                return False

        await until(is_back)
        assert await caller.texts(name) == ["a", "b"]
