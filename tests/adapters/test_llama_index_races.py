"""Forty writers of one key through LlamaIndex's chat store, over a proxy that loses replies."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import redis
import redis.asyncio
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.storage.chat_store.base_db import MessageStatus
from llama_index.storage.chat_store.redis import RedisChatStore
from support.lossy import Tally, write_lossily
from support.proxy import Proxy
from support.stores import PATIENCE
from support.writers import Echo

from redismem import Memory, Settings
from redismem.adapters.llama_index import ChatStore
from redismem.workers.summaries import Worker

SIZES = [4, pytest.param(60, marks=pytest.mark.nightly)]


def texts(messages: list[Any]) -> list[str]:
    """Return the texts of messages; the framework's store returns some of them as bytes."""
    return [
        (each if isinstance(each, ChatMessage) else ChatMessage.model_validate_json(each)).content or ""
        for each in messages
    ]


async def write_to_theirs(proxy: Proxy, key: str, each_count: int) -> Tally:
    client = redis.asyncio.Redis(port=proxy.port)
    store = RedisChatStore(redis_client=redis.Redis(port=proxy.port), aredis_client=client)

    async def remove() -> list[str]:
        removed = await store.adelete_message(key, 0)
        return [] if removed is None else texts([removed])

    async def touch() -> None:
        await store.aget_messages(key)

    async def read() -> list[str]:
        return texts(await store.aget_messages(key))

    async with client:
        return await write_lossily(
            proxy, each_count, lambda text: store.async_add_message(key, ChatMessage(content=text)), remove, touch, read
        )


@pytest.mark.parametrize("each_count", SIZES)
async def test_nothing_is_lost_or_doubled_and_the_order_stays(
    proxy: Proxy, namespace: str, each_count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = Settings(shards=1, **PATIENCE)
    async with (
        Memory.connect(proxy.url, namespace=namespace, settings=settings) as memory,
        Memory.connect(f"redis://127.0.0.1:{proxy._server_port}", namespace=namespace, settings=settings) as app,
    ):
        store, worker = ChatStore(memory=memory), Worker(app.store, Echo())

        async def remove() -> list[str]:
            return texts(await store.delete_oldest_messages("k", 1))

        async def touch() -> None:
            await store.archive_oldest_messages("k", 1)
            await worker.drain()

        async def read() -> list[str]:
            return texts(await store.get_messages("k", None))

        ours = await write_lossily(
            proxy, each_count, lambda text: store.add_message("k", ChatMessage(content=text)), remove, touch, read
        )
        archived = texts(await store.get_messages("k", MessageStatus.ARCHIVED))
        assert archived == ours.left[: len(archived)]
    with capsys.disabled():
        sys.stdout.write(f"\nChatStore of redismem: {ours}\n")
    assert proxy.broken_count > 10
    assert (ours.lost, ours.doubled, ours.out_of_order, ours.unknown) == ([], [], [], [])
    assert len(ours.added) == 40 * each_count
    assert ours.removed
    assert archived


@pytest.mark.nightly
async def test_the_store_of_the_framework_loses_or_doubles(
    proxy: Proxy, namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = await write_to_theirs(proxy, namespace, 2)  # more would take minutes: what it doubles it doubles again
    with capsys.disabled():
        sys.stdout.write(f"\nRedisChatStore: {theirs}\n")
    assert theirs.lost or theirs.doubled
