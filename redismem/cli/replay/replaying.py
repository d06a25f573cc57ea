"""Replays a file of transcripts: stores them turn by turn, many at once, has them summarised, reads them back and
compares. Prints nothing.

The file is read twice, line by line: once to store, once to compare with what came back. Held in memory are the ids.
Summarised messages are kept as originals, so that what is compared is what the summaries stand for, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from array import array
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from redismem.cli.replay.transcripts import BadLine, Transcript, first_difference, lines, parse, turns
from redismem.context import Context
from redismem.errors import Conflict, RedismemError, StoreUnavailable
from redismem.inspection.check import check_session
from redismem.inspection.traffic import counted, warm_up
from redismem.inspection.weight import stored_bytes
from redismem.memory import Memory
from redismem.messages.message import Message
from redismem.session.session import Session
from redismem.workers.outcomes import SummaryOutcome
from redismem.workers.strategies import Strategy
from redismem.workers.summaries import Worker

LISTED_PROBLEMS = 100


@dataclass(slots=True)
class Findings:
    """What came out. `messages` and `raw_bytes` are those of the sessions that were stored whole."""

    sessions: int = 0
    messages: int = 0
    raw_bytes: int = 0
    seconds: float = 0.0
    latencies_ms: array[float] = field(default_factory=lambda: array("d"))
    trips: int = 0
    stored_bytes: int | None = None
    summaries: int = 0
    """Written; those that were folded into others later are counted too."""
    covered_messages: int = 0
    summarising_seconds: float = 0.0
    checked: int = 0
    """Sessions that were held against the invariants."""
    violations: int = 0
    identical_messages: int = 0
    problems: list[tuple[int, str]] = field(default_factory=list)
    """Line and text of the first ones."""
    problems_count: int = 0

    @property
    def turns(self) -> int:
        return len(self.latencies_ms)

    @property
    def good(self) -> bool:
        return self.problems_count == 0 and self.sessions > 0 and self.identical_messages == self.messages


Advance = Callable[[int], None]
"""Told how many bytes of the file, or how many sessions, were dealt with."""


class Steps(NamedTuple):
    """What each step tells of how far it is."""

    storing: Advance
    summarising: Advance
    comparing: Advance


class Replay:
    """One replay of a file into a namespace. A session that is there already is left alone, unless `replace`.

    `strategy`: who summarises; None, and no summaries are made.
    """

    def __init__(
        self,
        memory: Memory,
        path: Path,
        strategy: Strategy | None,
        *,
        concurrency: int,
        keep: bool,
        replace: bool,
    ) -> None:
        self.found = Findings()
        self._memory = memory
        self._store = memory.store
        self._path = path
        self._worker = None if strategy is None else Worker(memory.store, strategy, concurrency=concurrency)
        self._concurrency = concurrency
        self._keep = keep
        self._replace = replace
        self._line_of: dict[str, int] = {}
        self._stored_lines: set[int] = set()
        self._to_clear: set[str] = set()

    async def run(self, steps: Steps) -> Findings:
        """Raises StoreUnavailable. What was stored is cleared again in any case, unless it is to be kept."""
        try:
            await warm_up(self._store, self._concurrency)
            counted_store, counter = counted(self._store)
            async with Memory(counted_store) as turning:
                counter.trips = 0
                start = time.perf_counter()
                await self._each_line(lambda number, line: self._take(turning, number, line), steps.storing)
                self.found.seconds = time.perf_counter() - start
                self.found.trips = counter.trips
            stored = [session_id for session_id, line in self._line_of.items() if line in self._stored_lines]
            self.found.stored_bytes = await stored_bytes(self._store, stored)
            await self._summarise(stored, steps.summarising)
            await self._each_line(self._compare, steps.comparing)
            return self.found
        finally:
            await self._clear_the_rest()

    async def _each_line(self, work: Callable[[int, bytes], Awaitable[None]], advance: Advance) -> None:
        source = lines(self._path)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._concurrency):
                    group.create_task(_work_through(source, work, advance))
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def _take(self, turning: Memory, number: int, line: bytes) -> None:
        try:
            transcript = parse(number, line, self._store.keys.session)
            if transcript.session_id in self._line_of:
                raise BadLine(
                    f"session {transcript.session_id} again, it was on line {self._line_of[transcript.session_id]}"
                )
            self._line_of[transcript.session_id] = number
            await self._make_room(transcript.session_id)
            await self._send_turns(turning.session(transcript.session_id), transcript)
        except StoreUnavailable:
            raise
        except (BadLine, RedismemError) as refused:
            self._problem(number, str(refused))
            return
        self._stored_lines.add(number)
        self.found.sessions += 1
        self.found.messages += len(transcript.messages)
        self.found.raw_bytes += transcript.raw_bytes

    async def _make_room(self, session_id: str) -> None:
        session = self._memory.session(session_id)
        if not await session.exists():
            return
        if not self._replace:
            raise BadLine(
                f"session {session_id} exists already in namespace {self._store.keys.namespace}: left alone "
                "(--replace clears it first, --namespace names another place)"
            )
        await session.clear()

    async def _send_turns(self, session: Session, transcript: Transcript) -> None:
        sent = 0
        self._to_clear.add(session.id)  # before it is sent: a turn that is interrupted may have arrived
        try:
            for turn in turns(transcript.messages, self._memory.settings.max_batch_count):
                start = time.perf_counter()
                context = await session.append_and_read(*turn, expect=sent)
                self.found.latencies_ms.append((time.perf_counter() - start) * 1000)
                sent += len(turn)
                if context.last_seq != sent or _newest(context).to_openai() != turn[-1]:
                    self._problem(transcript.line, f"session {session.id}: a turn did not come back with its context")
        except Conflict:
            self._to_clear.discard(session.id)
            raise BadLine(f"session {session.id}: somebody else writes to it; it was left as it is") from None
        except StoreUnavailable:
            raise
        except RedismemError:
            await self._clear(session.id)  # skipped whole: half a transcript is of no use
            raise

    async def _summarise(self, session_ids: list[str], advance: Advance) -> None:
        """Has each session summarised until nothing of it is due: only those of the file, as there may be others."""
        if self._worker is None:
            return
        start = time.perf_counter()
        source = iter(session_ids)
        async with asyncio.TaskGroup() as group:
            for _ in range(self._concurrency):
                group.create_task(self._summarise_each(self._worker, source, advance))
        self.found.summarising_seconds = time.perf_counter() - start

    async def _summarise_each(self, worker: Worker, source: Iterator[str], advance: Advance) -> None:
        for session_id in source:
            while (outcome := await worker.attend(session_id)) is SummaryOutcome.OK:
                self.found.summaries += 1
            if outcome not in (SummaryOutcome.NONE, SummaryOutcome.NOOP):
                self._problem(self._line_of[session_id], f"session {session_id}: not summarised: {outcome}")
            advance(1)

    async def _check(self, number: int, session_id: str) -> None:
        self.found.checked += 1
        for violation in await check_session(self._store, session_id):
            self.found.violations += 1
            self._to_clear.discard(session_id)
            self._problem(number, f"session {session_id}: {violation.invariant}: {violation.text}; it was kept")

    async def _compare(self, number: int, line: bytes) -> None:
        if number not in self._stored_lines:
            return
        try:
            transcript = parse(number, line, self._store.keys.session)
            await self._check(number, transcript.session_id)
            session = self._memory.session(transcript.session_id)
            messages = await session.messages(include_originals=self._worker is not None)
            info = await session.info()
            self.found.covered_messages += info.first_seq - 1
        except StoreUnavailable:
            raise
        except (BadLine, RedismemError) as refused:
            self._problem(number, f"cannot be read back: {refused}")
            return
        difference = first_difference(transcript.messages, [message.to_openai() for message in messages])
        if difference is not None:
            self._to_clear.discard(transcript.session_id)
            self._problem(number, f"session {transcript.session_id}: {difference}; it was kept, look at it")
            return
        self.found.identical_messages += len(messages)
        if transcript.session_id in self._to_clear and not self._keep:
            await self._clear(transcript.session_id)

    async def _clear(self, session_id: str) -> None:
        await self._memory.session(session_id).clear()
        self._to_clear.discard(session_id)

    async def _clear_the_rest(self) -> None:
        """Clears what an interruption has left; with a store that is gone there is only the timeout."""
        with contextlib.suppress(RedismemError):
            for session_id in () if self._keep else sorted(self._to_clear):
                await self._clear(session_id)

    def _problem(self, line: int, text: str) -> None:
        self.found.problems_count += 1
        if len(self.found.problems) < LISTED_PROBLEMS:
            self.found.problems.append((line, text))


def _newest(context: Context) -> Message:
    return max((*context.pinned, *context.messages), key=lambda message: message.seq)


async def _work_through(
    source: Iterator[tuple[int, bytes]], work: Callable[[int, bytes], Awaitable[None]], advance: Advance
) -> None:
    """One of many that take lines from the same source: each takes the next when it is done with one."""
    for number, line in source:
        await work(number, line)
        advance(len(line))
