"""What a drain of the overdue queue does: claim a session, have its older messages summarised, commit.

Any number of workers in any number of processes may run; one that dies in the middle loses nothing, for its lease runs
out. The path of a turn never waits for any of this.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from redismem.context import Context, Summary
from redismem.errors import ModelFailed, RedismemError, StoreUnavailable
from redismem.events import facts
from redismem.messages import Message
from redismem.models import Draft
from redismem.protocol import queue_calls
from redismem.protocol.ids import session_hash
from redismem.protocol.layout import CommitOutcome, ReleaseOutcome
from redismem.protocol.queue_calls import Job, QueueCalls
from redismem.session import Session
from redismem.settings import Settings
from redismem.store.store import Store
from redismem.window import cut_before, open_calls
from redismem.workers.failures import log_failure
from redismem.workers.outcomes import WORKED_OFF, SummaryOutcome
from redismem.workers.strategies import Strategy

log = logging.getLogger("redismem.worker")

# Messages that one summary may cover: it bounds what a commit moves in one script.
COVER_COUNT = 500
_DUE_COUNT = 20
_FIRST_BACKOFF_S = 1.0
# What a session waits for may come with any message: it is looked at again this soon.
_WAIT_MS = 5_000
_random = random.SystemRandom()


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do with a claimed session: cover messages, or fold summaries, or wait for an open tool call."""

    covered: Sequence[Message] = ()
    folded: Sequence[Summary] = ()
    wait_ms: int = 0


