"""Pinned messages: never summarised, not counted, always first, and kept until unpinned."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from support.conversations import user_message
from support.edited import SMALL, SYSTEM, is_sound, seqs, summarize
from support.stores import Store

from redismem import Conflict, InvalidMessage, Message, Session, Settings, TooLarge
from redismem.errors import NotInWindow
from redismem.models import open_extractive
from redismem.workers.archive import JsonlArchive, read_archive
from redismem.workers.eviction import Eviction
from redismem.workers.strategies import Summarize, Trim
from redismem.workers.summaries import Worker

DEVELOPER = {"role": "developer", "content": "Use metres."}
_numbers = itertools.count(1)


def turns(count: int, first: int = 0) -> list[dict[str, Any]]:
    return [user_message(f"message {number}") for number in range(first, first + count)]


async def test_system_prompts_are_never_summarised_nor_counted(store: Store, namespace: str) -> None:
    async with store.memory(namespace, Settings(**SMALL)) as memory:
        session = memory.session("a")
        context = await session.append_and_read(SYSTEM, *turns(4), DEVELOPER)
        assert (seqs(context.pinned), seqs(context.pending), seqs(context.recent)) == ([1, 6], [2, 3], [4, 5])
        assert (await session.info()).queued is None, "four that count are not over a threshold of four"
        assert context.to_openai() == [SYSTEM, DEVELOPER, *turns(4)]
        await session.append(*turns(1, 4))
        assert await summarize(memory) == 1
        context = await session.read()
        assert (seqs(context.pinned), seqs(context.messages)) == ([1, 6], [5, 7])
        (summary,) = context.summaries
        assert (summary.first_seq, summary.last_seq) == (2, 4)
        assert SYSTEM["content"] not in summary.text
        shown = context.to_openai()
        assert shown == [SYSTEM, DEVELOPER, summary.to_openai(), *turns(2, 3)]
        assert (await session.info()).pinned_count == 2
        assert await is_sound(memory)


@pytest.mark.parametrize("strategy", ["summarize", "trim"])
async def test_they_come_through_any_number_of_summaries(store: Store, namespace: str, strategy: str) -> None:
    async with store.memory(namespace, Settings(**SMALL, summaries_limit=1)) as memory:
        session = memory.session("a")
        worker = Worker(memory.store, Trim() if strategy == "trim" else Summarize(open_extractive()))
        for number in range(12):
            await session.append(*turns(2, 2 * number), pin=True if number % 4 == 0 else None)
            await session.append({**SYSTEM, "n": number}) if number % 5 == 0 else None
            await worker.drain()
        context = await session.read()
        expected = [*turns(2), {**SYSTEM, "n": 0}, *turns(2, 8), {**SYSTEM, "n": 5}, *turns(2, 16), {**SYSTEM, "n": 10}]
        assert [message.to_openai() for message in context.pinned] == expected
        assert context.to_openai()[: len(expected)] == expected
        assert seqs(context.pinned) == sorted(seqs(context.pinned))
        assert await is_sound(memory)


async def test_pin_pins_and_keeps_from_being_pinned(session: Session) -> None:
    context = await session.append_and_read(
        user_message("remember this"), Message("user", "and this", id="x"), pin=True
    )
    assert [(message.content, message.id, message.pinned) for message in context.pinned] == [
        ("remember this", f"{context.epoch}:1", True),
        ("and this", "x", True),
    ]
    context = await session.append_and_read(SYSTEM, pin=False)
    assert (seqs(context.pinned), seqs(context.messages)) == ([1, 2], [3])
    assert context.messages[0].to_openai() == SYSTEM
    for wrong in (1, "yes", 0):
        with pytest.raises(InvalidMessage, match="pin is True, False or None"):
            await session.append(user_message("x"), pin=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("limits", [{"max_pinned_count": 2}, {"max_pinned_bytes": 100}])
async def test_more_than_a_session_may_have_pinned_is_refused_before_anything_is_written(
    store: Store, namespace: str, limits: dict[str, int]
) -> None:
    async with store.memory(namespace, Settings(**SMALL, **limits)) as memory:
        session = memory.session("a")
        await session.append(SYSTEM, id="first")
        before = await session.read()
        for refused in ([DEVELOPER, SYSTEM], [user_message("x"), {**SYSTEM, "content": "x" * 90}, SYSTEM]):
            with pytest.raises(TooLarge, match=r"would be pinned, over \d+, the limit max_pinned_count ") as told:
                await session.append(*refused, merge={"a": 1})
            assert all(f"over {limit}, the limit {name}" in str(told.value) for name, limit in limits.items())
        assert await session.read() == before
        assert (await session.append(SYSTEM, id="first")).duplicate
        await session.append(*turns(5), *([SYSTEM] if "max_pinned_count" in limits else []))
        await summarize(memory)
        with pytest.raises(TooLarge):
            await session.append(SYSTEM, DEVELOPER)
        await session.append({**SYSTEM, "n": 1}, {**SYSTEM, "n": 2}, pin=False)
        await session.unpin(1)
        await session.append(DEVELOPER)
        assert await is_sound(memory)


@pytest.mark.parametrize("moved", [False, True])
async def test_one_is_replaced_by_compare(store: Store, namespace: str, moved: bool) -> None:
    async with store.memory(namespace, Settings(**SMALL)) as memory:
        session = memory.session("a")
        await session.append(SYSTEM, *turns(5 if moved else 2))
        await summarize(memory)
        read = (await session.read()).pinned[0]
        stored = await session.replace(read, {"role": "user", "content": "Be long."})
        assert (stored.seq, stored.pinned, stored.stored_ms) == (1, True, read.stored_ms)
        context = await session.read()
        assert context.pinned == [stored]
        assert context.to_openai()[0] == {"role": "user", "content": "Be long."}
        with pytest.raises(Conflict, match="changed it after it was read"):
            await session.replace(read, SYSTEM)
        with pytest.raises(Conflict, match="changed it after it was read"):
            await session.unpin(read)
        assert (await session.read()) == context
        await session.clear()
        await session.append(SYSTEM)
        with pytest.raises(Conflict, match="changed it after it was read"):
            await session.replace(read, SYSTEM)


async def test_unpinned_in_the_window_it_is_a_message_like_the_others(store: Store, namespace: str) -> None:
    async with store.memory(namespace, Settings(**SMALL)) as memory:
        session = memory.session("a")
        await session.append(SYSTEM, *turns(4))
        assert (await session.info()).queued is None
        unpinned = await session.unpin(1)
        assert (unpinned.to_openai(), unpinned.pinned, unpinned.seq) == (SYSTEM, False, 1)
        context = await session.read()
        assert (context.pinned, context.messages[0]) == ([], unpinned)
        assert (await session.info()).queued == "overdue", "there are five that count"
        assert (await session.unpin(1)) == unpinned, "which is no change"
        assert await is_sound(memory)
        assert await summarize(memory) == 1
        assert seqs((await session.read()).messages) == [4, 5]
        assert await is_sound(memory)


@pytest.mark.parametrize("kept", [False, True])
async def test_unpinned_behind_the_window_it_leaves_the_context(store: Store, namespace: str, kept: bool) -> None:
    async with store.memory(namespace, Settings(**SMALL, keep_originals=kept)) as memory:
        session = memory.session("a")
        await session.append(*turns(1), SYSTEM, *turns(4, 1))
        await summarize(memory)
        changed = await session.replace(2, {**SYSTEM, "n": 2})
        assert [each.to_openai() for each in await session.messages(include_originals=True)][-3:] == [
            *([] if kept else [changed.to_openai()]), *turns(3 if kept else 2, 2 if kept else 3)
        ]  # fmt: skip
        assert (await session.unpin(changed)).to_openai() == {**SYSTEM, "n": 2}
        context = await session.read()
        assert (context.pinned, seqs(context.messages)) == ([], [5, 6])
        found = await session.messages(include_originals=True)
        assert seqs(found) == ([1, 2, 3, 4, 5, 6] if kept else [5, 6])
        if kept:
            assert (found[1].to_openai(), found[1].pinned) == ({**SYSTEM, "n": 2}, False)
        with pytest.raises(NotInWindow):
            await session.unpin(2)
        assert await is_sound(memory)


@pytest.mark.parametrize("kept", [False, True])
async def test_messages_have_their_order_wherever_they_are(store: Store, namespace: str, kept: bool) -> None:
    async with store.memory(namespace, Settings(**SMALL, keep_originals=kept)) as memory:
        session = memory.session("a")
        await session.append(SYSTEM, *turns(3), DEVELOPER, *turns(3, 3))
        await summarize(memory)
        assert seqs(await session.messages()) == [1, 5, 7, 8]
        assert seqs(await session.messages(limit=3)) == [5, 7, 8]
        assert seqs(await session.messages(before=7)) == [1, 5]
        everything = await session.messages(include_originals=True)
        assert seqs(everything) == (list(range(1, 9)) if kept else [1, 5, 7, 8])
        assert [each.to_openai() for each in everything if each.pinned] == [SYSTEM, DEVELOPER]
        await session.append(SYSTEM)
        assert seqs(await session.messages(limit=1)) == [9]


async def test_a_part_of_a_context_has_all_that_is_pinned(store: Store, namespace: str) -> None:
    async with store.memory(namespace, Settings(**SMALL)) as memory:
        session = memory.session("a")
        await session.append(SYSTEM, *turns(3), DEVELOPER, *turns(1, 3))
        for part in (await session.read(limit=2), await session.read(limit=2, before=7)):
            assert (seqs(part.pinned), seqs(part.messages)) == ([1, 5], [4, 6])
        pinned = (await session.read()).pinned
        room = sum(message.tokens for message in pinned)
        for max_tokens in (0, room, room + 12):
            part = await session.read(max_tokens=max_tokens)
            assert seqs(part.pinned) == [1, 5]
            assert sum(message.tokens for message in part.messages) <= max(0, max_tokens - room)
        assert (await session.read(limit=0)).messages == []


async def test_a_prune_moves_them_and_an_eviction_hands_them_over(store: Store, namespace: str, tmp_path: Path) -> None:
    async with store.memory(namespace, Settings(**SMALL, max_sessions=1, keep_originals=True)) as memory:
        session = memory.session("a")
        await session.append(SYSTEM, *turns(3), user_message("keep"), merge={"a": 1})
        await session.append(user_message("pinned"), pin=True)
        await session.pop(1)
        assert await session.prune(1) == 2
        context = await session.read()
        assert (seqs(context.pinned), seqs(context.messages)) == ([1, 6], [4])
        assert await is_sound(memory)
        await session.append(*turns(5, 10))
        await summarize(memory)
        context = await session.read()
        archive = tmp_path / "archive.jsonl"
        await memory.session("b").append(user_message("newer"))
        assert await Eviction(memory.store, JsonlArchive(archive)).enforce() == 1
        (handed_over,) = read_archive(archive)
        assert handed_over.pinned == context.pinned
        assert handed_over.to_openai()[:2] == [SYSTEM, user_message("pinned")]
        assert seqs(handed_over.messages) == [4, *range(8, 13)]
        assert handed_over.window_version == context.window_version != ""


async def test_params_are_counted_without_them(store: Store, namespace: str) -> None:
    async with store.memory(namespace, Settings(**SMALL, max_params_count=2)) as memory:
        session = memory.session("a")
        await session.append(*(SYSTEM for _ in range(10)), *turns(5))
        await summarize(memory)
        await session.merge({"a": 1, "b": 2})
        with pytest.raises(TooLarge, match="would hold 3 params"):
            await session.merge({"c": 3})
        assert len((await session.read()).pinned) == 10


async def test_they_are_read_with_originals_also_if_those_before_them_were_pruned(store: Store, namespace: str) -> None:
    async with store.memory(namespace, Settings(**SMALL)) as memory:
        session = memory.session("a")
        await session.append(SYSTEM, *turns(6))
        await session.prune(2)
        await session.append(*turns(4, 6))
        assert await summarize(memory) == 1
        kept = await session.messages(include_originals=True)
        assert kept[0].to_openai() == SYSTEM
        assert seqs(kept) == [1, *range(6, 12)]
        assert seqs(await session.messages(3, include_originals=True)) == [9, 10, 11]
