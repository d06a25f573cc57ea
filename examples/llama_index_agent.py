"""An agent of LlamaIndex whose conversations outlive its processes. Each run answers one question of a user.

python -m examples.llama_index_agent user-42 "How is the weather in Oslo and Rome?"
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import ChatMessage, MessageRole, ToolCallBlock
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.memory import Memory

from redismem import StoreUnavailable
from redismem.adapters.llama_index import ChatStore

DEGREES = {"Oslo": 4, "Rome": 19, "Lima": 22}


async def look_up_weather(city: str) -> str:
    """Return the weather in a city."""
    return f"{DEGREES[city]} degrees in {city}"


def play_model(messages: Sequence[ChatMessage], **_: Any) -> ChatMessage:
    """Call the tool for each city of the question, all at once; then answer with the results."""
    if messages[-1].role == MessageRole.TOOL:
        asked_at = max(at for at, message in enumerate(messages) if message.role == MessageRole.USER)
        results = [message.content or "" for message in messages[asked_at:] if message.role == MessageRole.TOOL]
        questions_count = sum(message.role == MessageRole.USER for message in messages)
        return ChatMessage(role="assistant", content=f"Question {questions_count}: {', '.join(results)}.")
    cities = [city for city in DEGREES if city in (messages[-1].content or "")]
    calls = [
        ToolCallBlock(tool_call_id=f"{len(messages)}-{city}", tool_name="look_up_weather", tool_kwargs={"city": city})
        for city in cities
    ]
    return ChatMessage(role="assistant", blocks=calls)


async def answer(store: ChatStore, user: str, question: str) -> str:
    agent = FunctionAgent(
        tools=[look_up_weather],
        llm=MockFunctionCallingLLM(response_generator=play_model),  # yours is OpenAI(…) of llama-index-llms-openai
        streaming=False,
    )
    memory = Memory.from_defaults(session_id=user, chat_store=store, token_limit=30_000)
    return str(await agent.run(question, memory=memory))


async def main(user: str, question: str) -> int:
    async with ChatStore() as store:  # at REDISMEM_URL
        try:
            print(await answer(store, user, question))
        except StoreUnavailable as unavailable:
            print(f"the memory does not answer: {unavailable.text}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python -m examples.llama_index_agent USER QUESTION")
    sys.exit(asyncio.run(main(*sys.argv[1:])))
