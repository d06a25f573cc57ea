"""tail: the newest messages as they are, summarised or not."""

from __future__ import annotations

from typing import Any

import pytest
from support.conversations import user_message
from support.edited import SYSTEM, is_sound, seqs, summarize
from support.proxy import Proxy
from support.stores import Store

from redismem import Memory, Session, Settings
from redismem.session import paging

KEPT = Settings(threshold=4, recent_limit=2, shards=1, keep_originals=True)


async def converse(session: Session, count: int) -> None:
    """Append messages of which every fifth is pinned; the content is the seq."""
    for seq in range(1, count + 1):
        await session.append(user_message(str(seq)), pin=seq % 5 == 0)


async def test_the_newest_are_returned_as_they_are(session: Session) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    calling = {"role": "assistant", "content": None, "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": "c", "content": "found"}
    told = [user_message("a"), calling, SYSTEM, result, user_message("b")]
    await session.append(*told)
    for count in range(7):
        tail = await session.tail(count)
        assert [message.to_openai() for message in tail] == told[max(0, 5 - count) :]
        assert seqs(tail) == list(range(max(1, 6 - count), 6))


async def test_an_unknown_session_has_none_and_a_count_is_checked(session: Session) -> None:
    assert await session.tail(0) == await session.tail(5) == []
    await session.append(user_message("a"))
    for wrong in (-1, 1.0, True, "1", None):
        with pytest.raises(ValueError, match="n must be an integer, 0 or more"):
            await session.tail(wrong)  # type: ignore[arg-type]
    assert seqs(await session.tail(1 << 60)) == [1]


async def test_one_read_is_enough_whatever_is_pinned(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    session, sent = memory.session("a"), []
    await converse(session, 20)
    run = memory.store.run

    def note(call: Any, **options: Any) -> Any:
        sent.append(call.commands[1][2:])
        return run(call, **options)

    monkeypatch.setattr(memory.store, "run", note)
    assert seqs(await session.tail(12)) == list(range(9, 21))
    assert sent == [(-12, -1)]


async def test_gaps_are_no_messages(session: Session) -> None:
    await session.append(user_message("1"))
    for _ in range(6):
        await session.append(user_message("x"))
        await session.pop(1)
        await session.append(user_message("y"))
    assert seqs(await session.tail(3)) == [13, 16, 19]
    assert seqs(await session.tail(9)) == [1, 4, 7, 10, 13, 16, 19]


@pytest.mark.parametrize("count", range(0, 50, 7))
async def test_originals_and_pinned_messages_stand_in_their_places(store: Store, namespace: str, count: int) -> None:
    async with store.memory(namespace, KEPT) as memory:
        session = memory.session("a")
        await converse(session, 40)
        await summarize(memory)
        await session.append(user_message("41"))
        tail = await session.tail(count)
        assert [(each.seq, each.content) for each in tail] == [(n, str(n)) for n in range(42 - count, 42) if n > 0]
        assert [each.seq for each in tail if each.pinned] == [each.seq for each in tail if each.seq % 5 == 0]
        await session.unpin(15)
        assert [each.seq for each in await session.tail(40) if each.pinned] == [5, 10, 20, 25, 30, 35, 40]


async def test_without_originals_the_pinned_messages_are_left(store: Store, namespace: str) -> None:
    async with store.memory(namespace, KEPT.model_copy(update={"keep_originals": False})) as memory:
        session = memory.session("a")
        await converse(session, 12)
        await summarize(memory)
        assert seqs(await session.tail(9)) == [5, 10, 11, 12]
        assert seqs(await session.tail(3)) == [10, 11, 12]
        await session.prune(1)
        assert seqs(await session.tail(9)) == [5, 10, 12]


@pytest.mark.parametrize("what", ["commit", "prune", "replace", "clear", "append"])
async def test_what_comes_between_two_pages_never_mixes_two_moments(
    store: Store, namespace: str, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    async with store.memory(namespace, KEPT) as memory:
        session, other = memory.session("a"), memory.session("a")
        await converse(session, 20)
        await summarize(memory)
        await converse(session, 4)
        monkeypatch.setattr(paging, "PAGE_COUNT", 4)
        changes = [
            {
                "commit": lambda: summarize(memory),
                "prune": lambda: other.prune(2),
                "replace": lambda: other.replace(5, user_message("new")),
                "clear": other.clear,
                "append": lambda: other.append(user_message("late")),
            }[what]
        ]
        pages, run = [], memory.store.run

        async def change_first(call: Any, **options: Any) -> Any:
            pages.append(call.op)
            if pages.count("messages") == 2 and changes:
                await changes.pop()()
            return await run(call, **options)

        monkeypatch.setattr(memory.store, "run", change_first)
        tail = await session.tail(30)
        monkeypatch.undo()
        assert not changes
        expected = await session.tail(30)
        assert seqs(tail) == seqs(expected[: -1 if what == "append" else None])
        assert [each.content for each in tail] == [each.content for each in expected][: len(tail)]
        assert await is_sound(memory)


@pytest.mark.parametrize("lost_count", [1, 2, 5])
async def test_lost_replies_return_the_same(redis_server: Any, namespace: str, lost_count: int) -> None:
    settings = Settings(deadline_s=60, reply_timeout_s=2, keep_originals=True, threshold=4, recent_limit=2)
    async with (
        Proxy(redis_server.port) as proxy,
        Memory.connect(proxy.url, settings=settings, namespace=namespace) as memory,
    ):
        session = memory.session("a")
        await converse(session, 20)
        await summarize(memory)
        assert seqs(await session.tail(15)) == list(range(6, 21))
        for command in (b"LRANGE", b"EVALSHA"):
            proxy.break_next("reset", lost_count, to=command)
            assert seqs(await session.tail(15)) == list(range(6, 21))
