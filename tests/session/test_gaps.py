"""A gap stands for many popped messages: everything else in the session keeps its seq and its place."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest
from support.conversations import user_message
from support.edited import SYSTEM, is_sound, payloads, seqs, summarize
from support.quarantined import move_session
from support.stores import Store

from redismem import Memory, Session, Settings
from redismem.inspection import quarantine
from redismem.inspection.sessions import originals_of
from redismem.project.files import copies
from redismem.protocol.session.edits import window

SETTINGS = Settings(threshold=4, recent_limit=2, shards=1, keep_originals=True, max_window_count=12)


@pytest.fixture
async def memory(store: Store, namespace: str) -> AsyncIterator[Memory]:
    async with store.memory(namespace, SETTINGS) as memory:
        yield memory


@pytest.fixture
async def session(memory: Memory) -> Session:
    """A session with messages 1, 2, 45 to 47 and 50; 2 and 46 are pinned, the others are ordinary."""
    session = memory.session("a")
    await session.append(user_message("1"), SYSTEM | {"content": "2"}, user_message("3"))
    for _ in range(20):
        await session.pop(1)
        await session.append(user_message("again"))
    await session.pop(1)
    await session.append(user_message("45"), SYSTEM | {"content": "46"}, user_message("47"), user_message("48"))
    await session.pop(1)
    await session.append(user_message("50"))
    return session


async def window_of(memory: Memory, session_id: str) -> Sequence[bytes]:
    view = await memory.store.run(window(memory.store.session_calls(session_id)))
    assert view is not None
    return view.elements


async def contents(session: Session) -> list[tuple[int, str]]:
    messages = await session.messages(include_originals=True)
    return [(message.seq, str(message.content)) for message in messages]


ALL = [(seq, str(seq)) for seq in (1, 2, 45, 46, 47, 50)]


async def test_all_seqs_are_as_they_were_given(memory: Memory, session: Session) -> None:
    context = await session.read()
    assert (seqs(context.messages), seqs(context.pinned)) == ([1, 45, 47, 50], [2, 46])
    assert (context.last_seq, context.total_messages) == (50, 6)
    assert seqs((await session.read(limit=2)).messages) == [47, 50]
    assert (await session.info()).window_count == 4
    assert await contents(session) == ALL
    for before in range(1, 53):
        assert seqs(await session.messages(before=before)) == [seq for seq, _ in ALL if seq < before]
        assert seqs(await session.messages(before=before, limit=1)) == [seq for seq, _ in ALL if seq < before][-1:]
    assert await is_sound(memory)


async def test_append_and_pop_for_ever_leave_two_elements(memory: Memory) -> None:
    session = memory.session("b")
    await session.append(user_message("first"))
    for _ in range(200):
        await session.append(user_message("x"))
        assert payloads(await session.pop(1)) == [user_message("x")]
    assert len(await window_of(memory, "b")) == 2
    assert (await session.read()).last_seq == 401
    assert await is_sound(memory)


async def test_messages_behind_a_gap_are_edited_in_their_place(memory: Memory, session: Session) -> None:
    await session.replace(47, user_message("better"))
    assert (await session.unpin(46)).seq == 46
    context = await session.read()
    assert [(each.seq, each.content) for each in context.messages] == [
        (1, "1"), (45, "45"), (46, "46"), (47, "better"), (50, "50")
    ]  # fmt: skip
    assert seqs(context.pinned) == [2]
    assert await is_sound(memory)


async def test_a_pop_joins_the_gaps_around_it(memory: Memory, session: Session) -> None:
    assert seqs(await session.pop(3)) == [45, 47, 50]
    assert len(await window_of(memory, "a")) == 5, "1, 2, a gap, 46, a gap"
    assert seqs(await session.pop(1)) == [1]
    assert (await session.append(user_message("52"))).last_seq == 53
    assert await is_sound(memory)


async def test_a_prune_takes_a_gap_along(memory: Memory, session: Session) -> None:
    assert await session.prune(2) == 2
    context = await session.read()
    assert (seqs(context.messages), seqs(context.pinned), context.first_seq) == ([47, 50], [2, 46], 47)
    assert await is_sound(memory)


async def test_a_summary_takes_a_gap_along(memory: Memory, session: Session) -> None:
    await session.append(user_message("51"))
    assert await summarize(memory) == 1
    context = await session.read()
    assert (seqs(context.messages), seqs(context.pinned)) == ([50, 51], [2, 46])
    assert await contents(session) == [*ALL, (51, "51")]
    assert seqs(await session.messages(limit=4, include_originals=True)) == [46, 47, 50, 51]
    assert seqs(await originals_of(memory.store, context)) == [1, 45, 47]
    assert seqs(await session.recall("45")) == [45]
    await session.append(*(user_message(str(seq)) for seq in range(52, 56)))
    assert await summarize(memory) == 1
    assert await contents(session) == [*ALL, *((seq, str(seq)) for seq in range(51, 56))]
    assert await is_sound(memory)


@pytest.mark.parametrize("is_summarised", [False, True])
async def test_a_copy_has_the_same_seqs(memory: Memory, session: Session, is_summarised: bool) -> None:
    await session.append(user_message("51"))
    if is_summarised:
        await summarize(memory)
    context, messages = await session.read(), await session.messages(include_originals=True)
    summaries = [replace(each, id=each.id.removeprefix(context.epoch)) for each in context.summaries]
    copy = copies.Copy(messages, summaries, context.first_seq, context.last_seq, context.total_messages)
    await copies.put(memory.store, "copy", copy)
    there = await memory.session("copy").read()
    assert seqs(there.messages) == seqs(context.messages)
    assert await contents(memory.session("copy")) == await contents(session)
    assert await is_sound(memory)


async def test_gaps_come_back_from_quarantine(memory: Memory, session: Session) -> None:
    before = await session.read()
    assert await move_session(memory.store, "a", 77)
    assert not await session.exists()
    await quarantine.restore(memory.store, await quarantine.find(memory.store, "a", None))
    assert await session.read() == before
    assert await contents(session) == ALL
    assert await is_sound(memory)
