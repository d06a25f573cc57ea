"""Play the bundled conversation: run its turns and drains, and compare the session with `Expected` after each."""

from __future__ import annotations

import time

from redismem.cli.demo.expected import Check, Drained, Expected, Played, Turn, same
from redismem.context import Context
from redismem.errors import Conflict
from redismem.inspection.sessions import keys_left
from redismem.inspection.traffic import count_trips, warm_up
from redismem.memory import Memory
from redismem.workers import strategies
from redismem.workers.outcomes import SummaryOutcome
from redismem.workers.summaries import Worker

_LONG_COUNT = 200
_FACT = "Leave parcels at the blue kiosk beside the mill."
_QUESTION = "Where was my parcel to be left?"


class Playing:
    """A run of the demo on a new session."""

    def __init__(self, memory: Memory, session_id: str) -> None:
        self.session = memory.session(session_id)
        self.played: list[Played] = []
        self.drained: dict[int, Drained] = {}
        """The result of each drain, by the number of the turn before it."""
        self.checks: list[Check] = []
        self._memory = memory
        store, self._counter = count_trips(memory.store)
        self._counted = Memory(store)
        self._expected = Expected(memory.settings.threshold, memory.settings.recent_limit)

    @property
    def good(self) -> bool:
        wrong = [*(each.wrong for each in self.played), *(each.wrong for each in self.drained.values())]
        return not any(wrong) and all(check.good for check in self.checks)

    @property
    def context(self) -> Context:
        """The context that the model would get now."""
        last = self.played[-1]
        drained = self.drained.get(last.turn.number)
        return last.context if drained is None else drained.context

    async def play(self, turn: Turn) -> Played:
        """Send a turn, then read the session and check it."""
        if not self.played:
            await warm_up(self._memory.store)
            await self._counted.session(self.session.id).exists()
        session = self._counted.session(self.session.id)
        self._counter.trips, start = 0, time.perf_counter()
        if turn.reads:
            context = await session.append_and_read(*turn.messages, id=turn.id, **turn.change)
            receipt = context.receipt
            trips, ms = self._counter.trips, (time.perf_counter() - start) * 1000
        else:
            receipt = await session.append(*turn.messages, id=turn.id, **turn.change)
            trips, ms = self._counter.trips, (time.perf_counter() - start) * 1000
            context = await self.session.read()
        info = await self.session.info()
        assert receipt is not None
        self._expected.apply_turn(turn)
        wrong = self._expected.differences(context, info)
        if context.summary_version != self._expected.summary_version:
            wrong.append("summary_version differs")
        if trips != 1:
            wrong.append(f"the turn took {trips} round trips")
        self.played.append(Played(turn, receipt, context, info, trips, ms, wrong))
        return self.played[-1]

    async def drain(self, turn: Turn) -> Drained:
        """Summarise this session as a worker would. Leaves other sessions alone: the store may be shared."""
        assert turn.drain is not None
        strategy = strategies.from_settings(self._memory.settings)
        assert strategy is not None
        start = time.perf_counter()
        outcome = await Worker(self._memory.store, strategy).attend(self.session.id)
        ms = (time.perf_counter() - start) * 1000
        context, info = await self.session.read(), await self.session.info()
        originals = await self.session.messages(include_originals=True)
        self._expected.apply_drain()
        wrong = [] if outcome is SummaryOutcome.OK else [f"the drain's outcome is {outcome}"]
        wrong += self._expected.differences(context, info)
        wrong += self._expected.summary_differences(context, originals, turn.drain["keeps"])
        self._expected.summary_version = context.summary_version
        self.drained[turn.number] = Drained(turn.drain["note"], context, info, ms, wrong)
        return self.drained[turn.number]

    async def finish(self) -> None:
        """Check another reader, a repeated append, a conflict, a clear and recall, which the turns do not cover."""
        await self._check_read_back()
        await self._check_duplicate()
        await self._check_conflict()
        await self._check_clear()
        await self._check_recall()

    async def _is_unchanged(self) -> bool:
        context = await self.session.read()
        info = await self.session.info()
        return not self._expected.differences(context, info)

    async def _check_read_back(self) -> None:
        expected = self._expected.messages
        other = Memory(count_trips(self._memory.store)[0]).session(self.session.id)
        stored = [message.to_openai() for message in await other.messages(include_originals=True)]
        outcome = f"{len(stored)} of {len(expected)} messages came back in order and unchanged"
        name = "read through another handle, as in another pod, summarised messages included"
        self.checks.append(Check(name, outcome, same(stored, expected)))

    async def _check_duplicate(self) -> None:
        last = self.played[-1]
        receipt = await self.session.append(*last.turn.messages, id=last.turn.id)
        same_seqs = (receipt.first_seq, receipt.last_seq) == (last.receipt.first_seq, last.receipt.last_seq)
        outcome = f"duplicate={receipt.duplicate}, the first receipt again (seq {receipt.last_seq}), nothing written"
        good = receipt.duplicate and same_seqs and await self._is_unchanged()
        self.checks.append(Check(f'the last append again, id="{last.turn.id}"', outcome, good))

    async def _check_conflict(self) -> None:
        count = len(self._expected.messages)
        try:
            await self.session.append({"role": "user", "content": "Too late."}, expect=count - 1)
            outcome, good = "the append was accepted", False
        except Conflict as refused:
            outcome = f"Conflict(last_seq={refused.last_seq}), nothing written"
            good = refused.last_seq == count and await self._is_unchanged()
        self.checks.append(Check(f"a stale append, with expect={count - 1}", outcome, good))

    async def _check_clear(self) -> None:
        await self.session.clear()
        key_count = await keys_left(self._memory.store, self.session.id)
        receipt = await self.session.append({"role": "user", "content": "Hello again."})
        outcome = f"{key_count} keys left; the next append starts a new session at seq {receipt.first_seq}"
        self.checks.append(Check("clear", outcome, key_count == 0 and receipt.created and receipt.first_seq == 1))

    async def _check_recall(self) -> None:
        """Check that recall finds message 3 of a long conversation, in the session that `_check_clear` left."""
        chat = [
            {"role": "user", "content": f"Page {number} of the manual is read."} for number in range(2, _LONG_COUNT)
        ]
        chat[1] = {"role": "user", "content": _FACT}
        await self.session.append(*chat)
        strategy = strategies.from_settings(self._memory.settings)
        assert strategy is not None
        await Worker(self._memory.store, strategy).attend(self.session.id)
        context = await self.session.append_and_read({"role": "user", "content": _QUESTION}, recall=100)
        fact = next((message for message in context.recalled if message.content == _FACT), None)
        good = fact is not None and fact.seq == 3 and any(_FACT in str(message) for message in context.to_openai())
        recalled = f"message {fact.seq} of {context.total_messages}" if fact is not None else "nothing"
        self.checks.append(Check(f'"{_QUESTION}"', f'{recalled} is given to the model: "{_FACT}"', good))
