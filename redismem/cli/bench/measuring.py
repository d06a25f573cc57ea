"""Measure turns on a Redis: throughput and costs beside redis-py by hand, latencies in an open loop, bytes."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from redismem.cli.bench.offering import Closed, MakeTurn, Open, closed_loop, open_loop
from redismem.cli.bench.talks import Feed, Talk, Turn, most_bytes
from redismem.inspection.erasing import erase_namespace, erase_sessions, expire_shared
from redismem.inspection.loading import warm_up
from redismem.inspection.servers import server_cpu_s
from redismem.inspection.weight import stored_bytes
from redismem.memory.memory import Memory
from redismem.transport.redis_py.by_hand import ByHand

_OURS, _BY_HAND = "redismem", "redis-py by hand"
ROUNDS = 3
"""The rounds of the closed loops; the sides alternate. Figures are medians."""
_SESSIONS_PER_CALLER = 16
SHARES = (0.5, 0.8)
"""The shares of what the process can do that the open loops offer."""
_WARM_S = 0.3
_MOST_BYTES = 256_000_000
"""The most that both sides take in Redis."""


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
        self,
        memory: Memory,
        sent: Callable[[], int],
        by_hand: ByHand | None,
        callers: int,
        talks: Sequence[Talk],
        room_bytes: int,
        kept_s: int,
    ) -> None:
        """Prepare a run. `sent` returns the number of turns' calls sent so far, with retries.

        Ended sessions are removed so often that both sides take at most `room_bytes` in Redis. Indexes expire
        `kept_s` after a measurement, if nothing removes them.
        """
        self._talks, self._kept_s = talks, kept_s
        self._memory, self._sent, self._by_hand, self._callers = memory, sent, by_hand, callers
        # of each side: the current sessions, those that wait to be removed, and those that are being removed
        self._most_ended = max(1, min(room_bytes, _MOST_BYTES) // (6 * most_bytes(talks)))
        places_count = max(callers, min(_SESSIONS_PER_CALLER * callers, self._most_ended))
        self._feeds = {each: Feed(talks, places_count, memory.new_session_id) for each in (_OURS, _BY_HAND)}
        self._removing = asyncio.Lock()
        self._removals = set[asyncio.Task[None]]()

    async def run(self, seconds: float, advance: Callable[[str], None]) -> Measured:
        """Measure for this long in each loop. `advance` is told each step that begins.

        Raises:
            RedismemError, OSError: Redis fails.
        """
        measured = Measured()
        try:
            advance("warming up")
            await warm_up(self._memory.store)
            measured.session_bytes = await self._session_bytes()
            await closed_loop(self._ours, self._callers, _WARM_S)
            await expire_shared(self._memory.store, round(self._kept_s + seconds))
            sides: list[tuple[str, Side, MakeTurn]] = [(_OURS, measured.ours, self._ours)]
            if self._by_hand is not None:
                sides.append((_BY_HAND, measured.by_hand, self._hand))
            sent, turns = self._sent(), 0
            for number in range(ROUNDS):
                for name, side, turn in sides if number % 2 == 0 else sides[::-1]:
                    advance(f"round {number + 1} of {ROUNDS}: {name}, {self._callers} turns at a time")
                    before_s = await server_cpu_s(self._memory.store)
                    closed = await closed_loop(turn, self._callers, seconds)
                    after_s = await server_cpu_s(self._memory.store)
                    turns += closed.turns if side is measured.ours else 0
                    side.add(closed, None if before_s is None or after_s is None else after_s - before_s)
                    await self._remove_ended()
                    await expire_shared(self._memory.store, round(self._kept_s + seconds))
            measured.trips_per_turn = (self._sent() - sent) / max(1, turns)
            per_s = statistics.median(measured.ours.turns_per_s)
            for share in SHARES:
                advance(f"open loop: {share:.0%} of {per_s:,.0f} turns per second")
                offered = await open_loop(self._ours, per_s * share, seconds)
                measured.offered.append(offered)
                per_s = min(per_s, offered.possible_per_s())  # turns that come one by one take more CPU
                await self._remove_ended()
            return measured
        finally:
            advance("removing what was written")
            await self._remove()

    async def _ours(self, number: int) -> None:
        session_id, turn = self._next(_OURS, number)
        try:
            await self._make(session_id, turn)
        finally:
            self._feeds[_OURS].end(session_id)

    async def _make(self, session_id: str, turn: Turn) -> None:
        session, (request, reply) = self._memory.session(session_id), turn
        if request:
            context = await session.append_and_read(*request)
            context.to_openai()
        if reply:
            await session.append(*reply)

    async def _hand(self, number: int) -> None:
        assert self._by_hand is not None
        session_id, (request, reply) = self._next(_BY_HAND, number)
        try:
            await self._by_hand.turn(session_id, request, reply)
        finally:
            self._feeds[_BY_HAND].end(session_id)

    def _next(self, side: str, number: int) -> tuple[str, Turn]:
        feed = self._feeds[side]
        if len(feed.ended) >= self._most_ended and not self._removals:
            task = asyncio.create_task(self._remove_ended())
            self._removals.add(task)
            task.add_done_callback(self._end_removal)
        return feed.next(number)

    def _end_removal(self, task: asyncio.Task[None]) -> None:
        self._removals.discard(task)
        if not task.cancelled():
            task.exception()  # the turns meet it too, and it is theirs that is shown

    async def _session_bytes(self) -> float | None:
        """Return the mean bytes of whole sessions, of which there are as many as callers or talks."""
        weighed = self._talks[:: max(1, len(self._talks) // self._callers)][: self._callers]
        ids = [self._memory.new_session_id() for _ in weighed]
        self._feeds[_OURS].ended += ids

        async def play(session_id: str, talk: Talk) -> None:
            for turn in talk:
                await self._make(session_id, turn)

        await asyncio.gather(*map(play, ids, weighed))
        whole = await stored_bytes(self._memory.store, ids)
        return None if whole is None else whole / len(ids)

    async def _remove_ended(self) -> None:
        """Remove the sessions that get no more turns."""
        async with self._removing:
            for side, feed in self._feeds.items():
                removed = list(feed.ended)
                await self._erase(side, removed)
                del feed.ended[: len(removed)]

    async def _erase(self, side: str, session_ids: Sequence[str]) -> None:
        if side == _OURS:
            await erase_sessions(self._memory.store, session_ids)
        elif self._by_hand is not None:
            await self._by_hand.remove(session_ids)

    async def _remove(self) -> None:
        try:
            await asyncio.gather(*self._removals, return_exceptions=True)
            if self._by_hand is not None:
                await self._erase(_BY_HAND, self._feeds[_BY_HAND].sessions())
                await self._by_hand.aclose()
        finally:
            await erase_namespace(self._memory.store, self._feeds[_OURS].sessions())
