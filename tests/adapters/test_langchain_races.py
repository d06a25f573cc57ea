"""Forty writers of one LangChain history, over a proxy that loses replies; and the same with LangChain's own list."""

from __future__ import annotations

import json
import sys

import pytest
import redis.asyncio
from langchain_core.messages import HumanMessage, message_to_dict
from support.lossy import WRITERS_COUNT, write_lossily
from support.proxy import Proxy
from support.stores import PATIENCE

from redismem import Memory, Settings
from redismem.adapters.langchain import ChatMessageHistory


async def nothing() -> list[str]:
    """Remove nothing: these histories can only be cleared."""
    return []


@pytest.mark.parametrize("each_count", [2, pytest.param(20, marks=pytest.mark.nightly)])
async def test_nothing_is_lost_or_doubled_and_the_order_stays(proxy: Proxy, namespace: str, each_count: int) -> None:
    async with Memory.connect(proxy.url, namespace=namespace, settings=Settings(shards=1, **PATIENCE)) as memory:

        async def add(text: str) -> None:
            await ChatMessageHistory("s", memory).aadd_messages([HumanMessage(text)])

        async def read() -> list[str]:
            return [str(message.content) for message in await ChatMessageHistory("s", memory).aget_messages()]

        tally = await write_lossily(proxy, each_count, add, nothing, read, read)
    assert proxy.broken_count > 3
    assert (tally.lost, tally.doubled, tally.out_of_order, tally.unknown) == ([], [], [], [])
    assert len(tally.left) == WRITERS_COUNT * each_count


@pytest.mark.nightly
async def test_the_list_of_langchain_community_doubles_what_is_sent_again(proxy: Proxy, namespace: str) -> None:
    """Commands of its `add_message` and `messages`, over a client that repeats them as redis-py does by default."""
    async with redis.asyncio.Redis(port=proxy.port) as client:

        async def add(text: str) -> None:
            await client.lpush(namespace, json.dumps(message_to_dict(HumanMessage(text))))

        async def read() -> list[str]:
            return [json.loads(entry)["data"]["content"] for entry in reversed(await client.lrange(namespace, 0, -1))]

        tally = await write_lossily(proxy, 20, add, nothing, read, read)
    sys.stdout.write(f"\nlangchain_community: {tally}\n")
    assert tally.doubled
