"""A small conversation of each framework that keeps records: a question, a call of a tool, its result, an answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from pydantic_ai import Conversation
from strands.session import SnapshotSessionManager

import redismem.blocking
from examples import google_adk_agent, pydantic_ai_fork, strands_agent
from redismem import Memory
from redismem.adapters.google_adk import SessionService
from redismem.adapters.langgraph import RedismemSaver
from redismem.adapters.pydantic_ai import ConversationStore
from redismem.adapters.strands import Storage

QUESTION = "How is the weather in Oslo?"
RESULT = "4 degrees in Oslo"
ANSWER = "Question 1: 4 degrees in Oslo."
TOOL = "look_up_weather"
Remove = Callable[[], Awaitable[Any]]


def build_graph(saver: RedismemSaver, schema: Any = MessagesState) -> Any:
    """Compile a graph of two nodes, a model and a tool."""

    def call_model(state: Any) -> dict[str, Any]:
        if isinstance(state["messages"][-1], ToolMessage):
            return {"messages": [AIMessage(ANSWER, id="m4")]}
        call = {"name": TOOL, "args": {"city": "Oslo"}, "id": "call-1"}
        return {"messages": [AIMessage("", tool_calls=[call], id="m2")]}

    def call_tool(_: Any) -> dict[str, Any]:
        return {"messages": [ToolMessage(RESULT, tool_call_id="call-1", id="m3")]}

    def choose(state: Any) -> str:
        return "tool" if getattr(state["messages"][-1], "tool_calls", None) else END

    builder: Any = StateGraph(schema)
    builder.add_node("model", call_model)
    builder.add_node("tool", call_tool)
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", choose)
    builder.add_edge("tool", "model")
    return builder.compile(checkpointer=saver)


async def talk_langgraph(memory: Memory, url: str, name: str, owner: str | None, **options: Any) -> Remove:
    del url
    saver = RedismemSaver(memory, owner_key="user", **options)
    config: Any = {"configurable": {"thread_id": name} | ({} if owner is None else {"user": owner})}
    await build_graph(saver).ainvoke({"messages": [HumanMessage(QUESTION, id="m1")]}, config)
    return lambda: saver.adelete_thread(name)


async def talk_pydantic_ai(memory: Memory, url: str, name: str, owner: str | None, **options: Any) -> Remove:
    del url
    store = ConversationStore(memory=memory, **options)
    conversation = Conversation(conversation_id=name)
    await store.save(await pydantic_ai_fork.agent.run(QUESTION, conversation=conversation), scope=owner)
    return lambda: store.delete(name)


async def talk_google_adk(memory: Memory, url: str, name: str, owner: str | None, **options: Any) -> Remove:
    del url
    service = SessionService(memory=memory, **options)
    user = owner or "nobody"
    await google_adk_agent.answer(service, user, name, QUESTION)
    return lambda: service.delete_session(app_name="weather", user_id=user, session_id=name)


async def talk_strands(memory: Memory, url: str, name: str, owner: str | None, **options: Any) -> Remove:
    def connect() -> redismem.blocking.Memory:
        return redismem.blocking.Memory.connect(url, namespace=memory.store.keys.namespace)

    with connect() as own:
        await strands_agent.answer(Storage(memory=own, owner=owner, **options), name, QUESTION)

    async def remove() -> None:
        with connect() as own:
            await SnapshotSessionManager(name, storage=Storage(memory=own, owner=owner, **options)).delete_session()

    return remove


TALKS: dict[str, Any] = {
    "google-adk": talk_google_adk,
    "langgraph": talk_langgraph,
    "pydantic-ai": talk_pydantic_ai,
    "strands": talk_strands,
}


def name_of(kind: str, name: str, owner: str) -> str:
    """Return the name of a conversation in a list."""
    return {"google-adk": f"weather/{owner}/{name}", "strands": f"{name}/weather"}.get(kind, name)
