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
from examples.claude_agent import played_claude
from redismem import Memory
from redismem.adapters import claude_agent_sdk
from redismem.adapters.google_adk import SessionService
from redismem.adapters.langgraph import RedismemSaver
from redismem.adapters.pydantic_ai import ConversationStore
from redismem.adapters.strands import Storage

QUESTION = "How is the weather in Oslo?"
RESULT = "4 degrees in Oslo"
ANSWER = "Question 1: 4 degrees in Oslo."
TOOL = "look_up_weather"


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


async def talk_langgraph(memory: Memory, url: str, name: str, owner: str | None) -> None:
    del url
    saver = RedismemSaver(memory, owner_key="user")
    config: Any = {"configurable": {"thread_id": name} | ({} if owner is None else {"user": owner})}
    await build_graph(saver).ainvoke({"messages": [HumanMessage(QUESTION, id="m1")]}, config)


async def talk_pydantic_ai(memory: Memory, url: str, name: str, owner: str | None) -> None:
    del url
    conversation = Conversation(conversation_id=name)
    result = await pydantic_ai_fork.agent.run(QUESTION, conversation=conversation)
    await ConversationStore(memory=memory).save(result, scope=owner)


async def talk_claude(memory: Memory, url: str, name: str, owner: str | None) -> None:
    del url
    store = claude_agent_sdk.SessionStore(memory=memory, owner=owner)
    entries: Any = played_claude.play(QUESTION, [], name)
    await store.append({"project_key": "weather", "session_id": name}, [{"type": "mode"}, *entries])


async def talk_google_adk(memory: Memory, url: str, name: str, owner: str | None) -> None:
    del url
    await google_adk_agent.answer(SessionService(memory=memory), owner or "nobody", name, QUESTION)


async def talk_strands(memory: Memory, url: str, name: str, owner: str | None) -> None:
    with redismem.blocking.Memory.connect(url, namespace=memory.store.keys.namespace) as own:
        await strands_agent.answer(Storage(memory=own, owner=owner), name, QUESTION)


TALKS: dict[str, Callable[[Memory, str, str, str | None], Awaitable[None]]] = {
    "claude-agent-sdk": talk_claude,
    "google-adk": talk_google_adk,
    "langgraph": talk_langgraph,
    "pydantic-ai": talk_pydantic_ai,
    "strands": talk_strands,
}


async def remove(kind: str, memory: Memory, url: str, name: str, owner: str) -> None:
    """Let a framework remove a conversation."""
    match kind:
        case "claude-agent-sdk":
            store = claude_agent_sdk.SessionStore(memory=memory)
            await store.delete({"project_key": "weather", "session_id": name})
        case "google-adk":
            service = SessionService(memory=memory)
            await service.delete_session(app_name="weather", user_id=owner, session_id=name)
        case "langgraph":
            await RedismemSaver(memory).adelete_thread(name)
        case "pydantic-ai":
            await ConversationStore(memory=memory).delete(name)
        case _:
            with redismem.blocking.Memory.connect(url, namespace=memory.store.keys.namespace) as own:
                await SnapshotSessionManager(name, storage=Storage(memory=own)).delete_session()


def name_of(kind: str, name: str, owner: str) -> str:
    """Return the name of a conversation in a list."""
    names = {
        "claude-agent-sdk": f"weather/{name}",
        "google-adk": f"weather/{owner}/{name}",
        "strands": f"{name}/weather",
    }
    return names.get(kind, name)
