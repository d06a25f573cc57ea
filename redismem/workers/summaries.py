"""What a drain of the overdue queue does: claim a session, have its older messages summarised, commit.

Any number of workers in any number of processes may run; one that dies in the middle loses nothing, for its lease runs
out. The path of a turn never waits for any of this.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
import time
from collections import Counter, deque

from redismem.errors import ModelFailed, ProviderUnavailable, RedismemError, StoreUnavailable
from redismem.events import Op, facts
from redismem.protocol.ids import session_hash
from redismem.protocol.layout import CommitOutcome, ReleaseOutcome
from redismem.protocol.queue import calls as queue_calls
from redismem.protocol.queue.calls import Job, QueueCalls
from redismem.protocol.session import edits
from redismem.store.store import Store
from redismem.workers.dictionaries import Trainer
from redismem.workers.failures import OtherLayouts, log_failure, reason_of
from redismem.workers.originals import embedding_of, kept
from redismem.workers.outcomes import WORKED_OFF, SummaryOutcome
from redismem.workers.planning import plan
from redismem.workers.provider_pauses import Answering, Provider
from redismem.workers.strategies import Strategy, noted, provider_of, sketched, writes_one
from redismem.workers.summary_writer import URGENT_MS, Writers

log = logging.getLogger("redismem.worker")

_DUE_COUNT = 20
_IN_VAIN_COUNT = 64
_FIRST_BACKOFF_S = 1.0
_LONGEST_BACKOFF_S = 86_400.0
_random = random.SystemRandom()


class Worker:
    """Drains the overdue queue of a namespace."""

    def __init__(self, store: Store, strategy: Strategy, *, concurrency: int = 16) -> None:
        self.concurrency = concurrency
        self.outcomes: Counter[SummaryOutcome] = Counter()
        """How often each outcome was seen."""
        self._store = store
        self._provider = Provider(store, provider_of(strategy))
        self._writers = Writers(store, strategy, self._provider)
        self._longest_wait_ms = int(store.settings.extractive_after_s * 1000)
        self._trainer = Trainer(store)
        self._embedding = embedding_of(store)
        self._slots = asyncio.Semaphore(concurrency)
        self._in_hand: set[str] = set()
        self._in_vain: deque[str] = deque(maxlen=_IN_VAIN_COUNT)
        """Sessions that the provider did not answer for, as far as they are remembered."""
        self._looked_ms = -math.inf
        """When the leases were looked at last."""
        self._stopping = False
        self._other_layouts = OtherLayouts()

    @property
    def is_crowded(self) -> bool:
        """Whether more sessions wait for a summary here than are in hand at a time."""
        return len(self._in_hand) > self.concurrency

    def stop(self) -> None:
        """No further claims; what is claimed goes on."""
        self._stopping = True
        if self._embedding is not None:
            self._embedding.stop()

    async def stand_by(self) -> None:
        """What is left to do when another pod drains: to notice that a provider answers again."""
        if self._provider.is_paused:
            await self._provider.look(await self._store.server_time_ms())
        if self._embedding is not None:
            await self._embedding.work_off()

    async def drain(self) -> int:
        """Works off every session that is due and not in hand already. Gives how many summaries were committed.

        Raises StoreUnavailable; what goes wrong with one session is logged and leaves the others alone.
        """
        return await self._store.told(Op.DRAIN, self._drain())

    async def _drain(self) -> int:
        committed, leases = 0, None
        while not self._stopping:
            now_ms = await self._store.server_time_ms()
            leases = self._looks_at_leases(now_ms) if leases is None else leases
            outcomes = await self._round(now_ms, leases)
            committed += outcomes.count(SummaryOutcome.OK)
            if WORKED_OFF.isdisjoint(outcomes):
                break
        await self._trainer.train()
        if self._embedding is not None:
            await self._embedding.work_off()
        return committed

    def _looks_at_leases(self, now_ms: int) -> bool:
        """Leases run out after `lease_s`, and seldom do: they are looked at four times in that."""
        every_ms = self._store.settings.lease_s * 250
        if self._looked_ms <= now_ms < self._looked_ms + every_ms:
            return False
        self._looked_ms = now_ms
        return True

    async def _round(self, now_ms: int, leases: bool) -> list[SummaryOutcome]:
        """Works off what is due, as far as the provider may be asked; what has waited for too long without it."""
        answering = await self._provider.look(now_ms)
        if answering is Answering.NO:
            if self._writers.instead is None:
                return []
            due = await self._due(self._waiting_since_ms(now_ms), leases)
            rounds = await asyncio.gather(*(self._written_instead(session_id) for session_id in due))
            return [outcome for outcomes in rounds for outcome in outcomes]
        due = await self._due(now_ms, leases)
        if answering is Answering.PERHAPS:
            return await self._probed(due, now_ms)
        return await asyncio.gather(*(self.attend(session_id) for session_id in due))

    async def _due(self, before_ms: int, leases: bool) -> list[str]:
        call = queue_calls.due(self._store.keys.shards(), before_ms, _DUE_COUNT, leases=leases)
        found = await self._store.run(call)
        # Others may be at the same ones: who begins elsewhere claims few of them in vain.
        return found if len(found) <= self.concurrency else _random.sample(found, len(found))

    def _waiting_since_ms(self, now_ms: int) -> int:
        """A session that was due before that has waited for too long, or its window is half full."""
        since_ms = self._provider.failing_since_ms
        is_long = since_ms is not None and now_ms - since_ms >= self._longest_wait_ms
        return now_ms - self._longest_wait_ms if is_long else URGENT_MS

    async def _probed(self, due: list[str], now_ms: int) -> list[SummaryOutcome]:
        """Asks the provider for one session; for one that it was asked for in vain, only if there is no other."""
        outcomes: list[SummaryOutcome] = []
        if not due or not await self._provider.probe(now_ms):
            return outcomes
        try:
            for session_id in sorted(_random.sample(due, len(due)), key=self._in_vain.__contains__):
                outcomes.append(await self.attend(session_id, self._writers.strategy))
                if not self._provider.is_probed:
                    break
        finally:
            await self._provider.give_probe_back()
        if outcomes[-1] is SummaryOutcome.OK and self._provider.is_paused:
            outcomes += await self._written_instead(session_id)
        return outcomes

    async def _written_instead(self, session_id: str) -> list[SummaryOutcome]:
        """The outcomes of summaries until the window is short enough: one covers so many messages at most."""
        outcomes = [await self.attend(session_id, self._writers.instead)]
        while outcomes[-1] is SummaryOutcome.OK:
            outcomes.append(await self.attend(session_id, self._writers.instead))
        return outcomes

    async def attend(self, session_id: str, by: Strategy | None = None) -> SummaryOutcome:
        """`summarise`, when there is a slot for it; it raises nothing. Without `by`, only if the provider answers."""
        if session_id in self._in_hand:
            return SummaryOutcome.BUSY
        self._in_hand.add(session_id)
        try:
            async with self._slots:
                if self._stopping:
                    return SummaryOutcome.STOPPING
                if by is None and self._provider.is_paused:
                    return SummaryOutcome.PAUSED
                outcome = await self._store.told(Op.SUMMARY, self.summarise(session_id, by), session_id)
        except Exception as error:  # of one session: the others go on; its lease, if it has one, runs out
            session = session_hash(session_id)
            if not self._other_layouts.is_named(session, error):
                log_failure(f"session {session}: not summarised", error, facts(op="summary", session=session))
            outcome = SummaryOutcome.UNAVAILABLE
        finally:
            self._in_hand.discard(session_id)
        self.outcomes[outcome] += 1
        return outcome

    async def summarise(self, session_id: str, by: Strategy | None = None) -> SummaryOutcome:
        """One claim and what follows from it, `by` this strategy or the worker's.

        Raises StoreUnavailable, CorruptSession, UnsupportedFormat.
        """
        calls = self._store.queue_calls(session_id)
        job = await self._claimed(calls)
        if not isinstance(job, Job):
            return job
        try:
            return await self._compact(calls, job, by or self._writers.strategy)
        except asyncio.CancelledError:
            # A worker that is told to stop gives the session back, so that another need not wait for the lease.
            with contextlib.suppress(RedismemError):
                await asyncio.shield(self._give_back(calls, job, job.as_before_ms))
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
        read = edits.window(self._store.session_calls(calls.keys.session_id))
        view = await self._store.run(read, quarantine=True)
        return SummaryOutcome.GONE if view is None else job.of(view)

    async def _give_back(self, calls: QueueCalls, job: Job, backoff_ms: int) -> None:
        """Gives the session back as if it had not been claimed: no attempt is counted."""
        await self._store.run(calls.release(job.fence, backoff_ms, counts=False, dead=False))

    async def _compact(self, calls: QueueCalls, job: Job, by: Strategy) -> SummaryOutcome:
        started_s = time.monotonic()
        try:
            todo = plan(job.context, job.now_ms, self._store.settings, is_one=writes_one(by, job.context.summaries))
            sketch = await sketched(by, job.sketch, todo.covered)
            summary = None if todo.wait_ms else await self._writers.written(calls, job, todo, by, sketch)
        except ProviderUnavailable as error:
            return await self._unanswered(calls, job, error)
        except Exception as error:  # whatever a model or a strategy of the caller's own raises
            return await self._failed(calls, job, error)
        if todo.wait_ms:
            await self._give_back(calls, job, todo.wait_ms)
            return SummaryOutcome.WAITING
        originals = await kept(self._trainer, calls.keys, job, todo.covered)
        commit = calls.commit(job, todo.covered, summary, todo.folded, originals, noted(job, sketch, todo.covered))
        outcome = await self._store.run(commit, quarantine=True)
        if self._embedding is not None and originals:
            self._embedding.note(calls.keys.session_id)
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
        if outcome is CommitOutcome.STALE:
            # Pruned meanwhile: what is left may still be too long.
            await self._give_back(calls, job, 0)
        return SummaryOutcome.OK if outcome is CommitOutcome.ALREADY else SummaryOutcome(outcome)

    async def _unanswered(self, calls: QueueCalls, job: Job, error: ProviderUnavailable) -> SummaryOutcome:
        """Gives the session back as it was, but for the reason that is noted. The provider is paused, as a rule."""
        self._in_vain.append(calls.keys.session_id)
        backoff_ms, is_paused = job.as_before_ms, self._provider.is_paused
        if not is_paused:
            # It waits alone: as long again as it has been failing, more or less.
            failing_s = 0 if job.failure is None else (job.now_ms - job.failure.since_ms) / 1000
            longest_s = min(self._store.settings.max_backoff_s, max(_FIRST_BACKOFF_S, failing_s))
            backoff_ms = int(_random.uniform(longest_s / 2, longest_s) * 1000)
        reason = reason_of(error)
        release = calls.release(job.fence, backoff_ms, counts=False, dead=False, reason=reason)
        outcome = await self._store.run(release)
        session = session_hash(calls.keys.session_id)
        known = facts(op="summary", session=session, outcome=outcome, reason=reason)
        until = "the provider answers" if is_paused else f"another try in {backoff_ms / 1000:.1f} s"
        log.info("session %s: waits for %s, no attempt was counted: %s", session, until, reason, extra=known)
        if outcome is not ReleaseOutcome.OK:
            return SummaryOutcome(outcome)
        return SummaryOutcome.PAUSED if is_paused else SummaryOutcome.FAILED

    async def _failed(self, calls: QueueCalls, job: Job, error: Exception) -> SummaryOutcome:
        settings = self._store.settings
        failed = error if isinstance(error, ModelFailed) else ModelFailed("not by a model of ours")
        longest_s = min(settings.max_backoff_s, _FIRST_BACKOFF_S * 2.0**job.attempts)
        backoff_s = _random.uniform(0, longest_s)
        if failed.retry_after_s is not None and failed.retry_after_s > 0:
            backoff_s = min(failed.retry_after_s, _LONGEST_BACKOFF_S)
        is_dead = failed.permanent or job.attempts >= settings.max_attempts
        reason, backoff_ms = reason_of(error), int(backoff_s * 1000)
        outcome = await self._store.run(calls.release(job.fence, backoff_ms, counts=True, dead=is_dead, reason=reason))
        next_try = "dead" if outcome is ReleaseOutcome.DEAD else f"again in {backoff_s:.1f} s"
        session = session_hash(calls.keys.session_id)
        known = facts(op="summary", session=session, outcome=outcome, attempt=job.attempts)
        if outcome is ReleaseOutcome.OK:
            known["backoff_ms"] = backoff_ms
        log_failure(f"session {session}: attempt {job.attempts} at a summary failed, {next_try}", error, known)
        return SummaryOutcome.FAILED if outcome is ReleaseOutcome.OK else SummaryOutcome(outcome)
