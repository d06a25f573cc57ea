"""`doctor` and `deploy` on several nodes."""

from __future__ import annotations

import asyncio
import re

import pytest
from support.callers import open_caller, session_ids_by_place
from support.cluster_servers import ClusterServers

from redismem import Memory
from redismem.concurrency.run_sync import run_without_loop
from redismem.inspection.doctor import examine
from redismem.inspection.loading import load_scripts, scripts_count
from redismem.inspection.servers import drop_keys
from redismem.protocol import scripts
from redismem.protocol.call import Call


async def test_the_doctor_reports_each_node(cluster_servers: ClusterServers, namespace: str) -> None:
    async with open_caller("asyncio", cluster_servers.url, namespace) as caller:
        names = session_ids_by_place(caller, cluster_servers.topology().owners)
        for (name,) in names.values():
            await caller.append(name, "a")
        (found,) = [each for each in await examine(caller.store, embedded=False) if each.name == "nodes"]
    nodes = re.findall(r"(\S+): (\d+) shards, (\d+) session, \S+ [A-Z]\w+ used", found.text)
    assert {place for place, _, _ in nodes} == names.keys()
    assert sum(int(shards) for _, shards, _ in nodes) == 16
    assert max(int(shards) for _, shards, _ in nodes) <= 6, "a third of sixteen"
    assert [sessions for _, _, sessions in nodes] == ["1", "1", "1"]


async def test_the_doctor_reports_a_single_node_that_would_drop_keys(
    cluster_servers: ClusterServers, namespace: str
) -> None:
    async with open_caller("asyncio", cluster_servers.url, namespace) as caller:
        assert not await drop_keys(caller.store)
        for node in cluster_servers.primaries():
            node.say("CONFIG", "SET", "maxmemory-policy", "allkeys-lfu", "maxmemory", "1gb")
            try:
                assert await drop_keys(caller.store)
                (found,) = [each for each in await examine(caller.store, embedded=False) if each.name == "memory"]
                assert (found.verdict, "evicts single keys" in found.advice) == ("fail", True)
            finally:
                node.say("CONFIG", "SET", "maxmemory-policy", "noeviction", "maxmemory", "0")


async def test_conversations_of_an_owner_are_found_on_every_node(
    cluster_servers: ClusterServers, namespace: str
) -> None:
    async with open_caller("asyncio", cluster_servers.url, namespace) as caller:
        names = [name for (name,) in session_ids_by_place(caller, cluster_servers.topology().owners).values()]
        async with Memory.connect(cluster_servers.url, namespace=namespace, settings=caller.store.settings) as memory:
            for name in names:
                await memory.session(name, owner="ann").append({"role": "user", "content": "The hinge broke."})
            found = await memory.session("new", owner="ann").recall("hinge", scope="owner")
            assert sorted(str(message.session_id) for message in found) == sorted(names)
            assert len(names) == 3
            assert (await memory.forget(owner="ann")).session_count == 3


async def test_a_person_is_forgotten_on_every_node(cluster_servers: ClusterServers, namespace: str) -> None:
    async with Memory.connect(cluster_servers.url, namespace=namespace) as memory:
        for number in range(40):
            owner = "ann" if number % 2 else "bob"
            await memory.session(f"s-{number}", owner=owner).append({"role": "user", "content": "hello"})
        (broken, *_) = names = [f"s-{number}" for number in range(1, 40, 2)]
        keys = memory.store.keys.session(broken)
        await memory.store.run(Call(broken, (("HSET", keys.state, "counters", "broken"),), int))
        assert await memory.session(broken).set_aside()
        forgotten = await memory.forget(owner="ann")
        assert (forgotten.session_count, forgotten.quarantined_count) == (len(names) - 1, 1)
        assert forgotten.proven_ms is not None
        assert await memory.count() == 20
        assert (await memory.forget(prefix="s-")).session_count == 20
    for node in cluster_servers.primaries():
        left = [key.decode() for key in node.say("KEYS", f"rm:{{{namespace}*")]
        assert all(key.endswith((":fences", ":namespace")) for key in left)


async def test_deployed_scripts_are_known_on_every_node(cluster_servers: ClusterServers, namespace: str) -> None:
    async with open_caller("asyncio", cluster_servers.url, namespace) as caller:
        await load_scripts(caller.store)
        assert await load_scripts(caller.store) == 0
        cluster_servers.primaries()[-1].say("SCRIPT", "FLUSH")
        assert await load_scripts(caller.store) == scripts_count()
    shas = [scripts.load(name).sha for name in scripts.names()]
    for node in cluster_servers.primaries():
        assert node.say("SCRIPT", "EXISTS", *shas) == [1] * len(shas)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["asyncio", "blocking"])
async def test_repeated_deploys_reach_the_current_primary(
    kind: str, cluster_servers: ClusterServers, namespace: str
) -> None:
    """A former primary still takes scripts, and does not say that it is one."""
    shas = [scripts.load(name).sha for name in scripts.names()]
    first = cluster_servers.primaries()[0]
    async with open_caller(kind, cluster_servers.url, namespace) as caller:

        async def load() -> int:
            loaded = load_scripts(caller.store)
            return await (asyncio.to_thread(run_without_loop, loaded) if kind == "blocking" else loaded)

        await load()
        successor = await asyncio.to_thread(cluster_servers.hand_over, first)
        try:
            cluster_servers.until_well()
            successor.say("SCRIPT", "FLUSH")
            assert await load() == len(shas)
            assert successor.say("SCRIPT", "EXISTS", *shas) == [1] * len(shas)
        finally:
            await asyncio.to_thread(cluster_servers.hand_over, successor)
            cluster_servers.until_well()
