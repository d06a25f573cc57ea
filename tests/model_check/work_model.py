"""The model of the workers' operations on one shard, in plain Python.

A number identifies a worker. Only the worker that claimed last may write; the model compares no fences.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Any

from model_check.model import HANDOVER_MS, INDEXES, QUEUES, Model
from model_check.session import Entry, SessionModel
from redismem.context.results import Summary
from redismem.originals.blocks import block_number
from redismem.protocol.call import Call
from redismem.protocol.queue.calls import Job


@dataclass
class Claim:
    """A worker's claim: the session at the time of the claim."""

    name: str
    worker: int
    life: int
    call: Call[Any]
    job: Job
    first_seq: int
    version: int
    window: list[Entry]
    """The messages that count."""
    summaries: list[Summary]


class WorkModel(Model):
    """The sessions, and the operations of users and workers."""

    def claim(self, name: str, now: int, is_own: bool = False) -> str:
        """Return the outcome of a claim; `is_own` if its worker already has the lease."""
        session = self.sessions.get(name)
        if session is None:
            self._leave(name, *QUEUES)
            return "gone"
        if session.queued not in ("overdue", "leased"):
            return "none"
        if self.indexes[session.queued][name] > now and not is_own:
            return "leased" if session.queued == "leased" else "notdue"
        if not self.waits(session):
            self._queue(name, None, 0)
            session.attempts = session.failure = session.deaths = None
            return "noop"
        if is_own:
            return "job"
        if (session.attempts or 0) >= self.settings.claims_limit:
            self._dies(name, now)
            self._fails(session, "no worker came back with it", now)
            return "dead"
        return "job"

    def _dies(self, name: str, now: int) -> None:
        self._queue(name, "dead", now)
        self.sessions[name].deaths = (self.sessions[name].deaths or 0) + 1

    def _fails(self, session: SessionModel, reason: str, now: int) -> None:
        session.failure = (now if session.failure is None else session.failure[0], now, reason)

    def claimed(self, claim: Claim, now: int) -> None:
        session = self.sessions[claim.name]
        self._queue(claim.name, "leased", now + int(self.settings.lease_s * 1000))
        session.holder, session.fence, session.attempts = claim.worker, claim.job.fence, (session.attempts or 0) + 1

    def _held(self, claim: Claim) -> SessionModel | None:
        session = self.sessions.get(claim.name)
        return session if session is not None and (session.life, session.holder) == (claim.life, claim.worker) else None

    def has_lease(self, claim: Claim, now: int) -> bool:
        """True if the lease of the claim has not expired."""
        return self._held(claim) is not None and self.indexes["leased"][claim.name] > now

    def extend(self, claim: Claim, now: int) -> bool:
        if self._held(claim) is None:
            return False
        self.indexes["leased"][claim.name] = now + int(self.settings.lease_s * 1000)
        return True

    def commit(
        self,
        claim: Claim,
        seqs_count: int,
        folded: list[Summary],
        summary: Summary | None,
        keep: bool,
        now: int,
        sketch: bytes | None = None,
    ) -> str:
        session = self.sessions.get(claim.name)
        if session is None or session.life != claim.life:
            return "gone"
        if session.committed == claim.worker:
            return "already"
        if session.holder != claim.worker:
            return "fenced"
        if (session.first_seq, session.version) != (claim.first_seq, claim.version):
            return "stale"
        if not all(old in session.summaries for old in folded):
            return "stale"
        self._swap(claim.name, session, seqs_count, keep)
        for old in folded:
            session.summaries.remove(old)
        covered = range(0) if summary is None else range(summary.first_seq, summary.last_seq + 1)
        gone = [seq for old in folded for seq in range(old.first_seq, old.last_seq + 1)]
        session.unsummarised = session.unsummarised.union(gone, range(claim.first_seq, session.first_seq)) - set(
            covered
        )
        if summary is not None:
            session.summaries = sorted([*session.summaries, summary], key=lambda covering: covering.first_seq)
        session.sketch = session.sketch if sketch is None else sketch
        session.committed, session.committed_fence, session.has_count = claim.worker, claim.job.fence, True
        session.attempts = session.dropped_seq = session.failure = session.deaths = None
        self._queue(claim.name, "overdue" if self.waits(session) else None, now)
        return "ok"

    def quarantine_blocks(self, name: str, numbers: Container[int]) -> None:
        """Remove the blocks in a stored block from the originals, and the originals with their last block."""
        if name in self.sessions:
            here = {block_number(seq) for seq in self.originals[name]}
            self.quarantined |= {(self.sessions[name].epoch, number) for number in here if number in numbers}
        left = {seq: content for seq, content in self.originals[name].items() if block_number(seq) not in numbers}
        self.originals[name] = left
        if not left:
            self.originals.pop(name)

    def release(self, claim: Claim, backoff_ms: int, counts: bool, dead: bool, reason: str, now: int) -> str:
        session = self._held(claim)
        if session is None:
            return "fenced"
        session.attempts = (session.attempts or 0) - (not counts)
        over = dead or session.attempts >= self.settings.claims_limit
        if over:
            self._dies(claim.name, now)
        else:
            self._queue(claim.name, "overdue", now + backoff_ms)
        if reason != "-":
            self._fails(session, reason, now)
        return "dead" if over else "ok"

    def requeue(self, name: str, again: bool, now: int) -> bool:
        session = self.sessions.get(name)
        if session is None or session.queued != "dead":
            return self.indexes["dead"].pop(name, None) is not None
        self._queue(name, "overdue" if again else None, now)
        session.attempts = session.deaths = None
        if not again:
            session.dropped_seq = session.total
        return True

    # Eviction, and the sweep.

    def queue_eviction(
        self, seen: list[tuple[str, int]], reason: str, kept: bool, soon_ms: int, now: int
    ) -> tuple[int, int]:
        chosen = expired = 0
        for name, active_ms in seen:
            session = self.sessions.get(name)
            if session is None:
                expired += name in self.indexes["active"]
                self._leave(name, *INDEXES)
                continue
            due_ms = max(now, session.expires_ms + 1) if reason == "idle" else now
            is_exempt = reason == "limit" and "x" in session.policy
            if (
                session.active_ms == active_ms
                and session.evicting is None
                and due_ms <= now + soon_ms
                and not is_exempt
            ):
                session.evicting = reason
                if kept:
                    session.expires_ms = max(session.expires_ms, now + HANDOVER_MS)
                self.indexes["evictions"][name] = due_ms
                chosen += 1
        return chosen, expired

    def claim_eviction(self, name: str, now: int, nonce: str) -> bool:
        session, due_ms = self.sessions.get(name), self.indexes["evictions"].get(name)
        if due_ms is None or due_ms < 0:
            return False
        if due_ms > now:
            return session is not None and session.evictor == f"{due_ms}-{nonce}"
        if session is None or session.evicting is None:
            self._leave(name, "evictions")
            return False
        lease_end_ms = now + int(self.settings.lease_s * 1000)
        self.indexes["evictions"][name], session.evictor = lease_end_ms, f"{lease_end_ms}-{nonce}"
        return True

    def evict(self, name: str, written: int) -> bool:
        """Evict a session. `written` is the number of the last write in the transcript."""
        session = self.sessions.get(name)
        if session is None or session.evicting is None or session.written != written:
            return False
        return self.remove(name, session.life)

    def sweep(self, names: list[str], now: int) -> tuple[int, int]:
        removed = mended = 0
        for name in names:
            session = self.sessions.get(name)
            before = {index: dict(entries) for index, entries in self.indexes.items()}
            if session is None:
                self._leave(name, *INDEXES)
                removed += 1
                continue
            self._leave(name, *(queue for queue in QUEUES if queue != session.queued))
            if session.queued is not None and name not in self.indexes[session.queued]:
                self._queue(name, "overdue", now)
                session.attempts = None
            elif session.queued == "dead" and self._dead_until_ms(name) <= now:
                self._queue(name, "overdue", now)
                session.attempts = self.settings.max_attempts - 1
            self.indexes["active"].setdefault(name, -session.active_ms if "x" in session.policy else session.active_ms)
            forgotten = session.evicting is not None and name not in self.indexes["evictions"]
            if session.policy not in ("", "w"):
                self.indexes["evictions"].setdefault(name, -session.expires_ms)
            session.evicting = None if forgotten else session.evicting
            mended += forgotten or self.indexes != before
        return removed, mended

    def _dead_until_ms(self, name: str) -> int:
        """Return the time of a dead session's next try: the wait doubles with each death, up to a day."""
        doublings = max(1, self.sessions[name].deaths or 1) - 1
        wait_ms = int(self.settings.max_backoff_s * 1000) * 2**doublings
        return self.indexes["dead"][name] + min(wait_ms, 86_400_000)

    # Providers.

    def note(self, provider: str, seen: bytes, value: bytes) -> bytes:
        """Store the pause of a provider if `seen` is still stored, and return the stored pause."""
        if self.pauses.get(provider, b"") == seen:
            self.pauses.pop(provider, None)
            if value:
                self.pauses[provider] = value
        return self.pauses.get(provider, b"")
