"""archive: the oldest messages of the window become originals without a summary."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.conversations import user_message
from support.edited import SYSTEM, is_sound, seqs, summarize
from support.proxy import Proxy
from support.redis_server import RedisServer
from support.stores import Store

from redismem import Conflict, InvalidSettings, Memory, Session, SessionNotFound, Settings, Summary
from redismem.protocol.scripts import load

KEPT = Settings(threshold=4, recent_limit=2, shards=1, keep_originals=True)
OFF = Settings(shards=1, keep_originals=False)
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}


async def converse(session: Session, count: int, first: int = 1) -> None:
    for number in range(first, first + count):
        await session.append(user_message(f"number {number}"))


async def test_archived_messages_leave_the_context_and_are_found_as_originals(store: Store, namespace: str) -> None:
    async with store.memory(namespace, KEPT) as memory:
        session = memory.session("a")
        calling = {"role": "assistant", "content": None, "tool_calls": [CALL]}
        result = {"role": "tool", "tool_call_id": "c", "content": "found"}
        await session.append(SYSTEM, user_message("a zebra"), calling, result)
        await converse(session, 40, first=5)
        archived = await session.archive(2)
        assert seqs(archived) == [2, 3], "the pinned message stays, and the call leaves without its result"
        context = await session.read()
        assert (seqs(context.pinned), context.messages[0].to_openai(), context.summaries) == ([1], result, [])
        before = await session.tail(100)
        for count in (1, 20):
            archived += await session.archive(count)
        assert seqs(archived) == list(range(2, 25))
        assert await session.tail(100) == before
        assert seqs(await session.messages(include_originals=True)) == list(range(1, 45))
        assert seqs(await session.messages()) == [1, *range(25, 45)]
        info = await session.info()
        assert (info.total_messages, info.window_count, info.first_seq) == (44, 20, 25)
        assert (await session.recall("zebra", limit=1))[0].content == "a zebra"
        assert await is_sound(memory)


async def test_summaries_edits_and_a_clear_go_on_behind_an_archive(store: Store, namespace: str, raw: Any) -> None:
    async with store.memory(namespace, KEPT) as memory:
        session = memory.session("a")
        await converse(session, 10)
        await session.archive(5)
        await summarize(memory)
        context = await session.read()
        assert [(each.first_seq, each.last_seq) for each in context.summaries] == [(6, 8)]
        assert seqs(await session.archive(1)) == [9]
        assert (await session.read()).summaries == context.summaries
        assert (await session.forget(3)).seqs == (3,)
        assert seqs(await session.tail(20)) == [1, 2, 4, 5, 6, 7, 8, 9, 10]
        assert seqs(await session.pop(6, exact=True)) == [5, 6, 7, 8, 9, 10]
        await session.rewrite(4, [user_message("new")])
        assert [each.content for each in await session.tail(20)] == ["number 1", "number 2", "new"]
        assert await is_sound(memory)
        await session.clear()
        assert await raw.keys(f"*{namespace}*:originals:*") == []


async def test_all_leave_if_there_are_fewer_and_none_if_none_is_asked_for(session: Session) -> None:
    with pytest.raises(SessionNotFound):
        await session.archive(1)
    await converse(session, 3)
    for wrong in (-1, 1.0, True, "1", None):
        with pytest.raises(ValueError, match="count must be an integer, 0 or more"):
            await session.archive(wrong)  # type: ignore[arg-type]
    with pytest.raises(Conflict):
        await session.archive(1, expect=2)
    assert await session.archive(0) == []
    assert seqs(await session.archive(9)) == [1, 2, 3]
    assert await session.archive(9) == []
    assert (await session.append(user_message("next"))).first_seq == 4
    assert seqs(await session.tail(9)) == [1, 2, 3, 4]


async def test_nothing_is_archived_where_originals_are_not_kept(store: Store, namespace: str) -> None:
    async with store.memory(namespace, OFF) as memory:
        session = memory.session("a")
        await converse(session, 3)
        before = await session.read()
        with pytest.raises(InvalidSettings, match="keep_originals"):
            await session.archive(1)
        assert await session.read() == before
    async with store.memory(f"{namespace}-kept", KEPT), store.memory(f"{namespace}-kept", OFF) as memory:
        session = memory.session("a")
        await converse(session, 3)
        assert seqs(await session.archive(1)) == [1], "the namespace's record keeps them"


async def test_each_message_is_archived_by_one_of_many_callers(store: Store, namespace: str) -> None:
    async with store.memory(namespace, KEPT) as memory:
        session = memory.session("a")
        await converse(session, 60)

        async def archive() -> list[int]:
            mine = []
            while part := seqs(await session.archive(3)):
                mine += part
            return mine

        archivers = asyncio.gather(*(archive() for _ in range(5)))
        parts, *_ = await asyncio.gather(archivers, converse(session, 20, first=61), summarize(memory))
        archived = [seq for part in parts for seq in part]
        summaries: list[Summary] = (await session.read()).summaries
        summarised = [seq for each in summaries for seq in range(each.first_seq, each.last_seq + 1)]
        left = seqs((await session.read()).messages)
        assert sorted([*archived, *summarised, *left]) == list(range(1, 81))
        assert seqs(await session.tail(100)) == list(range(1, 81))
        assert await is_sound(memory)


@pytest.mark.parametrize("count", [1, 3])
async def test_a_lost_reply_archives_once(redis_server: RedisServer, namespace: str, count: int) -> None:
    settings = Settings(deadline_s=60, reply_timeout_s=2, keep_originals=True)
    async with (
        Proxy(redis_server.port) as proxy,
        Memory.connect(proxy.url, settings=settings, namespace=namespace) as memory,
    ):
        session = memory.session("a")
        await converse(session, 9)
        await session.archive(1)  # so that the script is loaded
        proxy.break_next("reset", count, to=load("edit").sha)
        assert seqs(await session.archive(2)) == [2, 3]
        assert proxy.broken_count == count
        assert seqs((await session.read()).messages) == [4, 5, 6, 7, 8, 9]
        assert seqs(await session.tail(20)) == list(range(1, 10))
