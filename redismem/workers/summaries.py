"""Drain the overdue queue: claim a session, summarise its older messages, commit the summary.

Any number of workers in any number of processes may run. If a worker crashes, its leases expire and other workers take
over its sessions. A turn never waits for a worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
import time
from collections import Counter, deque
from dataclasses import replace

from redismem.errors import ModelFailed, ProviderUnavailable, RedismemError
from redismem.events import Op, facts
from redismem.protocol.ids import session_hash
from redismem.protocol.layout import CommitOutcome, ReleaseOutcome
from redismem.protocol.queue import calls as queue_calls
from redismem.protocol.queue.calls import Job, QueueCalls
from redismem.store.store import Store
from redismem.workers.dictionaries import Trainer
from redismem.workers.failures import OtherLayouts, log_failure, reason_of
from redismem.workers.originals import build_original_fields, open_vector_writer
from redismem.workers.outcomes import WORKED_OFF, SummaryOutcome
from redismem.workers.planning import Plan, plan
from redismem.workers.provider_pauses import Availability, Provider
from redismem.workers.strategies import Strategy, Trim, keeps_one_summary, pack_sketch, provider_of, update_sketch
from redismem.workers.summary_writer import URGENT_MS, SummaryWriter

log = logging.getLogger("redismem.worker")

_DUE_COUNT = 20
_UNANSWERED_COUNT = 64
_FIRST_BACKOFF_S = 1.0
_LONGEST_BACKOFF_S = 86_400.0
_random = random.SystemRandom()


class Worker:
    """Drain the overdue queue of a namespace."""

    def __init__(self, store: Store, strategy: Strategy, *, concurrency: int = 16) -> None:
        self.concurrency = concurrency
        self.outcomes: Counter[SummaryOutcome] = Counter()
        """The number of attempts per outcome."""
        self._store = store
        self._provider = Provider(store, provider_of(strategy))
        self._writer = SummaryWriter(store, strategy, self._provider)
        self._longest_wait_ms = int(store.settings.extractive_after_s * 1000)
        self._trainer = Trainer(store)
        self._vector_writer = open_vector_writer(store)
        self._slots = asyncio.Semaphore(concurrency)
        self._in_hand: set[str] = set()
        self._unanswered: deque[str] = deque(maxlen=_UNANSWERED_COUNT)
        """The sessions for which the provider last did not answer."""
        self._lease_check_ms = -math.inf
        """The time of the last check for expired leases."""
        self._stopping = False
        self._other_layouts = OtherLayouts()
        self._has_kept_whole = False

    @property
    def is_crowded(self) -> bool:
        """True if more sessions wait for a summary in this process than `concurrency` allows at a time."""
        return len(self._in_hand) > self.concurrency

    def stop(self) -> None:
        """Stop claiming sessions. Summaries in progress continue."""
        self._stopping = True
        if self._vector_writer is not None:
            self._vector_writer.stop()

    async def stand_by(self) -> None:
        """Do this pod's share of a tick while another pod works through the queue.

        It checks on a paused provider, and embeds kept messages.
        """
        if self._provider.is_paused:
            await self._provider.look(await self._store.server_time_ms())
        if self._vector_writer is not None:
            await self._vector_writer.embed_waiting()

    async def drain(self) -> int:
        """Summarise all due sessions, except sessions in progress, and return the number of summaries committed.

        A failure of one session is logged and does not affect other sessions.

        Raises:
            StoreUnavailable: Redis does not answer before the deadline.
        """
        return await self._store.observe(Op.DRAIN, self._drain())

    async def _drain(self) -> int:
        committed, leases = 0, None
        while not self._stopping:
            now_ms = await self._store.server_time_ms()
            leases = self._is_lease_check_due(now_ms) if leases is None else leases
            outcomes = await self._run_round(now_ms, leases)
            committed += outcomes.count(SummaryOutcome.OK)
            if WORKED_OFF.isdisjoint(outcomes):
                break
        await self._trainer.train()
        if self._vector_writer is not None:
            await self._vector_writer.embed_waiting()
        return committed

    def _is_lease_check_due(self, now_ms: int) -> bool:
        """True if it is time to look for expired leases. These are rare, so four times per `lease_s` is enough."""
        every_ms = self._store.settings.lease_s * 250
        if self._lease_check_ms <= now_ms < self._lease_check_ms + every_ms:
            return False
        self._lease_check_ms = now_ms
        return True

    async def _run_round(self, now_ms: int, leases: bool) -> list[SummaryOutcome]:
        """Summarise due sessions; while the provider is paused, only the urgent ones, with the fallback."""
        availability = await self._provider.look(now_ms)
        if availability is Availability.PAUSED:
            if self._writer.fallback is None:
                return []
            due = await self._load_due(self._due_before_ms(now_ms), leases)
            rounds = await asyncio.gather(*(self._write_fallbacks(session_id) for session_id in due))
            return [outcome for outcomes in rounds for outcome in outcomes]
        due = await self._load_due(now_ms, leases)
        if availability is Availability.PROBE:
            return await self._probe(due, now_ms)
        return await asyncio.gather(*(self.attend(session_id) for session_id in due))

    async def _load_due(self, before_ms: int, leases: bool) -> list[str]:
        call = queue_calls.due_sessions(self._store.keys.shards(), before_ms, _DUE_COUNT, leases=leases)
        session_ids = await self._store.run(call)
        # Other pods may drain the same sessions: a different order makes colliding claims rare.
        return session_ids if len(session_ids) <= self.concurrency else _random.sample(session_ids, len(session_ids))

    def _due_before_ms(self, now_ms: int) -> int:
        """Return the due time before which a session gets the fallback: it has waited too long, or is half full."""
        since_ms = self._provider.failing_since_ms
        is_long = since_ms is not None and now_ms - since_ms >= self._longest_wait_ms
        return now_ms - self._longest_wait_ms if is_long else URGENT_MS

    async def _probe(self, due: list[str], now_ms: int) -> list[SummaryOutcome]:
        """Probe the provider with one session, preferably one for which the provider has not failed before."""
        outcomes: list[SummaryOutcome] = []
        if not due or not await self._provider.probe(now_ms):
            return outcomes
        try:
            for session_id in sorted(_random.sample(due, len(due)), key=self._unanswered.__contains__):
                outcomes.append(await self.attend(session_id, self._writer.strategy))
                if not self._provider.is_probed:
                    break
        finally:
            await self._provider.return_probe()
        if outcomes[-1] is SummaryOutcome.OK and self._provider.is_paused:
            outcomes += await self._write_fallbacks(session_id)
        return outcomes

    async def _write_fallbacks(self, session_id: str) -> list[SummaryOutcome]:
        """Summarise with the fallback until the window is short enough. One summary covers only a limited number."""
        outcomes = [await self.attend(session_id, self._writer.fallback)]
        while outcomes[-1] is SummaryOutcome.OK:
            outcomes.append(await self.attend(session_id, self._writer.fallback))
        return outcomes

    async def attend(self, session_id: str, by: Strategy | None = None) -> SummaryOutcome:
        """Call `summarise` once a slot is free. Never raises. If the provider is paused, does nothing without `by`."""
        if session_id in self._in_hand:
            return SummaryOutcome.BUSY
        self._in_hand.add(session_id)
        try:
            async with self._slots:
                if self._stopping:
                    return SummaryOutcome.STOPPING
                if by is None and self._provider.is_paused:
                    return SummaryOutcome.PAUSED
                outcome = await self._store.observe(Op.SUMMARY, self.summarise(session_id, by), session_id)
        except Exception as error:  # of one session: the others continue; its lease, if it has one, expires
            session = session_hash(session_id)
            if not self._other_layouts.is_named(session, error):
                log_failure(f"session {session}: not summarised", error, facts(op="summary", session=session))
            outcome = SummaryOutcome.UNAVAILABLE
        finally:
            self._in_hand.discard(session_id)
        self.outcomes[outcome] += 1
        return outcome

    async def summarise(self, session_id: str, by: Strategy | None = None) -> SummaryOutcome:
        """Claim a session, summarise it with `by` or with the worker's strategy, and commit.

        Raises:
            StoreUnavailable: Redis does not answer before the deadline.
            CorruptSession: The stored bytes cannot be read.
            UnsupportedFormat: A newer release wrote the session.
        """
        calls = self._store.queue_calls(session_id)
        job = await self._claim(calls)
        if not isinstance(job, Job):
            return job
        try:
            return await self._compact(calls, job, by or self._writer.strategy)
        except asyncio.CancelledError:
            # A stopped worker releases the session, so that another worker need not wait for the lease to expire.
            with contextlib.suppress(RedismemError):
                await asyncio.shield(self._release(calls, job, job.keep_place_backoff_ms))
            raise

    async def _claim(self, calls: QueueCalls) -> Job | SummaryOutcome:
        claimed = await self._store.run(calls.claim(), quarantine=True)
        return claimed if isinstance(claimed, Job) else SummaryOutcome(claimed)

    async def _release(self, calls: QueueCalls, job: Job, backoff_ms: int) -> None:
        """Release the session as if it had not been claimed: no attempt is counted."""
        await self._store.run(calls.release(job.fence, backoff_ms, counts=False, dead=False))

    async def _compact(self, calls: QueueCalls, job: Job, by: Strategy) -> SummaryOutcome:
        started_s = time.monotonic()
        try:
            is_one, covers_sealed = keeps_one_summary(by, job.context.summaries), isinstance(by, Trim)
            todo = plan(job.context, job.now_ms, self._store.settings, is_one=is_one, covers_sealed=covers_sealed)
            sketch = await update_sketch(by, job.sketch, todo.covered)
            is_idle = todo.wait_ms or todo.keeps_whole
            summary = None if is_idle else await self._writer.write(calls, job, todo, by, sketch)
        except ProviderUnavailable as error:
            return await self._release_unanswered(calls, job, error)
        except Exception as error:  # the caller's model or strategy may raise anything
            return await self._release_failed(calls, job, error)
        if todo.keeps_whole:
            return await self._keep_whole(calls.keys.session_id, job)
        if todo.wait_ms:
            await self._release(calls, job, todo.wait_ms)
            return SummaryOutcome.WAITING
        originals = await build_original_fields(self._trainer, calls.keys, job, todo.covered)
        commit = calls.commit(
            job, todo.covered, summary, todo.folded, originals, pack_sketch(job, sketch, todo.covered)
        )
        outcome = await self._store.run(commit, quarantine=True)
        if self._vector_writer is not None and originals:
            self._vector_writer.note(calls.keys.session_id)
        self._log_commit(calls, todo, outcome, started_s)
        if outcome is CommitOutcome.STALE:
            # Pruned in the meantime: the rest may still be too long.
            await self._release(calls, job, 0)
        return SummaryOutcome.OK if outcome is CommitOutcome.ALREADY else SummaryOutcome(outcome)

    async def _keep_whole(self, session_id: str, job: Job) -> SummaryOutcome:
        """End the summaries of a session whose messages cannot be summarised. It leaves the queue."""
        policy = replace(job.policy, keep_whole=True)
        was_set = await self._store.run(self._store.session_calls(session_id).set_policy(policy, job.fence))
        if not was_set:
            return SummaryOutcome.FENCED
        session = session_hash(session_id)
        known = facts(op="summary", session=session, outcome=SummaryOutcome.NOOP)
        level, self._has_kept_whole = logging.INFO if self._has_kept_whole else logging.WARNING, True
        log.log(level, "session %s: kept whole from now on: no summary can be of opaque messages", session, extra=known)
        return SummaryOutcome.NOOP

    def _log_commit(self, calls: QueueCalls, todo: Plan, outcome: CommitOutcome, started_s: float) -> None:
        known = facts(
            op=Op.SUMMARY,
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

    async def _release_unanswered(self, calls: QueueCalls, job: Job, error: ProviderUnavailable) -> SummaryOutcome:
        """Release the session without counting an attempt. It backs off unless the provider is paused."""
        self._unanswered.append(calls.keys.session_id)
        backoff_ms, is_paused = job.keep_place_backoff_ms, self._provider.is_paused
        if not is_paused:
            # Only this session backs off, about as long again as it has been failing.
            failing_s = 0 if job.failure is None else (job.now_ms - job.failure.since_ms) / 1000
            longest_s = min(self._store.settings.max_backoff_s, max(_FIRST_BACKOFF_S, failing_s))
            backoff_ms = int(_random.uniform(longest_s / 2, longest_s) * 1000)
        reason = reason_of(error)
        release = calls.release(job.fence, backoff_ms, counts=False, dead=False, reason=reason)
        outcome = await self._store.run(release)
        session = session_hash(calls.keys.session_id)
        known = facts(op="summary", session=session, outcome=outcome, reason=reason)
        next_try = "once the provider answers" if is_paused else f"in {backoff_ms / 1000:.1f} s"
        log.info("session %s: retried %s, no attempt was counted: %s", session, next_try, reason, extra=known)
        if outcome is not ReleaseOutcome.OK:
            return SummaryOutcome(outcome)
        return SummaryOutcome.PAUSED if is_paused else SummaryOutcome.FAILED

    async def _release_failed(self, calls: QueueCalls, job: Job, error: Exception) -> SummaryOutcome:
        settings = self._store.settings
        failed = error if isinstance(error, ModelFailed) else ModelFailed("raised by the caller's strategy")
        longest_s = min(settings.max_backoff_s, _FIRST_BACKOFF_S * 2.0**job.attempts)
        backoff_s = _random.uniform(0, longest_s)
        if failed.retry_after_s is not None and failed.retry_after_s > 0:
            backoff_s = min(failed.retry_after_s, _LONGEST_BACKOFF_S)
        is_dead = failed.permanent or job.attempts >= settings.max_attempts
        reason, backoff_ms = reason_of(error), int(backoff_s * 1000)
        outcome = await self._store.run(calls.release(job.fence, backoff_ms, counts=True, dead=is_dead, reason=reason))
        next_try = "dead" if outcome is ReleaseOutcome.DEAD else f"retry in {backoff_s:.1f} s"
        session = session_hash(calls.keys.session_id)
        known = facts(op="summary", session=session, outcome=outcome, attempt=job.attempts)
        if outcome is ReleaseOutcome.OK:
            known["backoff_ms"] = backoff_ms
        log_failure(f"session {session}: attempt {job.attempts} at a summary failed, {next_try}", error, known)
        return SummaryOutcome.FAILED if outcome is ReleaseOutcome.OK else SummaryOutcome(outcome)
