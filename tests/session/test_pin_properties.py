"""Properties of pins: after any edits, pinned messages stay complete and come first."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from support.conversations import Conversation, conversations
from support.edited import SMALL, SYSTEM, is_sound, seqs
from support.provider_rules import complaints
from support.stores import Store

from redismem import Session, Settings
from redismem.context.context import Context
from redismem.errors import NotInWindow
from redismem.models import open_extractive
from redismem.workers.strategies import Summarize, Trim
from redismem.workers.summaries import Worker

_numbers = itertools.count(1)
steps = st.lists(
    st.tuples(
        st.sampled_from(["append", "append", "pin", "system", "drain", "prune", "pop", "undo", "replace", "unpin"]),
        st.integers(0, 6),
    ),
    min_size=1,
    max_size=8,
)


class History:
    """The expected pinned messages of a session, and all messages ever appended, by seq."""

    def __init__(self, session: Session, told: Conversation) -> None:
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


@given(told=conversations(max_size=14), steps=steps, kept=st.booleans(), trims=st.booleans())
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
        assert await is_sound(memory)
        await history.session.clear()
