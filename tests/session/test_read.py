"""Partial reads of a session, on both stores."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support.clock import T0, Clock
from support.conversations import contents, user_message
from support.stored import set_counters
from support.stores import Store

from redismem import (
    Session,
    Settings,
)
from redismem.originals.blocks import encode_block
from redismem.protocol.keys import SessionKeys


async def test_limits_give_the_newest(session: Session) -> None:
    await session.append(*[user_message("x" * 40) for _ in range(10)])
    assert [message.seq for message in (await session.read(limit=3)).messages] == [8, 9, 10]
    assert [message.seq for message in (await session.read(limit=3, before=6)).messages] == [3, 4, 5]
    assert [message.seq for message in (await session.read(before=3)).messages] == [1, 2]
    tokens = (await session.read()).messages[0].tokens
    assert [message.seq for message in (await session.read(max_tokens=2 * tokens + 1)).messages] == [9, 10]
    nothings: list[dict[str, Any]] = [
        {"limit": 0},
        {"max_tokens": 0},
        {"before": 1},
        {"before": -5},
        {"limit": 0, "before": 5},
    ]
    for nothing in nothings:
        context = await session.read(**nothing)
        assert (context.messages, context.total_messages, context.first_seq) == ([], 10, 1)
    assert len((await session.read(limit=10**30, before=10**30, max_tokens=10**30)).messages) == 10
    assert len((await session.read(limit=10**30)).messages) == 10
    assert len((await session.read()).messages) == 10


async def test_messages_are_read_page_by_page(store: Store, namespace: str) -> None:
    async with store.memory(namespace, Settings(threshold=10_000)) as memory:
        session = memory.session("s")
        for start in range(0, 1301, 100):
            count = min(100, 1301 - start)
            await session.append(*[user_message(number) for number in range(start, start + count)])
        assert contents(await session.messages()) == list(range(1301))
        assert contents(await session.messages(limit=700)) == list(range(601, 1301))
        assert contents(await session.messages(limit=700, before=801)) == list(range(100, 800))
        assert contents(await session.messages(before=502)) == list(range(501))
        assert contents(await session.messages(before=10**20, limit=1)) == [1300]
        assert await session.messages(limit=0) == []
        for before in (1, 0, -1):
            assert await session.messages(before=before) == []


async def test_before_may_be_a_moment(session: Session, clock: Clock) -> None:
    noon = datetime.fromtimestamp(T0 / 1000, UTC)
    for number in range(600):
        at = T0 + number * 1000
        await clock.run_at(at, session.append(user_message(number)))
    half = noon + timedelta(seconds=300)
    assert contents(await session.messages(before=half)) == list(range(300))
    assert contents(await session.messages(before=half, limit=2)) == [298, 299]
    assert contents((await session.read(before=half, limit=2)).messages) == [298, 299]
    assert await session.messages(before=noon) == []
    assert len(await session.messages(before=noon + timedelta(days=1))) == 600
    for refused in (5.5, "5", half.replace(tzinfo=None)):
        with pytest.raises((TypeError, ValueError)):
            await session.messages(before=refused)  # type: ignore[arg-type]


async def test_originals_stand_before_the_window(raw: Any, session: Session, keys: SessionKeys) -> None:
    await session.append(*[user_message(number) for number in range(6)])
    # As a summary of the first four leaves it if originals are kept.
    await raw.hset(keys.originals, "0", encode_block(1, await raw.lrange(keys.messages, 0, 3)))
    await raw.ltrim(keys.messages, 4, -1)
    await raw.hset(keys.state, "with_originals", 1)
    await set_counters(raw, keys.state, first_seq=5)
    assert contents(await session.messages()) == [4, 5]
    whole = await session.messages(include_originals=True)
    assert [(message.seq, message.content) for message in whole] == [(seq, seq - 1) for seq in range(1, 7)]
    assert contents(await session.messages(limit=3, before=6, include_originals=True)) == [2, 3, 4]
