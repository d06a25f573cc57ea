"""The index of a long session: it is built over several searches, says what it lacks, and is bounded in memory."""

from __future__ import annotations

from typing import Any

import pytest
from support.redis_server import RedisServer

from redismem import Memory, Message, Session, Settings
from redismem.originals.fields import index_messages
from redismem.recall import recall
from redismem.recall.cached import CachedSession
from redismem.recall.loading import IndexLoader
from redismem.recall.segments import SEGMENT_BLOCKS, SEGMENT_SEQS
from redismem.workers.strategies import Trim
from redismem.workers.summaries import Worker

FACT = "My locker at the ice rink of Vintermoor has the number 4471."
ASKED = "Which locker is mine at the ice rink of Vintermoor?"
LATER = "The ferry to Hvasser leaves at dawn."
SETTINGS = Settings(shards=1)


async def fill(memory: Memory, count: int) -> Session:
    """Return a session that begins with a fact, and of whose `count` messages nearly all are originals."""
    session, worker = memory.session("a"), Worker(memory.store, Trim())
    await session.append(user(FACT))
    for first in range(1, count, 1_000):
        await session.append(*(user(f"walk {number} word{number % 97}") for number in range(first, first + 1_000)))
        await worker.drain()
    return session


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def has_fact(messages: Any) -> bool:
    return FACT in [message.content for message in messages]


@pytest.mark.parametrize("count", [24_000, pytest.param(1_000_000, marks=pytest.mark.nightly)])
async def test_the_first_fact_of_a_long_session_is_found(
    redis_server: RedisServer, namespace: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_memory(**settings: Any) -> Memory:
        return Memory.connect(redis_server.url, namespace=namespace, settings=SETTINGS.model_copy(update=settings))

    monkeypatch.setattr(recall, "TURN_LOAD_S", 0)
    monkeypatch.setattr(recall, "SEARCH_LOAD_S", 600)
    async with open_memory() as memory, open_memory() as other:
        session = await fill(memory, count)
        if count < 100_000:
            context = await session.append_and_read(user(ASKED), recall=100)
            assert not has_fact(context.recalled)
            assert context.recalled.unsearched_count == SEGMENT_SEQS, "two pages are left, and a turn reads one"
        found = await session.recall(ASKED, limit=1)
        assert has_fact(found)
        assert found.unsearched_count == 0
        cached = memory.recall_cache.get("a")
        assert cached is not None
        assert memory.recall_cache.size_bytes == cached.size_bytes < 30 * count + 500_000

        await session.append(user(LATER), *map(user, map(str, range(200))))
        await Worker(memory.store, Trim()).drain()
        for asked, text in ((ASKED, FACT), ("When leaves the Hvasser ferry?", LATER)):
            context = await session.append_and_read(user(asked), recall=400)
            assert text in [message.content for message in context.recalled]
            assert context.recalled.unsearched_count == 0

        await other.session("a").forget(1)
        for _ in range(2):
            assert not has_fact(await session.recall(ASKED))

    async with open_memory(max_recalled_bytes=500_000) as memory:
        found = await memory.session("a").recall(ASKED)
        assert 0 < found.unsearched_count < count
        assert found.unsearched_count == (await memory.session("a").recall(LATER)).unsearched_count
        assert len(memory.recall_cache) == 1
        assert 0 < memory.recall_cache.size_bytes <= 500_000


async def test_a_page_that_another_search_has_added_is_neither_read_nor_added(
    redis_server: RedisServer, namespace: str
) -> None:
    signature = index_messages([Message(role="user", content="snow", seq=1)], 0)
    older, newer = (range(at * SEGMENT_BLOCKS, (at + 1) * SEGMENT_BLOCKS) for at in range(2))
    cached = CachedSession("", "", newer.stop)
    for page, start in ((older, newer.stop), (newer, newer.start), (newer, newer.start), (older, 0), (older, 0)):
        cached.add_older(dict.fromkeys(page, signature), page)
        assert cached.start == start, "a page is added beside the first block alone"
    assert cached.postings.count == 2 * SEGMENT_BLOCKS

    async with Memory.connect(redis_server.url, namespace=namespace, settings=SETTINGS) as memory:
        loader = IndexLoader(memory.store, memory.store.keys.session("a"), 1, None)
        assert await loader._add_older(cached), "nothing is left to read"


async def test_a_clear_in_the_middle_of_a_search_leaves_nothing_of_either_life(
    redis_server: RedisServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Memory.connect(redis_server.url, namespace=namespace, settings=SETTINGS) as memory:
        session = memory.session("a", owner="ann")
        store, run = memory.store, memory.store.run
        calls: list[str] = []

        async def begin_anew_before_the_blocks(call: Any, **options: Any) -> Any:
            calls.append(call.commands[0][0])
            if calls == ["HMGET", "HMGET"] and call.commands[0][1] == store.keys.session("a").originals:
                await session.clear()
                await fill_with(memory.session("a", owner="ben"), "The parrot of Ben says 4711.")
            return await run(call, **options)

        async def fill_with(own: Session, text: str) -> None:
            await own.append(*[user(text)] * 40)
            await Worker(store, Trim()).drain()

        await fill_with(session, "The parrot of Ann says 1147.")
        with monkeypatch.context() as patch:
            patch.setattr(store, "run", begin_anew_before_the_blocks)
            assert await session.recall("What does the parrot say?") == []
        assert (await memory.session("a").info()).owner == "ben"
        assert memory.recall_cache.get("a") is None
        found = await memory.session("a", owner="ben").recall("What does the parrot say?")
        assert {message.content for message in found} == {"The parrot of Ben says 4711."}