def plan(context: Context, now_ms: int, settings: Settings) -> Plan:
    """Everything but the newest `recent_limit` messages, more of these only to keep a tool call with its result.

    A call without a result is waited for until it is `open_call_s` old; then it counts as closed.
    """
    messages = context.messages
    wanted = max(0, len(messages) - settings.recent_limit)
    # A single group may be longer than what one summary should cover.
    cut = cut_before(messages, min(COVER_COUNT, wanted)) or cut_before(messages, wanted)
    closed_ms = now_ms - int(settings.open_call_s * 1000)
    waiting = next((at for at in open_calls(messages[:cut], messages) if messages[at].stored_ms > closed_ms), None)
    if waiting is not None:
        cut = cut_before(messages, waiting)
    # Covering goes first, for what is pending costs more to read; but not so long that summaries pile up.
    piled_up = len(context.summaries) > 2 * settings.summaries_limit
    if cut and not piled_up and settings.is_overdue(len(messages), sum(message.tokens for message in messages)):
        return Plan(covered=messages[:cut])
    if len(context.summaries) > settings.summaries_limit:
        return Plan(folded=context.summaries[: len(context.summaries) - settings.summaries_limit // 2])
    closes_in_ms = _WAIT_MS if waiting is None else messages[waiting].stored_ms - closed_ms
    return Plan(wait_ms=min(_WAIT_MS, closes_in_ms))


class Worker:
    """Drains the overdue queue of a namespace."""

    def __init__(self, store: Store, strategy: Strategy, *, concurrency: int = 16) -> None:
        self.concurrency = concurrency
        self.outcomes: Counter[SummaryOutcome] = Counter()
        """How often each outcome was seen."""
        self._store = store
        self._strategy = strategy
        self._slots = asyncio.Semaphore(concurrency)
        self._in_hand: set[str] = set()
        self._stopping = False

    def stop(self) -> None:
        """No further claims; what is claimed goes on."""
        self._stopping = True

    async def drain(self) -> int:
        """Works off every session that is due and not in hand already. Gives how many summaries were committed.

        Raises StoreUnavailable; what goes wrong with one session is logged and leaves the others alone.
        """
        return await self._store.told("drain", self._drain())

    async def _drain(self) -> int:
        committed = 0
        while not self._stopping:
            now_ms = await self._store.server_time_ms()
            due = await self._store.run(queue_calls.due(self._store.keys.shards(), now_ms, _DUE_COUNT))
            outcomes = await asyncio.gather(*(self.attend(session_id) for session_id in due))
            committed += outcomes.count(SummaryOutcome.OK)
            if WORKED_OFF.isdisjoint(outcomes):
                break
        return committed

    async def attend(self, session_id: str) -> SummaryOutcome:
        """`summarise`, when there is a slot for it; it raises nothing."""
        if session_id in self._in_hand:
            return SummaryOutcome.BUSY
        self._in_hand.add(session_id)
        try:
            async with self._slots:
                if self._stopping:
                    return SummaryOutcome.STOPPING
                outcome = await self._store.told("summary", self.summarise(session_id), session_id)
        except Exception as error:  # of one session: the others go on; its lease, if it has one, runs out
            session = session_hash(session_id)
            log_failure(f"session {session}: not summarised", error, facts(op="summary", session=session))
            outcome = SummaryOutcome.UNAVAILABLE
        finally:
            self._in_hand.discard(session_id)
        self.outcomes[outcome] += 1
        return outcome

    async def summarise(self, session_id: str) -> SummaryOutcome:
        """One claim and what follows from it. Raises StoreUnavailable, CorruptSession, UnsupportedFormat."""
        calls = self._store.queue_calls(session_id)
        job = await self._claimed(calls)
        if not isinstance(job, Job):
            return job
        try:
            return await self._compact(calls, job)
        except asyncio.CancelledError:
            # A worker that is told to stop gives the session back, so that another need not wait for the lease.
            with contextlib.suppress(RedismemError):
                await asyncio.shield(self._give_back(calls, job, 0))
            raise

    async def _claimed(self, calls: QueueCalls) -> Job | SummaryOutcome:
        try:
            claimed = await self._store.run(calls.claim(), quarantine=True)
            return claimed if isinstance(claimed, Job) else SummaryOutcome(claimed)
        except StoreUnavailable as refused:
            if refused.reason != "OOM":
                raise
        # The server refuses a claim that reads, which is a transaction. What comes between the two, a commit notices.
        job = await self._store.run(calls.claim(reads=False), quarantine=True)
        if not isinstance(job, Job):
            return SummaryOutcome(job)
        context = await Session(self._store, self._store.session_calls(calls.keys.session_id)).read()
        return replace(job, context=context) if context.epoch else SummaryOutcome.GONE

    async def _give_back(self, calls: QueueCalls, job: Job, backoff_ms: int) -> None:
        """Gives the session back as if it had not been claimed: no attempt is counted."""
        await self._store.run(calls.release(job.fence, backoff_ms, counts=False, dead=False))

    async def _compact(self, calls: QueueCalls, job: Job) -> SummaryOutcome:
        started_s = time.monotonic()
        try:
            todo = plan(job.context, job.now_ms, self._store.settings)
            summary = await self._drafted(calls, job, todo)
        except Exception as error:  # whatever a model or a strategy of the caller's own raises
            return await self._failed(calls, job, error)
        if todo.wait_ms:
            await self._give_back(calls, job, todo.wait_ms)
            return SummaryOutcome.WAITING
        commit = calls.commit(job, todo.covered, summary, todo.folded)
        outcome = await self._store.run(commit, quarantine=True)
        known = facts(
            op="summary",
            session=session_hash(calls.keys.session_id),
            message_count=len(todo.covered),
            folded_count=len(todo.folded),
            duration_ms=int((time.monotonic() - started_s) * 1000),
            outcome=outcome,
        )
        log.info(
            "session %(session)s: %(message_count)d messages covered, %(folded_count)d summaries folded, "
            "in %(duration_ms)d ms: %(outcome)s",
            known,
            extra=known,
        )
        if outcome is CommitOutcome.STALE:
            # Pruned meanwhile: what is left may still be too long.
            await self._give_back(calls, job, 0)
        return SummaryOutcome.OK if outcome is CommitOutcome.ALREADY else SummaryOutcome(outcome)

    async def _drafted(self, calls: QueueCalls, job: Job, todo: Plan) -> Summary | None:
        """What the strategy makes of it, while the lease is kept."""
        if todo.wait_ms:
            return None
        settings = self._store.settings
        renewal = asyncio.create_task(self._renew(calls, job.fence))
        try:
            async with asyncio.timeout(settings.summary_timeout_s) as limit:
                previous = "\n\n".join(summary.text for summary in todo.folded) or None
                draft = await self._strategy.compact(todo.covered, previous)
        except TimeoutError:
            if limit.expired():
                raise ModelFailed(f"no summary within {settings.summary_timeout_s:g} s") from None
            raise
        finally:
            renewal.cancel()
        return None if draft is None else _summary(job, todo, draft, settings.max_summary_bytes)

    async def _failed(self, calls: QueueCalls, job: Job, error: Exception) -> SummaryOutcome:
        failed = error if isinstance(error, ModelFailed) else ModelFailed("not by a model of ours")
        # One that does not count is told to wait, for no one knows how long: the longest of the first pauses.
        doublings = job.attempts if failed.counts else self._store.settings.max_attempts
        longest_s = min(self._store.settings.max_backoff_s, _FIRST_BACKOFF_S * 2.0**doublings)
        backoff_s = _random.uniform(0, longest_s) if failed.retry_after_s is None else failed.retry_after_s
        release = calls.release(job.fence, int(backoff_s * 1000), counts=failed.counts, dead=failed.permanent)
        outcome = await self._store.run(release)
        next_try = "dead" if outcome is ReleaseOutcome.DEAD else f"again in {backoff_s:.1f} s"
        session = session_hash(calls.keys.session_id)
        known = facts(op="summary", session=session, outcome=outcome, attempt=job.attempts)
        if outcome is ReleaseOutcome.OK:
            known["backoff_ms"] = int(backoff_s * 1000)
        log_failure(f"session {session}: attempt {job.attempts} at a summary failed, {next_try}", error, known)
        return SummaryOutcome.FAILED if outcome is ReleaseOutcome.OK else SummaryOutcome(outcome)

    async def _renew(self, calls: QueueCalls, fence: str) -> None:
        while True:
            await asyncio.sleep(self._store.settings.lease_s / 3)
            try:
                if not await self._store.run(calls.extend(fence)):
                    return
            except RedismemError as error:
                session = session_hash(calls.keys.session_id)
                log_failure(f"session {session}: the lease was not renewed", error, facts(op="extend", session=session))


def _summary(job: Job, todo: Plan, draft: Draft, max_bytes: int) -> Summary:
    """Raises ModelFailed, or UnicodeEncodeError, for a text that is none."""
    text: object = draft.text
    if not isinstance(text, str) or not text.strip():
        raise ModelFailed("the summary is empty, or not a text")
    size = len(text.encode())
    if size > max_bytes:
        raise ModelFailed(f"the summary has {size} bytes, over {max_bytes}")
    if todo.folded:
        first, last = todo.folded[0], todo.folded[-1]
        first_seq, last_seq = first.first_seq, last.last_seq
        times = [time_ms for summary in todo.folded for time_ms in (summary.start_ms, summary.end_ms)]
        message_ids = tuple(summary.id for summary in todo.folded)
    else:
        first_seq, last_seq = todo.covered[0].seq, todo.covered[-1].seq
        times = [message.time_ms for message in todo.covered]
        message_ids = tuple(str(message.id) for message in todo.covered)
    return Summary(
        id=f"{job.context.epoch}:{first_seq}-{last_seq}",
        text=text,
        first_seq=first_seq,
        last_seq=last_seq,
        start_ms=min(times),
        end_ms=max(times),
        model=draft.model,
        tokens=size // 4 + 4,
        created_ms=job.now_ms,
        message_ids=message_ids,
    )
