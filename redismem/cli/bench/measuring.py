"""Measure turns on a Redis: throughput and costs beside redis-py by hand, latencies in an open loop, bytes."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from redismem.cli.bench.offering import Closed, Open, Turn, closed_loop, open_loop
from redismem.inspection.erasing import erase_namespace
from redismem.inspection.loading import warm_up
from redismem.inspection.servers import server_cpu_s
from redismem.inspection.weight import stored_bytes
from redismem.memory.memory import Memory
from redismem.transport.redis_py.by_hand import ByHand

ROUNDS = 3
"""The rounds of the closed loops; the sides alternate. Figures are medians."""
SESSION_TURNS, SESSIONS_PER_CALLER = 8, 16
SHARES = (0.5, 0.8)
"""The shares of the measured throughput that the open loops offer."""
_WARM_S = 0.3
_WEIGHED_COUNT = 1_000


@dataclass(slots=True)
class Side:
    """The closed loops of one side, a value per round."""

    turns_per_s: list[float] = field(default_factory=list)
    client_us: list[float] = field(default_factory=list)
    server_us: list[float] = field(default_factory=list)
    """Redis' CPU per turn; empty if Redis does not report it."""

    def add(self, closed: Closed, server_s: float | None) -> None:
        self.turns_per_s.append(closed.turns_per_s)
        self.client_us.append(closed.client_s / max(1, closed.turns) * 1e6)
        if server_s is not None:
            self.server_us.append(server_s / max(1, closed.turns) * 1e6)


@dataclass(slots=True)
class Measured:
    """All figures of a run. A list is empty, and a value `None`, where nothing could be measured."""

    ours: Side = field(default_factory=Side)
    by_hand: Side = field(default_factory=Side)
    trips_per_turn: float = 0.0
    offered: list[Open] = field(default_factory=list)
    session_bytes: float | None = None


class Bench:
    """One run on a namespace of its own, which is removed at the end."""

    def __init__(
        self, memory: Memory, sent: Callable[[], int], by_hand: ByHand | None, callers: int, message_bytes: int
    ) -> None:
        """Prepare a run. `sent` returns the number of turns' calls sent so far, with retries."""
        self._memory, self._sent, self._by_hand, self._callers = memory, sent, by_hand, callers
        self._question = {"role": "user", "content": "q" * message_bytes}
        self._answer = {"role": "assistant", "content": "a" * message_bytes}
        self._turns: Counter[int] = Counter()
        self._session_of: dict[int, str] = {}
        self._sessions: dict[str, None] = {}

    async def run(self, seconds: float, advance: Callable[[str], None]) -> Measured:
        """Measure for this long in each loop. `advance` is told each step that begins.

        Raises:
            RedismemError, OSError: Redis fails.
        """
        measured = Measured()
        try:
            advance("warming up")
            await warm_up(self._memory.store)
            await closed_loop(self._ours, self._callers, _WARM_S)
            sides: list[tuple[str, Side, Turn]] = [("redismem", measured.ours, self._ours)]
            if self._by_hand is not None:
                sides.append(("redis-py by hand", measured.by_hand, self._hand))
            sent, turns = self._sent(), 0
            for number in range(ROUNDS):
                for name, side, turn in sides if number % 2 == 0 else sides[::-1]:
                    advance(f"round {number + 1} of {ROUNDS}: {name}, {self._callers} turns at a time")
                    before_s = await server_cpu_s(self._memory.store)
                    closed = await closed_loop(turn, self._callers, seconds)
                    after_s = await server_cpu_s(self._memory.store)
                    turns += closed.turns if side is measured.ours else 0
                    side.add(closed, None if before_s is None or after_s is None else after_s - before_s)
            measured.trips_per_turn = (self._sent() - sent) / max(1, turns)
            measured.session_bytes = await self._session_bytes()
            per_s = statistics.median(measured.ours.turns_per_s)
            for share in SHARES:
                advance(f"open loop: {share:.0%} of {per_s:,.0f} turns per second")
                measured.offered.append(await open_loop(self._ours, per_s * share, seconds))
            return measured
        finally:
            advance("removing what was written")
            await self._remove()

    async def _ours(self, number: int) -> None:
        session_id = self._session(number)
        self._sessions[session_id] = None
        session = self._memory.session(session_id)
        context = await session.append_and_read(self._question)
        context.to_openai()
        await session.append(self._answer)

    async def _hand(self, number: int) -> None:
        assert self._by_hand is not None
        await self._by_hand.turn(self._session(number), self._question, self._answer)

    def _session(self, number: int) -> str:
        """Return the session of the next turn: one of many, each replaced by a new one after SESSION_TURNS turns."""
        place = number % (SESSIONS_PER_CALLER * self._callers)
        if self._turns[place] % SESSION_TURNS == 0:
            self._session_of[place] = self._memory.new_session_id()
        self._turns[place] += 1
        return self._session_of[place]

    async def _session_bytes(self) -> float | None:
        weighed = list(self._sessions)[:_WEIGHED_COUNT]
        whole = await stored_bytes(self._memory.store, weighed)
        return None if whole is None or not weighed else whole / len(weighed)

    async def _remove(self) -> None:
        try:
            if self._by_hand is not None:
                await self._by_hand.aclose()
        finally:
            await erase_namespace(self._memory.store, self._sessions)
