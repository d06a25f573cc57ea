"""Plays the bundled conversation, has it summarised, and compares after each step what is there with what must be."""

from __future__ import annotations

import time

from redismem.cli.demo.expected import Check, Drained, Expected, Played, Turn, same
from redismem.context import Context
from redismem.errors import Conflict
from redismem.inspection.sessions import keys_left
from redismem.inspection.traffic import counted, warm_up
from redismem.memory import Memory
from redismem.workers import strategies
from redismem.workers.outcomes import SummaryOutcome
from redismem.workers.summaries import Worker

_LONG_COUNT = 200
_TOLD = "Leave parcels at the blue kiosk beside the mill."
_ASKED = "Where was my parcel to be left?"


class Playing:
    """One run of the demo on one new session."""

    def __init__(self, memory: Memory, session_id: str) -> None:
        self.session = memory.session(session_id)
        self.played: list[Played] = []
        self.drained: dict[int, Drained] = {}
        """What each drain did, by the number of the turn before it."""
        self.checks: list[Check] = []
        self._memory = memory
        store, self._counter = counted(memory.store)
        self._counted = Memory(store)
        self._expected = Expected(memory.settings.threshold, memory.settings.recent_limit)

    @property
    def good(self) -> bool:
        wrong = [*(each.wrong for each in self.played), *(each.wrong for each in self.drained.values())]
        return not any(wrong) and all(check.good for check in self.checks)

    @property
    def context(self) -> Context:
        """What the model would be given now."""
        last = self.played[-1]
        drained = self.drained.get(last.turn.number)
        return last.context if drained is None else drained.context

    async def play(self, turn: Turn) -> Played:
        """Sends a turn and looks at what is there then."""
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
        self._expected.take(turn)
        wrong = self._expected.differences(context, info)
        if context.summary_version != self._expected.summary_version:
            wrong.append("summary_version differs")
        if trips != 1:
            wrong.append(f"it took {trips} round trips")
        self.played.append(Played(turn, receipt, context, info, trips, ms, wrong))
        return self.played[-1]

    async def drain(self, turn: Turn) -> Drained:
        """What a worker does, with this session alone: others may be playing in the same store."""
        assert turn.drain is not None
        strategy = strategies.from_settings(self._memory.settings)
        assert strategy is not None
        start = time.perf_counter()
        outcome = await Worker(self._memory.store, strategy).attend(self.session.id)
        ms = (time.perf_counter() - start) * 1000
        context, info = await self.session.read(), await self.session.info()
        originals = await self.session.messages(include_originals=True)
        self._expected.take_drain()
        wrong = [] if outcome is SummaryOutcome.OK else [f"the drain's outcome is {outcome}"]
        wrong += self._expected.differences(context, info)
        wrong += self._expected.summary_differences(context, originals, turn.drain["keeps"])
        self._expected.summary_version = context.summary_version
        self.drained[turn.number] = Drained(turn.drain["note"], context, info, ms, wrong)
        return self.drained[turn.number]

    async def finish(self) -> None:
        """What the memory does beyond turns: other readers, an append sent twice, a conflict, a clear, a recall."""
        await self._check_read_back()
        await self._check_duplicate()
        await self._check_conflict()
        await self._check_clear()
        await self._check_recall()

    async def _unchanged(self) -> bool:
        context = await self.session.read()
        info = await self.session.info()
        return not self._expected.differences(context, info)

    async def _check_read_back(self) -> None:
        wanted = self._expected.messages
        other = Memory(counted(self._memory.store)[0]).session(self.session.id)
        found = [message.to_openai() for message in await other.messages(include_originals=True)]
        seen = f"{len(found)} of {len(wanted)} messages came back, in order, as they were put in"
        name = "read by another handle, as by another pod, those that were summarised too"
        self.checks.append(Check(name, seen, same(found, wanted)))

    async def _check_duplicate(self) -> None:
        last = self.played[-1]
        receipt = await self.session.append(*last.turn.messages, id=last.turn.id)
        same = (receipt.first_seq, receipt.last_seq) == (last.receipt.first_seq, last.receipt.last_seq)
        seen = f"duplicate={receipt.duplicate}, first receipt again (seq {receipt.last_seq}), nothing written"
        good = receipt.duplicate and same and await self._unchanged()
        self.checks.append(Check(f'the last append again, id="{last.turn.id}"', seen, good))

    async def _check_conflict(self) -> None:
        count = len(self._expected.messages)
        try:
            await self.session.append({"role": "user", "content": "Too late."}, expect=count - 1)
            seen, good = "it was accepted", False
        except Conflict as refused:
            seen = f"Conflict(last_seq={refused.last_seq}), nothing written"
            good = refused.last_seq == count and await self._unchanged()
        self.checks.append(Check(f"an append with expect={count - 1}, one too old", seen, good))

    async def _check_clear(self) -> None:
        await self.session.clear()
        left = await keys_left(self._memory.store, self.session.id)
        again = await self.session.append({"role": "user", "content": "Hello again."})
        seen = f"{left} keys left; the next append begins a new session at seq {again.first_seq}"
        self.checks.append(Check("clear", seen, left == 0 and again.created and again.first_seq == 1))

    async def _check_recall(self) -> None:
        """Checks that recall finds what was said third, at the end, in the session that the clear has left."""
        chat = [
            {"role": "user", "content": f"Page {number} of the manual is read."} for number in range(2, _LONG_COUNT)
        ]
        chat[1] = {"role": "user", "content": _TOLD}
        await self.session.append(*chat)
        strategy = strategies.from_settings(self._memory.settings)
        assert strategy is not None
        await Worker(self._memory.store, strategy).attend(self.session.id)
        context = await self.session.append_and_read({"role": "user", "content": _ASKED}, recall=100)
        found = next((message for message in context.recalled if message.content == _TOLD), None)
        is_there = found is not None and found.seq == 3 and any(_TOLD in str(each) for each in context.to_openai())
        where = f"message {found.seq} of {context.total_messages}" if found is not None else "nothing"
        self.checks.append(Check(f'"{_ASKED}"', f'{where} is given to the model: "{_TOLD}"', is_there))
