"""An agent loop on LangChain: each step is stored before the next one, so any process goes on where another one died.

A function answers in the place of a chat model with `bind_tools`, so that the example needs no key.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolCall, ToolMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool

from redismem import IdReused, Memory
from redismem.adapters.langchain import ChatMessageHistory


@tool
async def look_up(order: str) -> str:
    """Return the state of an order."""
    return f"{order} is on its way"


@tool
async def refund(order: str) -> str:
    """Refund an order. A person must approve it."""
    return f"{order} is refunded"


TOOLS = {each.name: each for each in (look_up, refund)}


def answer(messages: list[BaseMessage]) -> AIMessage:
    """Answer as a model would: call a tool for each order that the user names, then say what the tools returned."""
    at = max(place for place, message in enumerate(messages) if isinstance(message, HumanMessage))
    results = [str(message.content) for message in messages[at:] if isinstance(message, ToolMessage)]
    if results:
        return AIMessage(", ".join(results))
    question = str(messages[at].content)
    name = "refund" if "refund" in question.lower() else "look_up"
    orders = re.findall(r"[A-Z]-\d+", question)
    return AIMessage("", tool_calls=[ToolCall(name=name, args={"order": each}, id=f"{at}-{each}") for each in orders])


async def run_tool(call: ToolCall) -> ToolMessage:
    message: ToolMessage = await TOOLS[call["name"]].ainvoke({**call, "type": "tool_call"})
    return message


def is_finished(messages: list[BaseMessage]) -> bool:
    last = messages[-1] if messages else None
    return last is None or (isinstance(last, AIMessage) and not last.tool_calls)


async def talk(memory: Memory, user: str, text: str) -> str:
    """Ask the agent, or go on with an unfinished turn, and return the answer. "approve" approves a refund."""
    if text != "approve" and is_finished(messages := await ChatMessageHistory(user, memory).aget_messages()):
        await store(memory, user, [HumanMessage(text)], messages)
    while not is_finished(messages := await ChatMessageHistory(user, memory).aget_messages()):
        last = messages[-1]
        if not isinstance(last, AIMessage):
            await store(memory, user, [await RunnableLambda(answer).ainvoke(messages)], messages)
        elif text != "approve" and any(call["name"] == "refund" for call in last.tool_calls):
            return "Waiting for approval: say approve, to any process."
        else:
            await store(memory, user, await asyncio.gather(*map(run_tool, last.tool_calls)), messages)
    return str(messages[-1].content) if messages else "Nothing waits for approval."


async def store(memory: Memory, user: str, step: list[BaseMessage], before: list[BaseMessage]) -> None:
    """Store a step. If another process has taken the step meanwhile, its result counts."""
    with contextlib.suppress(IdReused):
        await ChatMessageHistory(user, memory).aadd_messages(step, id=f"after-{len(before)}")


async def main(user: str, text: str) -> None:
    async with Memory.connect() as memory:
        print(await talk(memory, user, text))


if __name__ == "__main__":
    if len(sys.argv) not in (1, 3):
        sys.exit("usage: python -m examples.langchain_chat [USER TEXT]")
    asyncio.run(main(*(sys.argv[1:] or ("anna", "Where are my orders A-1 and A-2?"))))
