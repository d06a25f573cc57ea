"""A chat on the terminal that finds its earlier messages by meaning, with an embedder of your own.

Workers in this process summarise the chat and embed what they summarise. A question finds its earlier messages in the
turn's own read. Where the embedder fails, words decide.

    python -m examples.recall_chat anna
"""

from __future__ import annotations

import asyncio
import os
import sys
import uuid
from collections.abc import AsyncIterator
from typing import Any

from openai import AsyncOpenAI, OpenAIError

from redismem import Memory, RedismemError, Session

MODEL = os.environ.get("OPENAI_MODEL", "gpt-5-mini")
EMBED_MODEL = os.environ.get("OPENAI_EMBED_MODEL", "text-embedding-3-small")
DIMENSIONS = 256  # a message then takes 435 bytes in Redis instead of 1,900 with this model's 1,536 dimensions
RECALL_TOKENS = 1_200
SYSTEM: Any = {"role": "system", "content": "You are a friend with a good memory. Answer in two sentences at most."}


class Embedder:
    """An embedder of redismem. It is asked for 8 texts at most, each of 6,000 characters at most."""

    name = f"{EMBED_MODEL}/{DIMENSIONS}"
    """Vectors of different names are never compared. Use one name in all processes of a namespace."""

    def __init__(self, model: AsyncOpenAI) -> None:
        self._model = model

    async def __call__(self, texts: list[str]) -> list[list[float]]:
        answer = await self._model.embeddings.create(model=EMBED_MODEL, input=texts, dimensions=DIMENSIONS)
        return [item.embedding for item in sorted(answer.data, key=lambda item: item.index)]


async def take_turn(session: Session, model: AsyncOpenAI, text: str) -> None:
    question = {"role": "user", "content": text}
    async with session.turn(question, id=uuid.uuid4().hex, recall=RECALL_TOKENS) as turn:
        context = turn.context
        if context.recalled:
            print(f"(recalled: {', '.join(f'#{message.seq}' for message in context.recalled)})")
        async for piece in stream(model, [SYSTEM, *context.to_openai()]):
            print(piece, end="", flush=True)
            await turn.write(piece)
    print(flush=True)


async def stream(model: AsyncOpenAI, messages: list[Any]) -> AsyncIterator[str]:
    async with await model.chat.completions.create(model=MODEL, messages=messages, stream=True) as chunks:
        async for chunk in chunks:
            for choice in chunk.choices:
                yield choice.delta.content or ""


async def main(chat: str = "me") -> None:
    async with AsyncOpenAI() as model, Memory.connect(workers=True, embed=Embedder(model)) as memory:
        session = memory.session(chat)
        while text := (await asyncio.to_thread(sys.stdin.readline)).strip():  # an empty line ends it
            try:
                await take_turn(session, model, text)
            except (RedismemError, OpenAIError) as error:
                print(f"Please try again: {type(error).__name__}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
