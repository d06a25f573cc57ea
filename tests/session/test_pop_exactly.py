"""pop(exact=True): exactly the newest messages are removed, wherever they are."""

from __future__ import annotations

from typing import Any

import pytest
from support.conversations import user_message
from support.edited import SYSTEM, is_sound, payloads, seqs, summarize
from support.proxy import Proxy
from support.stores import Store

import redismem.blocking
from redismem import Conflict, Memory, Message, NotInWindow, Session, SessionNotFound, Settings, TooLarge
from redismem.session.editing import Editor

CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "c", "output": "found"}
FOLDING = Settings(threshold=4, recent_limit=2, shards=1)


async def fill(memory: Memory, count: int = 20) -> Session:
    """Return a session with messages of which each seventh is pinned, summarised in turns."""
    session = memory.session("a")
    for seq in range(1, count + 1):
        await session.append(user_message(f"text {seq}"), pin=seq % 7 == 0)
        await summarize(memory)
    return session


async def test_halves_of_a_tool_call_and_pinned_messages_go_one_by_one(memory: Memory, session: Session) -> None:
    await session.append(SYSTEM, user_message("a"), CALL, RESULT, Message.opaque({"type": None}))
    await session.append(SYSTEM | {"content": "Be long."})
    popped = [await session.pop(exact=True) for _ in range(3)]
    assert payloads([message for (message,) in popped]) == [SYSTEM | {"content": "Be long."}, {"type": None}, RESULT]
    assert payloads(await session.tail(9)) == [SYSTEM, user_message("a"), CALL]
    assert payloads(await session.pop(9, exact=True)) == [SYSTEM, user_message("a"), CALL]
    assert await session.pop(exact=True) == []
    assert await is_sound(memory)
    await session.clear()
    with pytest.raises(SessionNotFound):
        await session.pop(exact=True)


@pytest.mark.parametrize("count", [1, 3, 6])
async def test_behind_a_summary_the_rest_of_it_comes_back(store: Store, namespace: str, count: int) -> None:
    async with store.memory(namespace, FOLDING) as memory:
        session, left = await fill(memory), list(range(1, 21))
        assert (await session.read()).summaries
        while left:
            expected = await session.tail(count)
            assert await session.pop(count, exact=True) == expected
            assert seqs(expected) == left[-count:]
            del left[-count:]
            assert seqs(await session.tail(30)) == left
            assert await is_sound(memory)
        assert await session.pop(exact=True) == []


@pytest.mark.parametrize("damage", ["no originals", "one block cut", "one block lost"])
async def test_what_cannot_be_read_is_not_removed(store: Store, namespace: str, raw: Any, damage: str) -> None:
    settings = FOLDING.model_copy(update={"keep_originals": damage != "no originals"})
    async with store.memory(namespace, settings) as memory:
        session = await fill(memory)
        assert len(await session.pop(len((await session.read()).messages), exact=True)) >= 2
        block = await raw.hget(memory.store.keys.session("a").originals, "0")
        if damage == "one block cut":
            await raw.hset(memory.store.keys.session("a").originals, "0", block[:-1])
        elif damage == "one block lost":
            await raw.hdel(memory.store.keys.session("a").originals, "0")
        window = len((await session.read()).messages)
        before = await session.read()
        for count in (window + 1, window + 20):
            with pytest.raises(NotInWindow, match="originals"):
                await session.pop(count, exact=True)
        assert await session.read() == before


async def test_the_newest_is_popped_even_if_others_append_meanwhile(
    memory: Memory, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    await session.append(*(user_message(text) for text in "ab"))
    view, texts = Editor.view, list("cd")

    async def view_and_lag(self: Editor, *arguments: Any, **options: Any) -> Any:
        seen = await view(self, *arguments, **options)
        if texts:
            await session.append(user_message(texts.pop(0)))
        return seen

    monkeypatch.setattr(Editor, "view", view_and_lag)
    seen = await session.read()
    assert payloads(await session.pop(exact=True)) == [user_message("d")]
    with pytest.raises(Conflict):
        await session.pop(exact=True, expect=seen)
    with pytest.raises(TooLarge):
        await session.pop(1_001, exact=True)
    assert payloads(await session.tail(9)) == [user_message(text) for text in "abc"]


async def test_originals_that_another_writer_removed_meanwhile_are_not_missing(
    store: Store, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_blocks, faster_pops = Editor._read_blocks, list[int]()

    async def read_late(self: Editor, numbers: Any) -> Any:
        if faster_pops:
            await self.pop(faster_pops.pop(), exact=True)
        return await read_blocks(self, numbers)

    async with store.memory(namespace, FOLDING) as memory:
        session = await fill(memory)
        await session.pop(len((await session.read()).messages), exact=True)
        left = seqs(await session.tail(30))
        monkeypatch.setattr(Editor, "_read_blocks", read_late)
        faster_pops[:] = [5]
        assert seqs(await session.pop(exact=True)) == [left[-6]]
        faster_pops[:] = [5]
        await session.rewrite(left[3], [user_message("new")])
        assert seqs(await session.tail(30))[:-1] == left[:3]
        assert await is_sound(memory)


async def test_lost_replies_pop_once(redis_server: Any, namespace: str) -> None:
    settings = FOLDING.model_copy(update={"deadline_s": 60.0, "reply_timeout_s": 20.0})
    async with (
        Proxy(redis_server.port) as proxy,
        Memory.connect(proxy.url, settings=settings, namespace=namespace) as memory,
        Memory.connect(redis_server.url, settings=settings, namespace=namespace) as near,
    ):
        await fill(near)
        session = memory.session("a")
        for left in range(19, 0, -1):
            await session.exists()  # connected, and every script is known
            proxy.break_next("reset", 2, to=b"EVALSHA")
            assert seqs(await session.pop(exact=True)) == [left + 1]
            assert seqs(await near.session("a").tail(30)) == list(range(1, left + 1))
        assert await is_sound(near)


def test_blocking_callers_pop_exactly_too(redis_server: Any, namespace: str) -> None:
    with redismem.blocking.Memory.connect(redis_server.url, namespace=namespace) as memory:
        session = memory.session("a")
        session.append(user_message("a"), CALL, RESULT)
        assert payloads(session.pop(exact=True)) == [RESULT]
        assert payloads(session.tail(9)) == [user_message("a"), CALL]
