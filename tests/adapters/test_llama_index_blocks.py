"""LlamaIndex's memory blocks and a worker: both take the oldest messages, so they are not used together."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.memory import BaseMemoryBlock
from llama_index.core.memory import Memory as FrameworkMemory
from support.memory_blocks import Flushed
from support.writers import Echo

from redismem import InvalidSettings, Memory
from redismem.adapters.llama_index import ChatStore
from redismem.workers.summaries import Worker


def user_message(text: str) -> ChatMessage:
    return ChatMessage(role="user", content=text)


def contents(messages: list[ChatMessage]) -> list[str | None]:
    return [message.content for message in messages]


async def test_memory_blocks_and_summaries_are_refused_together(memory: Memory) -> None:
    store = ChatStore(memory=memory, summarise=True)
    blocks: list[BaseMemoryBlock[Any]] = [Flushed(name="flushed")]
    with_blocks = FrameworkMemory.from_defaults(session_id="k", chat_store=store, token_limit=100, memory_blocks=blocks)
    for call in (
        with_blocks.aput(user_message("a")),
        with_blocks.aput_messages([user_message("a")]),
        with_blocks.aget(),
        with_blocks.aset([user_message("a")]),
        asyncio.to_thread(with_blocks.put, user_message("a")),
    ):
        with pytest.raises(InvalidSettings, match="leave out summarise=True, or the memory_blocks"):
            await call
    assert await store.get_keys() == []
    alone = FrameworkMemory.from_defaults(session_id="k", chat_store=store, token_limit=100)
    await alone.aput(user_message("a"))
    assert contents(await alone.aget()) == ["a"]


async def test_every_message_reaches_a_memory_block_once_beside_a_worker(memory: Memory) -> None:
    block = Flushed(name="flushed")
    framework = FrameworkMemory.from_defaults(
        session_id="k", chat_store=ChatStore(memory=memory), token_limit=200, memory_blocks=[block]
    )
    asked = [f"question {number}" for number in range(40)]
    for text in asked:
        await framework.aput_messages([user_message(text), ChatMessage(role="assistant", content="Yes.")])
        await Worker(memory.store, Echo()).drain()
    left = contents(await framework.aget())
    assert [text for text in (*block.texts, *left) if text != "Yes."] == asked
    assert len(block.texts) > 40
