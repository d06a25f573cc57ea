"""Evict idle sessions, and the least recently active ones over `max_sessions`, after handing over transcripts."""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from redismem.concurrency.callbacks import run_callback_within
from redismem.context.info import SessionEntry
from redismem.errors import RedismemError
from redismem.events import Op, facts
from redismem.protocol import layout
from redismem.protocol.ids import session_hash
from redismem.protocol.keys import SessionKeys, ShardKeys, is_session_id
from redismem.protocol.layout import NONE, EvictionReason
from redismem.protocol.owners import decode_owner
from redismem.protocol.policy import decode_policy
from redismem.protocol.queue import calls as queue_calls
from redismem.protocol.queue import depths
from redismem.protocol.session.edits import window
from redismem.record.sweeping import RecordSweep
from redismem.session.session import Session
from redismem.store.store import Store
from redismem.workers.archive import OnEvict
from redismem.workers.failures import log_failure
from redismem.workers.limit_warnings import LimitWarnings

log = logging.getLogger("redismem.worker")

_ROUND_COUNT = 1_000
_CHUNK_COUNT = 100
_SHARDS_COUNT = 64
_ANY_MS = -1
"""The activity of a session that is queued whatever its activity."""
_FOREIGN = "an index contains a member that is no session id; it is skipped, and `redismem doctor --deep` names it"


