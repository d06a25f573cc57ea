"""LangGraph's saver on a real Redis Cluster, whose threads lie on different nodes."""

from __future__ import annotations

from support.cluster_servers import ClusterServers
from support.langgraph_suite import PASSED, run_suite
from support.stores import PATIENCE

from redismem import Memory, Settings
from redismem.adapters.langgraph import RedismemSaver, RedismemStore


async def test_all_81_pass_on_a_cluster_and_a_store_finds_items_of_all_nodes(
    cluster_servers: ClusterServers, namespace: str
) -> None:
    async with Memory.connect(cluster_servers.url, namespace=namespace, settings=Settings(**PATIENCE)) as memory:
        assert await run_suite(lambda: RedismemSaver(memory)) == (PASSED, [])
        store = RedismemStore(memory)
        for number in range(20):
            await store.aput(("a", f"{number:02}"), "k", {"n": number})
        found = await store.asearch(("a",), filter={"n": {"$lt": 15}}, limit=20)
        assert [item.value["n"] for item in found] == [*range(15)]
        assert len(await store.alist_namespaces(prefix=("a",))) == 20
