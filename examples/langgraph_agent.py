"""An agent of LangGraph that waits for an approval, and goes on in whichever process the answer arrives.

python -m examples.langgraph_agent order-7 "Refund 20 and 35 euros"
python -m examples.langgraph_agent order-7 yes
"""

from __future__ import annotations

import asyncio
import operator
import sys
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt

from redismem.adapters.langgraph import RedismemSaver, RedismemStore


class State(TypedDict):
    question: str
    done: Annotated[list[str], operator.add]


def plan(state: State) -> list[Send]:
    """Start one task per amount in the question. Yours asks a model."""
    return [Send("refund", int(word)) for word in state["question"].split() if word.isdigit()]


async def refund(euros: int) -> dict[str, Any]:
    """Ask before sending money back. A resumed task runs from its beginning; what other tasks wrote stays."""
    answer = interrupt(f"refund {euros}?")
    return {"done": [f"refunded {euros}" if answer == "yes" else f"kept {euros}"]}


builder = StateGraph(State)
builder.add_node("plan", lambda _: {"done": []})
builder.add_node("refund", refund)  # type: ignore[arg-type]  # a Send gives the task a number, not the state
builder.add_conditional_edges("plan", plan)
builder.add_edge(START, "plan")
builder.add_edge("refund", END)


async def main(order: str, text: str) -> int:
    # At REDISMEM_URL.
    async with RedismemSaver(ttl={"default_ttl": 60 * 24}) as saver, RedismemStore() as store:
        graph = builder.compile(checkpointer=saver, store=store)
        config: Any = {"configurable": {"thread_id": order}}
        before = await graph.aget_state(config)
        given: Any = {"question": text, "done": []}
        if before.next and text in ("yes", "no"):
            answers = {request.id: text for request in before.interrupts}
            given = Command(resume=answers) if answers else None  # None goes on where a killed process stopped
        state = await graph.ainvoke(given, config)
        if requests := state.get("__interrupt__"):
            print("May I? " + ", ".join(str(request.value) for request in requests))
        else:
            await store.aput(("orders",), order, {"done": state["done"]})
            print("Done: " + ", ".join(state["done"]))
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python -m examples.langgraph_agent ORDER TEXT")
    sys.exit(asyncio.run(main(*sys.argv[1:])))
