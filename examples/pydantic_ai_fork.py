"""An agent of Pydantic AI whose conversations any process continues, and forks to try something else.

python -m examples.pydantic_ai_fork trip "How is the weather in Oslo?"
python -m examples.pydantic_ai_fork trip-south "And in Rome?" trip

Each run answers one question. With the name of a third conversation, a new one begins as a fork of it.
"""

from __future__ import annotations

import asyncio
import sys

from pydantic_ai import Agent, Conversation
from pydantic_ai.conversation_store import ConversationConflict
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from redismem import StoreUnavailable
from redismem.adapters.pydantic_ai import ConversationStore

DEGREES = {"Oslo": 4, "Rome": 19, "Lima": 22}


def play_model(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    """Call the tool for each city of the question; then answer with the results."""
    last = messages[-1].parts
    results = [str(part.content) for part in last if isinstance(part, ToolReturnPart)]
    prompts = [part for message in messages for part in message.parts if isinstance(part, UserPromptPart)]
    if results:
        return ModelResponse(parts=[TextPart(f"Question {len(prompts)}: {', '.join(results)}.")])
    cities = [city for city in DEGREES if city in str(prompts[-1].content)]
    return ModelResponse(parts=[ToolCallPart("look_up_weather", {"city": city}) for city in cities] or [TextPart("?")])


agent = Agent(FunctionModel(play_model))  # yours is "openai:…" or another model


@agent.tool_plain
def look_up_weather(city: str) -> str:
    """Return the weather in a city."""
    return f"{DEGREES[city]} degrees in {city}"


async def answer(store: ConversationStore, conversation_id: str, question: str, fork_of: str | None) -> str:
    while True:
        conversation = await store.load(conversation_id)
        if conversation is None and fork_of is not None:
            conversation = await store.fork(fork_of, new_conversation_id=conversation_id)
        conversation = conversation or Conversation(conversation_id=conversation_id)
        result = await agent.run(question, conversation=conversation)
        try:
            await store.save(result)
        except ConversationConflict:  # another process answered a question meanwhile: answer with its messages in view
            continue
        return result.output


async def main(conversation_id: str, question: str, fork_of: str | None = None) -> int:
    async with ConversationStore() as store:  # at REDISMEM_URL
        try:
            print(await answer(store, conversation_id, question, fork_of))
        except StoreUnavailable as unavailable:
            print(f"the memory does not answer: {unavailable.text}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit("usage: python -m examples.pydantic_ai_fork CONVERSATION QUESTION [FORK_OF]")
    sys.exit(asyncio.run(main(*sys.argv[1:])))
