"""Pinned messages: never summarised, never counted, first, and there until somebody unpins them."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.conversations import Conversation, conversations, said
from support.provider_rules import complaints
from support.stores import Store

from redismem import Conflict, InvalidMessage, Memory, Message, Session, Settings, TooLarge
from redismem.context import Context
from redismem.errors import NotInWindow
from redismem.inspection.check import check
from redismem.models import open_extractive
from redismem.session import Session as AsyncSession
from redismem.workers.archive import JsonlArchive, read_archive
from redismem.workers.eviction import Eviction
from redismem.workers.strategies import Summarize, Trim
from redismem.workers.summaries import Worker

SYSTEM = {"role": "system", "content": "Be brief."}
DEVELOPER = {"role": "developer", "content": "Use metres."}
SMALL = {"threshold": 4, "recent_limit": 2, "shards": 2}
_numbers = itertools.count(1)


def turns(count: int, first: int = 0) -> list[dict[str, Any]]:
    return [said(f"message {number}") for number in range(first, first + count)]


def seqs(messages: list[Message]) -> list[int]:
    return [message.seq for message in messages]


async def drained(memory: Memory) -> int:
    return await Worker(memory.store, Summarize(open_extractive())).drain()


async def sound(memory: Memory) -> bool:
    return [violation async for violation in check(memory.store)] == []


async def test_system_prompts_are_never_summarised_nor_counted(store: Store, namespace: str) -> None:
    async with store.memory(namespace, Settings(**SMALL)) as memory:
        session = memory.session("a")
        context = await session.append_and_read(SYSTEM, *turns(4), DEVELOPER)
        assert (seqs(context.pinned), seqs(context.pending), seqs(context.recent)) == ([1, 6], [2, 3], [4, 5])
        assert (await session.info()).queued is None, "four that count are not over a threshold of four"
        assert context.to_openai() == [SYSTEM, DEVELOPER, *turns(4)]
        await session.append(*turns(1, 4))
        assert await drained(memory) == 1
        context = await session.read()
        assert (seqs(context.pinned), seqs(context.messages)) == ([1, 6], [5, 7])
        (summary,) = context.summaries
        assert (summary.first_seq, summary.last_seq) == (2, 4)
        assert SYSTEM["content"] not in summary.text
        shown = context.to_openai()
        assert shown == [SYSTEM, DEVELOPER, summary.to_openai(), *turns(2, 3)]
        assert (await session.info()).pinned_count == 2
        assert await sound(memory)


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
        assert await sound(memory)


async def test_pin_pins_and_keeps_from_being_pinned(session: Session) -> None:
    context = await session.append_and_read(said("remember this"), Message("user", "and this", id="x"), pin=True)
    assert [(message.content, message.id, message.pinned) for message in context.pinned] == [
        ("remember this", f"{context.epoch}:1", True),
        ("and this", "x", True),
    ]
    context = await session.append_and_read(SYSTEM, pin=False)
    assert (seqs(context.pinned), seqs(context.messages)) == ([1, 2], [3])
    assert context.messages[0].to_openai() == SYSTEM
    for wrong in (1, "yes", 0):
        with pytest.raises(InvalidMessage, match="pin is True, False or None"):
            await session.append(said("x"), pin=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("limits", [{"max_pinned_count": 2}, {"max_pinned_bytes": 100}])
async def test_more_than_a_session_may_have_pinned_is_refused_before_anything_is_written(
    store: Store, namespace: str, limits: dict[str, int]
) -> None:
    async with store.memory(namespace, Settings(**SMALL, **limits)) as memory:
        session = memory.session("a")
        await session.append(SYSTEM, id="first")
        before = await session.read()
        for refused in ([DEVELOPER, SYSTEM], [said("x"), {**SYSTEM, "content": "x" * 90}, SYSTEM]):
            with pytest.raises(TooLarge, match=r"would be pinned, over max_pinned_count or max_pinned_bytes"):
                await session.append(*refused, merge={"a": 1})
        assert await session.read() == before
        assert (await session.append(SYSTEM, id="first")).duplicate
        await session.append(*turns(5), *([SYSTEM] if "max_pinned_count" in limits else []))
        await drained(memory)
        with pytest.raises(TooLarge):
            await session.append(SYSTEM, DEVELOPER)
        await session.append({**SYSTEM, "n": 1}, {**SYSTEM, "n": 2}, pin=False)
        await session.unpin(1)
        await session.append(DEVELOPER)
        assert await sound(memory)


@pytest.mark.parametrize("moved", [False, True])
async def test_one_is_replaced_by_compare(store: Store, namespace: str, moved: bool) -> None:
    async with store.memory(namespace, Settings(**SMALL)) as memory:
        session = memory.session("a")
        await session.append(SYSTEM, *turns(5 if moved else 2))
        await drained(memory)
        read = (await session.read()).pinned[0]
        stored = await session.replace(read, {"role": "user", "content": "Be long."})
        assert (stored.seq, stored.pinned, stored.stored_ms) == (1, True, read.stored_ms)
        context = await session.read()
        assert context.pinned == [stored]
        assert context.to_openai()[0] == {"role": "user", "content": "Be long."}
        with pytest.raises(Conflict, match="changed since it was read"):
            await session.replace(read, SYSTEM)
        with pytest.raises(Conflict, match="changed since it was read"):
            await session.unpin(read)
        assert (await session.read()) == context
        await session.clear()
        await session.append(SYSTEM)
        with pytest.raises(Conflict, match="changed since it was read"):
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
        assert await sound(memory)
        assert await drained(memory) == 1
        assert seqs((await session.read()).messages) == [4, 5]
        assert await sound(memory)


@pytest.mark.parametrize("kept", [False, True])
async def test_unpinned_behind_the_window_it_leaves_the_context(store: Store, namespace: str, kept: bool) -> None:
    async with store.memory(namespace, Settings(**SMALL, keep_originals=kept)) as memory:
        session = memory.session("a")
        await session.append(*turns(1), SYSTEM, *turns(4, 1))
        await drained(memory)
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
        assert await sound(memory)


@pytest.mark.parametrize("kept", [False, True])
async def test_messages_have_their_order_wherever_they_are(store: Store, namespace: str, kept: bool) -> None:
    async with store.memory(namespace, Settings(**SMALL, keep_originals=kept)) as memory:
        session = memory.session("a")
        await session.append(SYSTEM, *turns(3), DEVELOPER, *turns(3, 3))
        await drained(memory)
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
        await session.append(SYSTEM, *turns(3), said("keep"), merge={"a": 1})
        await session.append(said("pinned"), pin=True)
        await session.pop(1)
        assert await session.prune(1) == 2
        context = await session.read()
        assert (seqs(context.pinned), seqs(context.messages)) == ([1, 6], [4])
        assert await sound(memory)
        await session.append(*turns(5, 10))
        await drained(memory)
        context = await session.read()
        archive = tmp_path / "archive.jsonl"
        await memory.session("b").append(said("newer"))
        assert await Eviction(memory.store, JsonlArchive(archive)).enforce() == 1
        (handed_over,) = read_archive(archive)
        assert handed_over.pinned == context.pinned
        assert handed_over.to_openai()[:2] == [SYSTEM, said("pinned")]
        assert seqs(handed_over.messages) == [4, *range(8, 13)]
        assert handed_over.window_version == context.window_version != ""


async def test_params_are_counted_without_them(store: Store, namespace: str) -> None:
    async with store.memory(namespace, Settings(**SMALL, max_params_count=2)) as memory:
        session = memory.session("a")
        await session.append(*(SYSTEM for _ in range(10)), *turns(5))
        await drained(memory)
        await session.merge({"a": 1, "b": 2})
        with pytest.raises(TooLarge, match="would hold 3 params"):
            await session.merge({"c": 3})
        assert len((await session.read()).pinned) == 10


PROPERTY = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
steps = st.lists(
    st.tuples(
        st.sampled_from(["append", "append", "pin", "system", "drain", "prune", "pop", "undo", "replace", "unpin"]),
        st.integers(0, 6),
    ),
    min_size=1,
    max_size=14,
)


class History:
    """What a session must hold of what was pinned, and what was ever said, by its seq."""

    def __init__(self, session: AsyncSession, told: Conversation) -> None:
        self.session, self._told = session, iter(told.payloads)
        self.pinned: dict[int, dict[str, Any]] = {}
        self.given: dict[int, dict[str, Any]] = {}

    async def append(self, count: int, kind: str) -> None:
        batch = list(itertools.islice(self._told, count + 1)) if kind != "system" else [{**SYSTEM, "n": count}]
        if batch:
            receipt = await self.session.append(*batch, pin=True if kind == "pin" else None)
            placed = dict(enumerate(batch, receipt.first_seq))
            assert not set(placed) & set(self.given), "a seq is given once"
            self.given |= placed
            self.pinned |= placed if kind != "append" else {}

    async def edit(self, kind: str, number: int) -> None:
        context = await self.session.read()
        try:
            if kind in ("pop", "undo"):
                popped = await (self.session.undo() if kind == "undo" else self.session.pop(number + 1))
                assert not {message.seq for message in popped} & set(self.pinned)
            elif kind == "unpin" and self.pinned:
                seq = sorted(self.pinned)[number % len(self.pinned)]
                assert (await self.session.unpin(seq)).to_openai() == self.pinned.pop(seq)
            elif kind == "replace" and context.messages + context.pinned:
                found = sorted(context.messages + context.pinned, key=lambda each: each.seq)
                old = found[number % len(found)]
                new = old.to_openai() | {"changed": number}
                await self.session.replace(old, new)
                self.given[old.seq] = new
                self.pinned |= {old.seq: new} if old.seq in self.pinned else {}
        except NotInWindow:
            assert context.summaries or context.first_seq > 1

    def check(self, context: Context) -> None:
        assert {message.seq: message.to_openai() for message in context.pinned} == self.pinned
        assert list(seqs(context.pinned)) == sorted(self.pinned)
        for message in context.messages:
            assert message.to_openai() == self.given[message.seq]
        shown = context.to_openai()
        assert complaints(shown, False) == []
        every = [self.pinned[seq] for seq in sorted(self.pinned)] + [each.to_openai() for each in context.messages]
        prompts = [payload for payload in every if payload.get("role") == "system"]
        assert [payload for payload in shown if payload.get("role") == "system"] == prompts


@PROPERTY
@given(told=conversations(max_size=40), steps=steps, kept=st.booleans(), trims=st.booleans())
async def test_whatever_happens_pinned_messages_stay_first_and_whole(
    store: Store, namespace: str, told: Conversation, steps: list[tuple[str, int]], kept: bool, trims: bool
) -> None:
    limits = Settings(**SMALL, keep_originals=kept, summaries_limit=2, open_call_s=0)
    async with store.memory(namespace, limits) as memory:
        history = History(memory.session(f"s{next(_numbers)}"), told)
        worker = Worker(memory.store, Trim() if trims else Summarize(open_extractive()))
        for kind, number in steps:
            if kind in ("append", "pin", "system"):
                await history.append(number, kind)
            elif not history.given:
                continue
            elif kind == "drain":
                await worker.drain()
            elif kind == "prune":
                await history.session.prune(number)
            else:
                await history.edit(kind, number)
            history.check(await history.session.read())
        assert await sound(memory)
        await history.session.clear()
