"""LangGraph over an async memory: nodes and subgraphs without `await` run in other threads, and wait for its loop."""

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any, TypedDict

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph
from langgraph.store.base import BaseStore
from langgraph.types import Command, interrupt
from support.redis_server import RedisServer
from support.stores import PATIENCE

from redismem import Memory, Settings
from redismem.adapters.langgraph import RedismemSaver, RedismemStore

AT: Any = {"configurable": {"thread_id": "1"}}


class State(TypedDict):
    name: str
    seen: list[str]


@pytest.fixture
async def memory(redis_server: RedisServer, namespace: str) -> AsyncIterator[Memory]:
    async with Memory.connect(redis_server.url, namespace=namespace, settings=Settings(**PATIENCE)) as memory:
        yield memory


def build_asking() -> Any:
    """Return a subgraph without `await`, which asks and has checkpoints of its own."""

    def ask(state: State) -> Any:
        return {"name": interrupt("name?")}

    return StateGraph(State).add_node("ask", ask).add_edge(START, "ask").add_edge("ask", END).compile(checkpointer=True)


async def test_a_node_and_a_subgraph_without_await_use_an_async_saver_and_store(memory: Memory) -> None:
    saver, store = RedismemSaver(memory), RedismemStore(memory)
    asking, threads = build_asking(), set[str]()

    def note(state: State, config: RunnableConfig, *, store: BaseStore) -> Any:
        threads.add(threading.current_thread().name)
        name = asking.invoke(state, config)["name"]
        store.put(("people",), name, {"seen": 1})
        item = store.get(("people",), name)
        found = [each.key for each in store.search(("people",))]
        assert item is not None
        assert saver.get_tuple(AT) is not None
        return {"name": name, "seen": [*found, *(space[0] for space in store.list_namespaces())]}

    builder = StateGraph(State).add_node("note", note).add_edge(START, "note").add_edge("note", END)
    graph = builder.compile(checkpointer=saver, store=store)
    asked = await graph.ainvoke({"name": "", "seen": []}, AT)
    assert asked["__interrupt__"]
    answered = await graph.ainvoke(Command(resume="ann"), AT)
    assert (answered["name"], answered["seen"]) == ("ann", ["ann", "people"])
    assert threading.current_thread().name not in threads
    listed = await asyncio.to_thread(lambda: [each.checkpoint["id"] for each in saver.list(AT)])
    assert listed == [each.checkpoint["id"] async for each in saver.alist(AT)]
    await asyncio.to_thread(saver.delete_thread, "1")
    assert await saver.aget_tuple(AT) is None


async def test_the_thread_of_the_loop_and_a_loop_that_is_over_are_refused_with_what_to_do(memory: Memory) -> None:
    saver, store = RedismemSaver(memory), RedismemStore(memory)
    graph = build_asking().builder.compile(checkpointer=saver)
    for call in (
        lambda: graph.invoke({"name": "", "seen": []}, AT),
        lambda: store.put(("a",), "k", {}),
        lambda: next(saver.list(AT)),
    ):
        with pytest.raises(TypeError, match=r"would wait for itself: use ainvoke\(\).*url="):
            call()
    assert (await memory.records()).records == []
    without_loop: list[RedismemStore] = []
    thread = threading.Thread(target=lambda: without_loop.append(RedismemStore(memory)))
    thread.start()
    thread.join()
    with pytest.raises(TypeError, match=r"no event loop uses it.*url="):
        await asyncio.to_thread(without_loop[0].get, ("a",), "k")
    await without_loop[0].aput(("a",), "k", {"n": 1})
    item = await asyncio.to_thread(without_loop[0].get, ("a",), "k")
    assert item is not None


async def test_a_call_ends_if_the_loop_itself_waits_for_its_thread(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redismem.adapters.langgraph.opening._PATIENCE_S", 0.05)
    store, refused = RedismemStore(memory), list[BaseException]()

    def put() -> None:
        try:
            store.put(("a",), "k", {})
        except BaseException as error:
            refused.append(error)

    thread = threading.Thread(target=put)
    thread.start()
    thread.join()  # as graph.invoke() in the thread of the loop does
    assert [type(error) for error in refused] == [RuntimeError]
    assert "has not gone on" in str(refused[0])
    assert (await memory.records()).records == []  # the loop goes on, and what was given up stays undone
    assert await store.aget(("a",), "k") is None
