"""An agent of Microsoft Agent Framework that waits for an approval, in whichever process the answer arrives.

python -m examples.agent_framework_approval order-7 "Refund 20 and 35 euros"
python -m examples.agent_framework_approval order-7 yes
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from agent_framework import (
    Agent,
    AgentSession,
    BaseChatClient,
    ChatResponse,
    Content,
    FunctionInvocationLayer,
    Message,
    tool,
)

from redismem.adapters.agent_framework import HistoryProvider, SessionStore


@tool(approval_mode="always_require")
async def refund(euros: Annotated[int, "The amount"]) -> str:
    """Send money back to the customer."""
    return f"refunded {euros}"


class ScriptedClient(FunctionInvocationLayer[Any], BaseChatClient[Any]):
    """A model that asks for one refund per number in the question. Yours is an OpenAIChatClient, for example."""

    async def _inner_get_response(
        self, *, messages: Sequence[Message], stream: bool, options: Mapping[str, Any], **_: Any
    ) -> ChatResponse:
        del stream, options
        results = [content for message in messages for content in message.contents if content.type == "function_result"]
        if results:
            text = "Done: " + ", ".join(str(content.result) for content in results)
            return ChatResponse(messages=[Message("assistant", [text])])
        amounts = [word for word in messages[-1].text.split() if word.isdigit()]
        calls = [
            Content.from_function_call(call_id=f"refund-{amount}", name="refund", arguments={"euros": int(amount)})
            for amount in amounts
        ]
        return ChatResponse(messages=[Message("assistant", calls)])


async def take_turn(agent: Agent[Any], sessions: SessionStore, order: str, text: str) -> str:
    """Ask, or answer what the agent waits for; then store what it waits for now."""
    session = await sessions.get(order) or AgentSession(session_id=order)
    waiting = [Content.from_dict(request) for request in session.state.pop("waiting", [])]
    given = [Message("user", [request.to_function_approval_response(text == "yes") for request in waiting])]
    response = await agent.run(given if waiting else text, session=session)
    requests = response.user_input_requests
    session.state["waiting"] = [request.to_dict() for request in requests]
    await sessions.set(order, session)
    if requests:
        return "May I? " + ", ".join(
            str(request.function_call.arguments) for request in requests if request.function_call
        )
    return response.text


async def main(order: str, text: str) -> int:
    async with HistoryProvider() as history, SessionStore() as sessions:  # at REDISMEM_URL, over one connection
        agent = Agent(ScriptedClient(), tools=[refund], context_providers=[history])
        print(await take_turn(agent, sessions, order, text))
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python -m examples.agent_framework_approval ORDER TEXT")
    sys.exit(asyncio.run(main(*sys.argv[1:])))
