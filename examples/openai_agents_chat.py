"""An agent of the OpenAI Agents SDK: its history is in Redis, and a run that waits for approval goes on in any process.

A scripted model answers, so that the example needs no key. Without `model=`, the SDK asks OpenAI.
"""

from __future__ import annotations

import asyncio
import re
import sys
from typing import Any

from agents import Agent, Runner, RunState, function_tool, set_tracing_disabled
from agents.testing import ModelCall, ModelStep, ScriptedModel, assistant_message, function_call

from redismem import UNSET, Memory
from redismem.adapters.openai_agents import Session


@function_tool
async def look_up(order: str) -> str:
    """Return the state of an order."""
    return f"{order} is on its way"


@function_tool(needs_approval=True)
async def refund(order: str) -> str:
    """Refund an order. A person must approve it."""
    return f"{order} is refunded"


def answer(call: ModelCall) -> Any:
    """Answer as a model would: call a tool for each order that the user names, then say what the tools returned."""
    items: list[Any] = call.input
    at = max(place for place, item in enumerate(items) if item.get("role") == "user")
    question, results = items[at]["content"], [item["output"] for item in items[at:] if "output" in item]
    if results:
        return [assistant_message(", ".join(results))]
    tool = "refund" if "refund" in question.lower() else "look_up"
    orders = re.findall(r"[A-Z]-\d+", question)
    return [function_call(tool, {"order": order}, call_id=f"call_{len(items)}_{order}") for order in orders]


def make_agent() -> Agent:
    model = ScriptedModel([ModelStep.respond(answer) for _ in range(2)])
    return Agent(name="shop", tools=[look_up, refund], model=model)


async def talk(memory: Memory, user: str, text: str) -> str:
    """Ask the agent, or approve what it waits for, and return its answer."""
    agent, session = make_agent(), Session(user, memory=memory)
    conversation = memory.session(f"agents:session:{user}")  # the same session, with a state beside the items
    if text != "approve":
        result = await Runner.run(agent, text, session=session)
    elif paused := (await conversation.params()).get("paused_run"):
        state = await RunState.from_json(agent, paused)
        for waiting in state.get_interruptions():
            state.approve(waiting)
        result = await Runner.run(agent, state, session=session)
        await conversation.merge({"paused_run": UNSET})
    else:
        return "Nothing waits for approval."
    if result.interruptions:
        await conversation.merge({"paused_run": result.to_state().to_json()})
        return "Waiting for approval: say approve, to any process."
    return str(result.final_output)


async def main(user: str, text: str) -> None:
    set_tracing_disabled(True)
    async with Memory.connect() as memory:
        print(await talk(memory, user, text))


if __name__ == "__main__":
    if len(sys.argv) not in (1, 3):
        sys.exit("usage: python -m examples.openai_agents_chat [USER TEXT]")
    asyncio.run(main(*(sys.argv[1:] or ("anna", "Where are my orders A-1 and A-2?"))))
