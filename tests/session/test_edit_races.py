"""Races of pop, undo, replace and unpin with workers, lost replies, a full Redis and other callers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st
from support.conversations import Conversation, conversations, is_closed, user_message
from support.edited import ANSWER, SMALL, is_sound, payloads, summarize
from support.proxy import Proxy
from support.stores import Store

import redismem.blocking
from redismem import Conflict, Memory, NotInWindow, Session, Settings
from redismem.context.context import Context
from redismem.models import Draft
from redismem.protocol.session import ending, replacing
from redismem.protocol.session.edits import Edit, edit, window
from redismem.session.editing import Editor
from redismem.workers.outcomes import SummaryOutcome
from redismem.workers.summaries import Worker


@pytest.mark.parametrize("what", ["pop", "undo", "replace", "unpin"])
async def test_a_summary_of_what_was_taken_back_is_refused(store: Store, namespace: str, what: str) -> None:
    """The edit happens while the model writes the summary."""
    async with store.memory(namespace, Settings(**SMALL)) as memory:
        session = memory.session("a")
        await session.append({"role": "system", "content": "s"}, *(user_message(str(number)) for number in range(6)))

        class Meddling:
            async def compact(self, messages: Any, previous: Any) -> Draft:
                if what == "replace":
                    await session.replace(2, user_message("secret, taken back"))
                elif what == "unpin":
                    await session.unpin(1)
                else:
                    await (session.pop(1) if what == "pop" else session.undo())
                return Draft("old text", 0, 0, "m")

        assert await Worker(memory.store, Meddling()).summarise("a") is SummaryOutcome.STALE
        context = await session.read()
        assert (context.summaries, (await session.info()).queued) == ([], "overdue")
        assert await is_sound(memory)
        assert await summarize(memory) == 1
        assert "old text" not in (await session.read()).summaries[0].text


async def test_an_edit_that_expects_a_context_undoes_no_edit_since(session: Session) -> None:
    await session.append(user_message("a"), user_message("b"))
    await session.append(user_message("pinned"), pin=True)
    others: list[Callable[[], Awaitable[object]]] = [
        lambda: session.replace(1, user_message("A")),
        lambda: session.unpin(3),
        lambda: session.forget(3),
    ]
    for other in others:
        seen = await session.read()
        await other()
        after = await session.read()
        edits: list[Callable[[], Awaitable[object]]] = [
            lambda: session.rewrite(1, [user_message("mine")], expect=seen),  # noqa: B023 (called within the round)
            lambda: session.pop(exact=True, expect=seen),  # noqa: B023
            lambda: session.archive(1, expect=seen),  # noqa: B023
        ]
        for each in edits:
            with pytest.raises(Conflict):
                await each()
        assert await session.read() == after


async def test_of_rewrites_and_replacements_of_what_was_read_none_is_lost(session: Session) -> None:
    await session.append(user_message("0"))

    async def count(how: str) -> None:
        done = 0
        while done < 5:
            seen = await session.read()
            message = seen.messages[-1]
            more = user_message(str(int(str(message.content)) + 1))
            with contextlib.suppress(Conflict, NotInWindow):
                await (session.rewrite(1, [more], expect=seen) if how == "rewrite" else session.replace(message, more))
                done += 1

    await asyncio.gather(*(count(how) for how in ("rewrite", "replace") * 3))
    assert [message.content for message in (await session.read()).messages] == ["30"]


async def test_a_pop_of_what_a_summary_covers_by_now_is_refused(store: Store, namespace: str) -> None:
    """The message was in the window when read, and neither a commit nor a prune changes the last seq."""
    async with store.memory(namespace, Settings(**SMALL)) as memory:
        session = memory.session("a")
        await session.append(*(user_message(str(number)) for number in range(6)))
        calls = memory.store.session_calls("a")
        view = await memory.store.run(window(calls))
        assert view is not None
        assert await summarize(memory) == 1
        before = await session.read()
        assert not await memory.store.run(edit(calls, view, ending.pop(view, view.context.messages[2:]), bool))
        assert await session.read() == before
        assert await is_sound(memory)


async def test_a_pop_looks_again_if_a_summary_has_moved_the_window(
    store: Store, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with store.memory(namespace, Settings(**SMALL)) as memory:
        session = memory.session("a")
        await session.append(*(user_message(str(number)) for number in range(6)))
        views = [await memory.store.run(window(memory.store.session_calls("a")))]
        assert await summarize(memory) == 1
        read = Editor.view

        async def look(self: Any, *of: Any) -> Any:
            return views.pop() if views else await read(self, *of)

        monkeypatch.setattr(Editor, "view", look)
        assert payloads(await session.pop(1)) == [user_message("5")]
        assert await is_sound(memory)


@pytest.mark.parametrize("what", ["pop", "replace", "unpin", "undo"])
async def test_a_lost_reply_changes_nothing_twice(redis_server: Any, namespace: str, what: str) -> None:
    settings = Settings(deadline_s=60, reply_timeout_s=2)
    async with (
        Proxy(redis_server.port) as proxy,
        Memory.connect(proxy.url, settings=settings, namespace=namespace) as m,
        Memory.connect(redis_server.url, namespace=namespace) as near,
    ):
        session = m.session("a")
        await session.append({"role": "system", "content": "s"}, *(user_message(str(number)) for number in range(4)))
        await session.pop(1)  # every script is known
        await session.replace(2, user_message("0"))
        view = await m.store.run(window(m.store.session_calls("a")))
        assert view is not None
        calls, first, pinned = m.store.session_calls("a"), view.context.messages[0], view.context.pinned[0]
        plans: dict[str, Callable[[], Edit]] = {
            "pop": lambda: ending.pop(view, view.context.messages[1:]),
            "undo": lambda: ending.pop(view, view.context.messages[2:]),
            "replace": lambda: replacing.replace(view, first, replacing.replacement(calls, first, user_message("new"))),
            "unpin": lambda: replacing.replace(view, pinned, replacing.unpin(pinned)),
        }
        made = edit(calls, view, plans[what](), bool)
        proxy.break_next("reset", 1, to=b"EVALSHA")
        assert await m.store.run(made)
        after = await near.session("a").read()
        assert len(after.messages) == {"pop": 1, "undo": 2, "replace": 3, "unpin": 4}[what]
        await near.session("a").append(user_message("in between"))
        assert await near.store.run(made.again()), "known, whatever came in between"
        assert (await near.session("a").read()).total_messages == after.total_messages + 1
        assert await is_sound(near)


def test_blocking_callers_have_them_too(redis_server: Any, namespace: str) -> None:
    with redismem.blocking.Memory.connect(redis_server.url, namespace=namespace) as memory:
        session = memory.session("a")
        session.append({"role": "system", "content": "s"}, user_message("a"), ANSWER)
        session.append(user_message("b"), pin=True)
        session.replace(1, {"role": "system", "content": "t"})
        assert (session.unpin(4).seq, len(session.pop(1)), len(session.undo())) == (4, 1, 2)
        assert session.read().to_openai() == [{"role": "system", "content": "t"}]


async def test_they_make_room_when_memory_has_run_out(redis_server: Any, namespace: str) -> None:
    async with Memory.connect(redis_server.url, namespace=namespace) as memory:
        session = memory.session("a")
        await session.append(user_message("a"), user_message("b"))
        with redis.Redis(port=redis_server.port) as admin:
            admin.config_set("maxmemory", 1)
            try:
                assert len(await session.pop(1)) == 1
                await session.replace(1, user_message("c"))
            finally:
                admin.config_set("maxmemory", 0)
        assert (await session.read()).to_openai() == [user_message("c")]
        assert await is_sound(memory)


async def test_an_edit_makes_a_session_active_and_takes_it_off_the_eviction_queue(
    store: Store, namespace: str, raw: Any
) -> None:
    async with store.memory(namespace, Settings(**SMALL)) as memory:
        session, keys = memory.session("a"), memory.store.keys.session("a")
        for edit in (lambda: session.replace(1, user_message("b")), lambda: session.pop(1)):
            await session.append(user_message("a"))
            counters = await raw.hget(keys.state, "counters")
            await raw.hset(keys.state, "counters", counters + b" limit")
            await raw.zadd(keys.shard.evictions, {"a": 1})
            await edit()
            assert await raw.zscore(keys.shard.evictions, "a") is None
            assert await is_sound(memory)


@given(told=conversations(max_size=10, orphans=False), counts=st.lists(st.integers(0, 6), min_size=1, max_size=4))
async def test_a_pop_parts_no_call_from_its_result(store: Store, told: Conversation, counts: list[int]) -> None:
    async with store.memory("pops", Settings(shards=1)) as memory:
        session = memory.session("a")
        await session.clear()
        left = len(told.payloads)
        if told.payloads:
            await session.append(*told.payloads)
        for count in counts if told.payloads else ():
            popped = await (session.pop(count) if count else session.undo())
            assert payloads(popped) == told.payloads[left - len(popped) : left]
            assert len(popped) >= min(count, left)
            left -= len(popped)
            context: Context = await session.read()
            assert payloads(context.messages) == told.payloads[:left]
            assert is_closed([pair for pair in told.seq_pairs() if pair[0] <= left], 1, left + 1)
        assert await is_sound(memory)
