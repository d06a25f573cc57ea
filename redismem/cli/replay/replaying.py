"""Replay a transcript file: store its conversations turn by turn, summarise them, read them back and compare.

The file is read twice, line by line: once to store it, once to compare it with the store. Only the session ids stay in
memory. Summarised messages are kept as originals, so that they are compared too. Prints nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from array import array
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from redismem.cli.replay.transcripts import BadLine, Transcript, first_difference, lines, parse, turns
from redismem.context.context import Context
from redismem.errors import Conflict, RedismemError, StoreUnavailable
from redismem.events import Op
from redismem.inspection.check import check_session
from redismem.inspection.loading import warm_up
from redismem.inspection.weight import stored_bytes
from redismem.memory.memory import Memory
from redismem.messages.message import Message
from redismem.session.session import Session
from redismem.workers.outcomes import SummaryOutcome
from redismem.workers.strategies import Strategy
from redismem.workers.summaries import Worker

LISTED_PROBLEMS = 100


@dataclass(slots=True)
class Findings:
    """Figures and problems of a replay. `messages` and `raw_bytes` count only sessions that were stored completely."""

    sessions: int = 0
    messages: int = 0
    raw_bytes: int = 0
    seconds: float = 0.0
    latencies_ms: array[float] = field(default_factory=lambda: array("d"))
    trips: int = 0
    stored_bytes: int | None = None
    summaries: int = 0
    """The number of summaries written, including summaries that were later folded into another one."""
    covered_messages: int = 0
    summarising_seconds: float = 0.0
    checked: int = 0
    """The number of sessions checked against the invariants."""
    violations: int = 0
    identical_messages: int = 0
    problems: list[tuple[int, str]] = field(default_factory=list)
    """The line number and text of the first `LISTED_PROBLEMS` problems."""
    problems_count: int = 0

    @property
    def turns(self) -> int:
        return len(self.latencies_ms)

    @property
    def good(self) -> bool:
        return self.problems_count == 0 and self.sessions > 0 and self.identical_messages == self.messages


Advance = Callable[[int], None]
"""A function that is called with the number of bytes of the file, or of sessions, just processed."""


class Steps(NamedTuple):
    """The progress callback of each step."""

    storing: Advance
    summarising: Advance
    comparing: Advance


class Replay:
    """A replay of one file into a namespace. Skips the line of an existing session unless `replace` is set.

    `strategy` writes the summaries; `None` means no summaries. `sent` has the number of calls sent, by operation.
    """

    def __init__(
        self,
        memory: Memory,
        path: Path,
        strategy: Strategy | None,
        sent: Mapping[str, int],
        *,
        concurrency: int,
        keep: bool,
        replace: bool,
    ) -> None:
        self.findings = Findings()
        self._memory = memory
        self._store = memory.store
        self._path = path
        self._worker = None if strategy is None else Worker(memory.store, strategy, concurrency=concurrency)
        self._sent = sent
        self._concurrency = concurrency
        self._keep = keep
        self._replace = replace
        self._line_of: dict[str, int] = {}
        self._stored_lines: set[int] = set()
        self._to_clear: set[str] = set()

    async def run(self, steps: Steps) -> Findings:
        """Store, summarise and compare every line. Clears the stored sessions even on failure, unless `keep` is set.

        Raises:
            StoreUnavailable: if the store cannot be reached.
        """
        try:
            await warm_up(self._store, self._concurrency)
            start = time.perf_counter()
            await self._for_each_line(self._store_line, steps.storing)
            self.findings.seconds = time.perf_counter() - start
            self.findings.trips = self._sent[Op.APPEND_AND_READ]
            stored = [session_id for session_id, line in self._line_of.items() if line in self._stored_lines]
            self.findings.stored_bytes = await stored_bytes(self._store, stored)
            await self._summarise(stored, steps.summarising)
            await self._for_each_line(self._compare_line, steps.comparing)
            return self.findings
        finally:
            await self._clear_remaining()

    async def _for_each_line(self, work: Callable[[int, bytes], Awaitable[None]], advance: Advance) -> None:
        source = lines(self._path)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._concurrency):
                    group.create_task(_work_through(source, work, advance))
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def _store_line(self, number: int, line: bytes) -> None:
        try:
            transcript = parse(number, line, self._store.keys.session)
            if transcript.session_id in self._line_of:
                raise BadLine(f"session {transcript.session_id} repeats line {self._line_of[transcript.session_id]}")
            self._line_of[transcript.session_id] = number
            await self._require_absent(transcript.session_id)
            await self._send_turns(self._memory.session(transcript.session_id, owner=transcript.owner), transcript)
        except StoreUnavailable:
            raise
        except (BadLine, RedismemError) as refused:
            self._problem(number, str(refused))
            return
        self._stored_lines.add(number)
        self.findings.sessions += 1
        self.findings.messages += len(transcript.messages)
        self.findings.raw_bytes += transcript.raw_bytes

    async def _require_absent(self, session_id: str) -> None:
        """Clear an existing session if `replace` is set.

        Raises:
            BadLine: if the session exists and `replace` is not set.
        """
        session = self._memory.session(session_id)
        if not await session.exists():
            return
        if not self._replace:
            raise BadLine(
                f"session {session_id} already exists in namespace {self._store.keys.namespace}: skipped "
                "(--replace clears it first, --namespace selects another namespace)"
            )
        await session.clear()

    async def _send_turns(self, session: Session, transcript: Transcript) -> None:
        sent = 0
        self._to_clear.add(session.id)  # before the first turn: an interrupted one may still reach the store
        try:
            for turn in turns(transcript.messages, self._memory.settings.max_batch_count):
                start = time.perf_counter()
                context = await session.append_and_read(*turn, expect=sent)
                self.findings.latencies_ms.append((time.perf_counter() - start) * 1000)
                sent += len(turn)
                if context.last_seq != sent or _newest(context).to_openai() != turn[-1]:
                    self._problem(transcript.line, f"session {session.id}: a turn returned a wrong context")
        except Conflict:
            self._to_clear.discard(session.id)
            raise BadLine(f"session {session.id}: another client is writing to it; it was left unchanged") from None
        except StoreUnavailable:
            raise
        except RedismemError:
            await self._clear(session.id)  # an incomplete transcript cannot be compared
            raise

    async def _summarise(self, session_ids: list[str], advance: Advance) -> None:
        """Summarise these sessions until none of them is due. Leaves other sessions of the namespace alone."""
        if self._worker is None:
            return
        start = time.perf_counter()
        source = iter(session_ids)
        async with asyncio.TaskGroup() as group:
            for _ in range(self._concurrency):
                group.create_task(self._summarise_from(source, self._worker, advance))
        self.findings.summarising_seconds = time.perf_counter() - start

    async def _summarise_from(self, source: Iterator[str], worker: Worker, advance: Advance) -> None:
        for session_id in source:
            while (outcome := await worker.attend(session_id)) is SummaryOutcome.OK:
                self.findings.summaries += 1
            if outcome not in (SummaryOutcome.NONE, SummaryOutcome.NOOP):
                self._problem(self._line_of[session_id], f"session {session_id}: not summarised: {outcome}")
            advance(1)

    async def _check(self, number: int, session_id: str) -> None:
        self.findings.checked += 1
        for violation in await check_session(self._store, session_id):
            self.findings.violations += 1
            self._to_clear.discard(session_id)
            self._problem(number, f"session {session_id}: {violation.invariant}: {violation.text}; the session is kept")

    async def _compare_line(self, number: int, line: bytes) -> None:
        if number not in self._stored_lines:
            return
        try:
            transcript = parse(number, line, self._store.keys.session)
            await self._check(number, transcript.session_id)
            session = self._memory.session(transcript.session_id)
            messages = await session.messages(include_originals=True)
            info = await session.info()
            self.findings.covered_messages += info.first_seq - 1
        except StoreUnavailable:
            raise
        except (BadLine, RedismemError) as refused:
            self._problem(number, f"cannot be read back: {refused}")
            return
        difference = first_difference(transcript.messages, [message.to_openai() for message in messages])
        if difference is not None:
            self._to_clear.discard(transcript.session_id)
            self._problem(number, f"session {transcript.session_id}: {difference}; the session is kept")
            return
        self.findings.identical_messages += len(messages)
        if transcript.session_id in self._to_clear and not self._keep:
            await self._clear(transcript.session_id)

    async def _clear(self, session_id: str) -> None:
        await self._memory.session(session_id).clear()
        self._to_clear.discard(session_id)

    async def _clear_remaining(self) -> None:
        """Clear the sessions that an interruption left behind. If the store is unreachable, they expire later."""
        with contextlib.suppress(RedismemError):
            for session_id in () if self._keep else sorted(self._to_clear):
                await self._clear(session_id)

    def _problem(self, line: int, text: str) -> None:
        self.findings.problems_count += 1
        if len(self.findings.problems) < LISTED_PROBLEMS:
            self.findings.problems.append((line, text))


def _newest(context: Context) -> Message:
    return max((*context.pinned, *context.messages), key=lambda message: message.seq)


async def _work_through(
    source: Iterator[tuple[int, bytes]], work: Callable[[int, bytes], Awaitable[None]], advance: Advance
) -> None:
    """Process lines until the source is empty. Several tasks share one source."""
    for number, line in source:
        await work(number, line)
        advance(len(line))