class Eviction:
    """Enforce the session limit and the idle timeout of a namespace."""

    def __init__(self, store: Store, on_evict: OnEvict | None = None, *, concurrency: int = 32) -> None:
        self._store = store
        self._on_evict = on_evict
        self._concurrency = concurrency
        self._due_count = 0
        self._slots = asyncio.Semaphore(concurrency)
        self._cursors = dict.fromkeys(store.keys.shards(), (0, 0))
        self._records = RecordSweep(store)
        self._stopping = False
        self.warnings = LimitWarnings(store)
        settings = store.settings
        if on_evict is not None and settings.idle_timeout_s < 20 * settings.tick_s:
            log.warning(
                "on_evict may miss sessions: they expire after %g s (REDISMEM_IDLE_TIMEOUT_S), and a worker polls "
                "every %g s, ten ticks (REDISMEM_TICK_S)",
                settings.idle_timeout_s,
                10 * settings.tick_s,
                extra=facts(op="enforce", setting="REDISMEM_IDLE_TIMEOUT_S"),
            )

    @property
    def is_crowded(self) -> bool:
        """True if more sessions wait for eviction in this process than `concurrency` allows at a time."""
        return self._due_count > self._concurrency

    def stop(self) -> None:
        """Start no further evictions."""
        self._stopping = True

    async def enforce(self) -> int:
        """Evict until the namespace is within its limit and no session is idle; return the number of evicted sessions.

        Raises:
            StoreUnavailable: Redis does not answer before the deadline.
        """
        return await self._store.observe(Op.ENFORCE, self._enforce())

    async def enforce_limit(self) -> int:
        """Call `enforce` if the namespace is over its limit; the check costs one command per shard."""
        self.warnings.note_evicted(0)  # what an earlier call has counted
        return await self.enforce() if await self._count_excess() > 0 else 0

    async def _enforce(self) -> int:
        evicted = 0
        await self._store.agreement.agree()  # its record may be gone, or replaced by another process
        self.warnings.tell_of_default()
        while not self._stopping:
            await self.queue_idle()
            await self.queue_excess()
            gone = await self.drain()
            evicted += gone
            self.warnings.note_evicted(gone)
            if not gone:
                break
        return evicted

    async def queue_excess(self) -> int:
        """Queue the least recently active sessions beyond the limit, a bounded number at a time."""
        keys = self._store.keys
        excess = min(await self._count_excess(), _ROUND_COUNT)
        limit = max(excess, 0) // keys.shard_count * 2 + 16
        while excess > 0:
            shards = await self._store.run(queue_calls.oldest_sessions(keys, limit))
            # Counted after the query: evictions by other workers in between reduce it, so that none goes too many.
            excess = min(await self._count_excess(), _ROUND_COUNT)
            entries = sorted((entry for shard in shards for entry in shard), key=_age_key)
            # A shard that returned a full page may hold further sessions as old as its last one.
            complete_ms = min((shard[-1].active_ms for shard in shards if len(shard) == limit), default=None)
            complete = complete_ms is None or (len(entries) >= excess and entries[excess - 1].active_ms <= complete_ms)
            if excess > 0 and (complete or limit >= excess):
                queued_count = await self._queue(entries[:excess], EvictionReason.LIMIT)
                await self.warnings.note_leaving(entries[:excess], await self._store.server_time_ms())
                return queued_count
            limit = min(limit * 2, excess)
        return 0

    async def _count_excess(self) -> int:
        per_shard = await self._store.run(depths.counts(self._store.keys))
        sessions_count = sum(per_shard)
        self.warnings.note_count(sessions_count)
        return sessions_count - self._store.agreement.session_limit

    async def queue_idle(self) -> int:
        """Queue all sessions past their timeout, or about to be if they are handed over: Redis removes the others.

        The timeout is the one that the appending processes gave the session, not this worker's.
        """
        settings = self._store.settings
        soon_ms = 0 if self._on_evict is None else settings.lookahead_ms
        now_ms = await self._store.server_time_ms()
        below_ms = now_ms - settings.kept_ms + soon_ms
        chosen = await self._queue_watched(now_ms + soon_ms, soon_ms)
        looks = [queue_calls.ActiveCursor(shard) for shard in self._store.keys.shards()]
        while looks and not self._stopping:
            shards = await self._store.run(queue_calls.idle_sessions(looks, below_ms, _CHUNK_COUNT))
            chosen += await self._queue([entry for shard in shards for entry in shard], EvictionReason.IDLE, soon_ms)
            # Sessions touched or expired in between shift the pages; a skipped session is found by the next query.
            full = (pair for pair in zip(looks, shards, strict=True) if len(pair[1]) == _CHUNK_COUNT)
            looks = [look.after(entries) for look, entries in full]
        return chosen

    async def _queue_watched(self, before_ms: int, soon_ms: int) -> int:
        """Queue the sessions with an own timeout, or exempt from the limit, that expire before `before_ms`."""
        chosen = 0
        while not self._stopping:
            watched = queue_calls.expiring_sessions(self._store.keys.shards(), before_ms, _CHUNK_COUNT)
            session_ids = await self._store.run(watched)
            entries = [SessionEntry(session_id, _ANY_MS) for session_id in session_ids]
            count = await self._queue(entries, EvictionReason.IDLE, soon_ms)
            chosen += count
            if not count:
                break
        return chosen

    async def _queue(self, entries: list[SessionEntry], reason: EvictionReason, soon_ms: int = 0) -> int:
        keys = self._store.keys
        by_shard: dict[int, list[tuple[SessionKeys, int | str]]] = {}
        for entry in entries:
            if (session_keys := self._keys_of(entry.session_id)) is not None:
                by_shard.setdefault(keys.shard_of(entry.session_id), []).append(
                    (session_keys, NONE if entry.active_ms == _ANY_MS else entry.active_ms)
                )
        calls = [
            queue_calls.queue_eviction(
                keys.shards()[shard],
                sessions[at : at + _CHUNK_COUNT],
                reason,
                self._store.clock,
                kept=self._on_evict is not None,
                soon_ms=soon_ms,
            )
            for shard, sessions in by_shard.items()
            for at in range(0, len(sessions), _CHUNK_COUNT)
        ]
        counts = await asyncio.gather(*(self._store.run(call) for call in calls))
        self._log_expired(sum(expired for _, expired in counts))
        return sum(chosen for chosen, _ in counts)

    def _log_expired(self, count: int) -> None:
        if count and self._on_evict is not None:
            text = (
                "%d sessions expired before on_evict had them: no worker looked in time, or on_evict failed for a day"
            )
            log.error(text, count, extra=facts(op="enforce", session_count=count))

    async def drain(self) -> int:
        """Evict the queued sessions and return how many were removed. A session that became active again stays."""
        evicted = 0
        while not self._stopping:
            now_ms = await self._store.server_time_ms()
            call = queue_calls.due_evictions(self._store.keys.shards(), now_ms, _CHUNK_COUNT)
            due = await self._store.run(call)
            self._due_count = len(due)
            try:
                outcomes = await asyncio.gather(*(self._evict_logged(session_id) for session_id in due))
            finally:
                self._due_count = 0
            evicted += sum(outcomes)
            if not any(outcomes):
                break
        return evicted

    async def _evict_logged(self, session_id: str) -> bool:
        async with self._slots:
            try:
                if self._stopping:
                    return False
                return await self._store.observe(Op.EVICTION, self.evict(session_id), session_id)
            except Exception as error:  # the caller's on_evict may raise anything; the session stays and is retried
                session = session_hash(session_id)
                log_failure(f"session {session}: not evicted", error, facts(op="eviction", session=session))
                return False

    async def evict(self, session_id: str) -> bool:
        """Hand over the transcript and remove the session. False if it is active again, or another worker has it."""
        calls = self._store.queue_calls(session_id)
        if not await self._store.run(calls.claim_eviction(), quarantine=True):
            return False
        if self._on_evict is None:
            return await self._store.run(calls.evict(None), quarantine=True)
        session_calls = self._store.session_calls(session_id)
        session = Session(self._store, session_calls)
        transcript = await self._store.run(window(session_calls), quarantine=True)
        if transcript is None:
            return False  # removed or quarantined in the meantime: there is nothing to hand over
        context = transcript.context
        context.policy = decode_policy(layout.counters(transcript.fields[layout.COUNTERS]).policy, context.zone)
        context.owner = decode_owner(transcript.fields.get(layout.OWNER))
        if self._store.agreement.keeps_originals or any(message.shortened for message in context.messages):
            messages = await session.messages(include_originals=True)
            context.messages = [message for message in messages if not message.pinned]
        lease_s = self._store.settings.lease_s
        late = RedismemError(f"on_evict did not end within {lease_s:g} s")
        await run_callback_within(lease_s, late, partial(self._on_evict, session_id, context))
        return await self._store.run(calls.evict(transcript))

    async def sweep(self) -> tuple[int, int]:
        """Check a few sessions and records of every shard.

        Return the number of those removed from the indexes, and of those repaired.
        """
        return await self._store.observe(Op.SWEEP_ROUND, self._sweep())

    async def _sweep(self) -> tuple[int, int]:
        removed = mended = 0
        shards = self._store.keys.shards()
        for first in range(0, len(shards), _SHARDS_COUNT):
            cursors = {shard: self._cursors[shard] for shard in shards[first : first + _SHARDS_COUNT]}
            for shard, scanned in (await self._store.run(queue_calls.scan_queue(cursors, _CHUNK_COUNT))).items():
                self._cursors[shard] = scanned.cursors
                gone, mended_count = await self._sweep_sessions(shard, scanned.session_ids)
                removed, mended = removed + gone, mended + mended_count
        gone, mended_count = await self._records.sweep()
        return removed + gone, mended + mended_count

    async def _sweep_sessions(self, shard: ShardKeys, session_ids: list[str]) -> tuple[int, int]:
        removed = mended = 0
        for at in range(0, len(session_ids), _CHUNK_COUNT):
            keys_of_part = map(self._keys_of, session_ids[at : at + _CHUNK_COUNT])
            part = [each for each in keys_of_part if each is not None]
            gone, mended_count = await self._store.run(
                queue_calls.sweep(shard, part, self._store.settings, self._store.clock)
            )
            removed, mended = removed + gone, mended + mended_count
        return removed, mended

    def _keys_of(self, session_id: str) -> SessionKeys | None:
        """Return the session's keys; `None` if the index member is no session id, which must not stop evictions."""
        if is_session_id(session_id):
            return self._store.keys.session(session_id)
        if _FOREIGN not in self._store.passed_over:
            self._store.passed_over.add(_FOREIGN)
            namespace = self._store.keys.namespace
            log.warning("namespace %s: %s", namespace, _FOREIGN, extra=facts(op="enforce", namespace=namespace))
        return None


def _age_key(entry: SessionEntry) -> tuple[int, str]:
    return entry.active_ms, entry.session_id
