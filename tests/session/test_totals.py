"""total_messages: whatever is archived, forgotten, rewritten and popped, each message counts once."""

from __future__ import annotations

import itertools

from hypothesis import example, given
from hypothesis import strategies as st
from support.conversations import user_message
from support.edited import SYSTEM, seqs, summarize
from support.stores import Store

from redismem import Memory, Session, Settings
from redismem.errors import InvalidSettings, NotInWindow
from redismem.workers.strategies import Trim
from redismem.workers.summaries import Worker

_numbers = itertools.count(1)
LIMITS = Settings(threshold=4, recent_limit=2, shards=1, keep_originals=True, summaries_limit=3)
EDITS = ("append", "append", "pin", "archive", "summarize", "trim", "forget", "pop", "pop exactly", "undo", "rewrite")
steps = st.lists(st.tuples(st.sampled_from((*EDITS, "unpin", "replace", "prune")), st.integers(0, 40)), max_size=14)
FOUR = [("append", 3)]


class Counted:
    """A session, and the seqs of the messages that it must count."""

    def __init__(self, memory: Memory, session: Session) -> None:
        self._memory, self.session = memory, session
        self.seqs = set[int]()
        self.pruned = set[int]()

    async def do(self, kind: str, number: int) -> None:
        """Make one edit. One that is refused changes nothing."""
        if kind in ("append", "pin"):
            batch = [user_message("text")] * (1 + number % 19)
            receipt = await self.session.append(*batch, pin=kind == "pin" or None)
            self.seqs |= set(range(receipt.first_seq, receipt.last_seq + 1))
        elif self.seqs or self.pruned:
            try:
                await self._edit(kind, number)
            except NotInWindow:
                assert (await self.session.read()).first_seq > 1
            except InvalidSettings:
                assert kind == "archive", "nothing is archived if no originals are kept"

    async def _edit(self, kind: str, number: int) -> None:
        context, session = await self.session.read(), self.session
        if kind == "archive":
            await session.archive(number)
        elif kind == "summarize":
            await summarize(self._memory)
        elif kind == "trim":
            await Worker(self._memory.store, Trim()).drain()
        elif kind == "forget":
            self.seqs -= set((await session.forget(number + 1, number + 3)).seqs)
        elif kind in ("pop", "pop exactly"):
            self.seqs -= set(seqs(await session.pop(1 + number, exact=kind == "pop exactly")))
        elif kind == "undo":
            self.seqs -= set(seqs(await session.undo()))
        elif kind == "rewrite":
            receipt = await session.rewrite(min(number + 1, context.last_seq + 1), [user_message("new")] * (number % 3))
            self.seqs = {seq for seq in self.seqs if seq <= number}
            self.seqs |= set(range(receipt.first_seq, receipt.first_seq + number % 3))
        elif kind == "prune":
            await session.prune(number)
            context = await session.read()
            self.pruned |= self.seqs - {*seqs(context.pinned), *seqs(context.messages)}
        elif context.pinned:
            message = context.pinned[number % len(context.pinned)]
            await (session.unpin(message) if kind == "unpin" else session.replace(message, SYSTEM))

    async def check(self, keeps: bool) -> None:
        """Compare the session. Of messages that were pruned or not kept, only the number is known."""
        total = (await self.session.info()).total_messages
        readable = seqs(await self.session.messages(include_originals=True))
        if keeps and not self.pruned:
            assert readable == sorted(self.seqs)
            assert total == len(readable)
        assert set(readable) <= self.seqs
        assert len(readable) <= total <= len(self.seqs)


@given(steps=steps, keeps=st.sampled_from([True, True, False]))
@example(steps=[*FOUR, ("archive", 4), ("forget", 1), ("rewrite", 0)], keeps=True)
@example(steps=[*FOUR, ("archive", 4), ("forget", 1), ("rewrite", 1)], keeps=True)
@example(steps=[*FOUR, ("archive", 4), ("forget", 1), ("pop exactly", 1)], keeps=True)
@example(steps=[*FOUR, ("append", 13), ("rewrite", 3), ("archive", 3), ("pop exactly", 0)], keeps=True)
async def test_each_message_counts_once(
    store: Store, namespace: str, steps: list[tuple[str, int]], keeps: bool
) -> None:
    async with store.memory(f"{namespace}-{keeps}", LIMITS.model_copy(update={"keep_originals": keeps})) as memory:
        counted = Counted(memory, memory.session(f"s{next(_numbers)}"))
        for kind, number in steps:
            await counted.do(kind, number)
            if counted.seqs or counted.pruned:
                await counted.check(keeps)


async def test_what_a_summary_lists_counts_until_it_is_forgotten(store: Store, namespace: str) -> None:
    async with store.memory(namespace, LIMITS.model_copy(update={"keep_originals": False})) as memory:
        session = memory.session("a")
        await session.append(*[user_message("text")] * 8)
        assert await summarize(memory) == 1
        for seqs_to_forget, forgotten, total in (((2, 3), (2, 3), 6), ((2, 3), (), 6), ((8,), (8,), 5)):
            assert (await session.forget(*seqs_to_forget)).seqs == forgotten
            assert (await session.info()).total_messages == total
