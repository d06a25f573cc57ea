"""An agent on the terminal whose tools need approval. It stops with a question, and any process takes the answer.

A turn does not wait for a person. It ends with the state `waiting`, and with the calls that wait in the `plan`. The
answer begins the next turn, which stores the calls with their results in one step.

    python -m examples.approval_agent order-7 "Refund 20 and 35 euros"
    python -m examples.approval_agent order-7 yes
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import uuid
from typing import Any

from openai import AsyncOpenAI

from redismem import Memory, Session, Turn

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
STEPS_LIMIT = 4


async def refund(call: dict[str, Any], is_approved: bool) -> dict[str, Any]:
    """Carry out a call. The id of the call is the idempotency key for your payment provider."""
    euros = json.loads(call["function"]["arguments"])["euros"]
    content = f"{euros} euros are refunded" if is_approved else "A person has refused this."
    return {"role": "tool", "tool_call_id": call["id"], "content": content}


async def take_turn(session: Session, model: AsyncOpenAI, text: str) -> None:
    """Answer a question, or go on with the calls that the text approves."""
    async with session.turn({"role": "user", "content": text}, id=uuid.uuid4().hex, when_busy="wait") as turn:
        messages: list[Any] = [SYSTEM, *turn.context.to_openai()]
        state = turn.context.state
        if state.waiting_for_param == "approval":
            asked: Any = state.plan
            results = await asyncio.gather(*(refund(call, text == "yes") for call in asked["tool_calls"]))
            await turn.append(asked, *results, waiting=None, plan=None)
            messages += [asked, *results]
        message = await stream(turn, model, messages)
        if message.tool_calls:
            amounts = [json.loads(call.function.arguments)["euros"] for call in message.tool_calls]
            await turn.write(f"Shall I refund {' and '.join(f'{amount} euros' for amount in amounts)}?")
            turn.finish(waiting="approval", plan=message.model_dump(exclude_none=True))


async def stream(turn: Turn, model: AsyncOpenAI, messages: list[Any]) -> Any:
    """Ask the model, pass its text on, and return its message."""
    async with model.chat.completions.stream(model=MODEL, messages=messages, tools=[TOOL]) as answer:
        async for event in answer:
            if event.type == "content.delta":
                await turn.write(event.delta)
        return (await answer.get_final_completion()).choices[0].message


async def main(order: str, text: str) -> None:
    async with AsyncOpenAI() as model, Memory.connect() as memory:
        session = memory.session(order)
        await take_turn(session, model, text)
        print((await session.read()).messages[-1].content)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python -m examples.approval_agent ORDER TEXT")
    asyncio.run(main(*sys.argv[1:]))
