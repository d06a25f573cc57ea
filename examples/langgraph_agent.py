"""An agent of LangGraph for the threads of one person: it asks before it acts, recalls other threads, and forgets.

python -m examples.langgraph_agent anna order-7 "Refund 20 and 35 euros"
python -m examples.langgraph_agent anna order-7 yes
python -m examples.langgraph_agent anna order-8 "Which refunds did I get?"
python -m examples.langgraph_agent anna all /threads
python -m examples.langgraph_agent anna all /forget

A session has what was said: it is listed, recalled in other threads, and summarised. The checkpoints of its thread have
the graph's state. Each run of the graph is a turn of the session: a second run waits, so nothing is approved twice.
"""

from __future__ import annotations

import asyncio
import json
import operator
import os
import sys
import uuid
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt
from openai import AsyncOpenAI

from redismem import Memory, Session
from redismem.adapters.langgraph import RedismemSaver

MODEL = os.environ.get("OPENAI_MODEL", "gpt-5-mini")
SYSTEM: Any = {"role": "system", "content": "You refund orders of a bicycle shop. Answer in two sentences at most."}
TOOL: Any = {
    "type": "function",
    "function": {
        "name": "refund",
        "description": "Refund a part of the order.",
        "parameters": {"type": "object", "properties": {"euros": {"type": "number"}}, "required": ["euros"]},
    },
}


class State(TypedDict):
    messages: list[Any]
    results: Annotated[dict[str, str], operator.or_]  # by the id of the call


async def ask(state: State) -> dict[str, Any]:
    async with AsyncOpenAI() as model:
        asked: list[Any] = [SYSTEM, *state["messages"]]
        answer = await model.chat.completions.create(model=MODEL, messages=asked, tools=[TOOL])
    return {"messages": [*state["messages"], answer.choices[0].message.model_dump(exclude_none=True)]}


def route(state: State) -> list[Send] | str:
    """Start one task per call of the model."""
    calls = state["messages"][-1].get("tool_calls", ())
    return [Send("refund", call) for call in calls] or END


async def refund(call: dict[str, Any]) -> dict[str, Any]:
    """Ask before sending money back. A resumed task runs from its beginning; what other tasks wrote stays."""
    euros = json.loads(call["function"]["arguments"])["euros"]
    answer = interrupt(f"Refund {euros} euros?")
    # The id of the call is the idempotency key for your payment provider.
    return {"results": {call["id"]: f"{euros} euros are refunded" if answer == "yes" else "A person has refused this."}}


async def collect(state: State) -> dict[str, Any]:
    calls = state["messages"][-1]["tool_calls"]
    results = [{"role": "tool", "tool_call_id": call["id"], "content": state["results"][call["id"]]} for call in calls]
    return {"messages": [*state["messages"], *results]}


builder = StateGraph(State)
builder.add_node("ask", ask)
builder.add_node("refund", refund)  # type: ignore[arg-type]  # a Send gives the task a call, not the state
builder.add_node("collect", collect)
builder.add_edge(START, "ask")
builder.add_conditional_edges("ask", route)
builder.add_edge("refund", "collect")
builder.add_edge("collect", "ask")


async def take_turn(saver: RedismemSaver, config: Any, session: Session, request_id: str, text: str) -> str:
    """Run the graph with a question, or go on with it if the text answers its interrupts. Return what is said."""
    graph = builder.compile(checkpointer=saver)
    question = {"role": "user", "content": text}
    remembering: Any = {"recall": 1200, "recall_scope": "owner"}  # from all threads of the user
    async with session.turn(question, id=request_id, when_busy="wait", **remembering) as turn:
        before = await graph.aget_state(config)
        given: Any = {"messages": turn.context.to_openai()}
        if before.next and text in ("yes", "no"):
            answers = {request.id: text for request in before.interrupts}
            given = Command(resume=answers) if answers else None  # None goes on where a killed process stopped
        state = await graph.ainvoke(given, config)
        asked = [str(request.value) for request in state.get("__interrupt__", ())]
        said = " ".join(asked) or str(state["messages"][-1]["content"])
        await turn.write(said)
    return said


async def main(user: str, thread: str, text: str) -> int:
    async with Memory.connect() as memory:  # at REDISMEM_URL
        match text:
            case "/threads":
                for listed in (await memory.sessions(owner=user, newest=True)).sessions:
                    print(f"{listed.session_id}: {listed.title}")
            case "/forget":
                forgotten = await memory.forget(owner=user)
                print(f"Forgot {forgotten.session_count} sessions and {forgotten.record_count} records.")
            case _:
                saver, session = RedismemSaver(memory, owner_key="user"), memory.session(thread, owner=user)
                config = {"configurable": {"thread_id": thread, "user": user}}
                request_id = uuid.uuid4().hex  # take the one of the client: its retry is then the same turn
                print(await take_turn(saver, config, session, request_id, text))
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: python -m examples.langgraph_agent USER THREAD TEXT")
    sys.exit(asyncio.run(main(*sys.argv[1:])))
