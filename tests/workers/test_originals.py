"""Originals that are kept: read again page by page, expired, and never those of an earlier session."""

from __future__ import annotations

from typing import Any

from support.stores import Store
from support.worked import open_with, seqs
from support.writers import Echo, fill, said

from redismem.workers.summaries import Worker


async def test_kept_originals_can_be_read_page_by_page(store: Store, namespace: str) -> None:
    async with open_with(store, namespace, keep_originals=True, originals_timeout_s=500) as memory:
        session, worker = memory.session("a"), Worker(memory.store, Echo())
        for first in range(1, 1201, 600):
            await session.append(*(said(number) for number in range(first, first + 600)))
            await worker.drain()
        assert await seqs(session) == list(range(1195, 1201))
        assert [message.seq for message in await session.messages()] == list(range(1195, 1201))
        everything = await session.messages(include_originals=True)
        assert [message.content for message in everything] == [said(number)["content"] for number in range(1, 1201)]
        assert [message.seq for message in everything] == list(range(1, 1201))
        part = await session.messages(limit=700, before=1198, include_originals=True)
        assert [message.seq for message in part] == list(range(498, 1198))


async def test_originals_have_a_time_to_live_of_their_own(store: Store, namespace: str, raw: Any) -> None:
    async with open_with(store, namespace, keep_originals=True, originals_timeout_s=500) as memory:
        session, worker, keys = memory.session("a"), Worker(memory.store, Echo()), memory.store.keys.session("a")
        await fill(session, 11)
        await worker.drain()
        assert 400_000 < await raw.pttl(keys.originals) <= 500_000
        assert await raw.pttl(keys.state) > 500_000
        await raw.delete(keys.originals)  # as when they expire
        assert [message.seq for message in await session.messages(include_originals=True)] == list(range(6, 12))
        await fill(session, 6)
        await worker.drain()
        found = await session.messages(include_originals=True)
        assert [message.seq for message in found] == list(range(6, 18)), "from the new originals on, without a gap"


async def test_originals_of_an_earlier_session_do_not_come_back(store: Store, namespace: str, raw: Any) -> None:
    async with open_with(store, namespace, keep_originals=True) as memory:
        session, worker, keys = memory.session("a"), Worker(memory.store, Echo()), memory.store.keys.session("a")
        await fill(session, 11, "old")
        await worker.drain()
        await raw.delete(keys.messages, keys.state)  # as when they expire, long before the originals
        assert await raw.exists(keys.originals)
        await fill(session, 10, "new")
        contents = [message.content for message in await session.messages(include_originals=True)]
        assert contents == [said(number, "new")["content"] for number in range(1, 11)]
        await session.append(said(11, "new"))
        await worker.drain()
        contents = [message.content for message in await session.messages(include_originals=True)]
        assert contents == [said(number, "new")["content"] for number in range(1, 12)]
        assert await session.clear()
        assert not await raw.exists(keys.originals)
