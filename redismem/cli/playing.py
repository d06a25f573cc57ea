"""Plays the bundled conversation, and compares after each turn what the memory gives with what was put in."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from redismem.calls import Call
from redismem.cli.measuring import counted, warm_up
from redismem.context import Context, Receipt, SessionInfo, State
from redismem.errors import Conflict
from redismem.memory import Memory

_STATE = ("merge", "waiting", "last_intent", "last_result", "plan")


@dataclass(frozen=True, slots=True)
class Turn:
    """One call of the host, as the file has it."""

    number: int
    id: str
    note: str
    reads: bool
    messages: list[dict[str, Any]]
    change: dict[str, Any]
    """`merge`, `waiting` and the others, where this turn sets them."""


@dataclass(frozen=True, slots=True)
class Played:
    """A turn, what the model would be given after it, and what is wrong with that."""

    turn: Turn
    receipt: Receipt
    context: Context
    info: SessionInfo
    trips: int
    ms: float
    wrong: list[str]


@dataclass(slots=True)
class Check:
    """Something shown at the end: what was done, what came of it, and whether it had to."""

    name: str
    seen: str
    good: bool


@dataclass(slots=True)
class Expected:
    """What the memory must hold: kept here, beside it."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    state: dict[str, Any] = field(default_factory=lambda: dict.fromkeys(_STATE[1:]) | {"merge": {}})

    def take(self, turn: Turn) -> None:
        self.messages += turn.messages
        change = dict(turn.change)
        self.state["merge"] = self.state["merge"] | change.pop("merge", {})
        self.state |= change

    def differences(self, context: Context, info: SessionInfo, threshold: int) -> list[str]:
        """What is not as it must be, in words."""
        count, recent = len(self.messages), context.recent_limit
        queue = "overdue" if count > threshold else None
        comparisons = (
            ("the messages for the model", context.to_openai(), self.messages),
            ("pending", [each.seq for each in context.pending], list(range(1, max(0, count - recent) + 1))),
            ("recent", [each.seq for each in context.recent], list(range(max(0, count - recent) + 1, count + 1))),
            ("total_messages", context.total_messages, count),
            ("the state", _as_change(context.state), self.state),
            ("the window's count", info.window_count, count),
            ("the queue", info.queued, queue),
        )
        return [f"{name} differ" for name, found, wanted in comparisons if not _same(found, wanted)]


def _as_change(state: State) -> dict[str, Any]:
    return {
        "merge": state.params,
        "waiting": state.waiting_for_param,
        "last_intent": state.last_intent,
        "last_result": state.last_result,
        "plan": state.plan,
    }


def _same(found: Any, wanted: Any) -> bool:
    """As JSON text: there 1, 1.0 and true differ, and null and absent. The order of params does not count."""
    ordered = isinstance(wanted, list)
    return json.dumps(found, sort_keys=not ordered) == json.dumps(wanted, sort_keys=not ordered)


def bundled_turns() -> Iterator[Turn]:
    text = (files("redismem.cli") / "demo.jsonl").read_text("utf-8")
    for number, line in enumerate(text.splitlines(), 1):
        row = json.loads(line)
        change = {name: row[name] for name in _STATE if name in row}
        yield Turn(number, row["id"], row["note"], row.get("read", False), row["messages"], change)


class Playing:
    """One run of the demo on one new session."""

    def __init__(self, memory: Memory, session_id: str) -> None:
        self.session = memory.session(session_id)
        self.played: list[Played] = []
        self.checks: list[Check] = []
        self._memory = memory
        self._counted, self._counter = counted(memory)
        self._expected = Expected()

    @property
    def good(self) -> bool:
        return not any(played.wrong for played in self.played) and all(check.good for check in self.checks)

    async def play(self, turn: Turn) -> Played:
        """Sends a turn and looks at what is there then."""
        if not self.played:
            await warm_up(self._memory)
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
        wrong = self._expected.differences(context, info, self._memory.settings.threshold)
        if trips != 1:
            wrong.append(f"it took {trips} round trips")
        self.played.append(Played(turn, receipt, context, info, trips, ms, wrong))
        return self.played[-1]

    async def finish(self) -> None:
        """What the memory does beyond turns: other readers, an append sent twice, a conflict, a clear."""
        await self._check_read_back()
        await self._check_duplicate()
        await self._check_conflict()
        await self._check_clear()

    async def _unchanged(self) -> bool:
        context = await self.session.read()
        info = await self.session.info()
        return not self._expected.differences(context, info, self._memory.settings.threshold)

    async def _check_read_back(self) -> None:
        wanted = self._expected.messages
        other = counted(self._memory)[0].session(self.session.id)
        found = [message.to_openai() for message in await other.messages()]
        seen = f"{len(found)} of {len(wanted)} messages came back, in order, as they were put in"
        self.checks.append(Check("read by another handle, as by another pod", seen, _same(found, wanted)))

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
        keys = self._memory.keys.session(self.session.id)
        commands = [("EXISTS", key) for key in (keys.messages, keys.state, keys.originals)]
        left = await self._memory.run(Call(self.session.id, tuple(commands), lambda *found: sum(map(int, found))))
        again = await self.session.append({"role": "user", "content": "Hello again."})
        seen = f"{left} keys left; the next append begins a new session at seq {again.first_seq}"
        self.checks.append(Check("clear", seen, left == 0 and again.created and again.first_seq == 1))
