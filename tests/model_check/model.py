"""What the sessions of one shard should be, in plain Python: said without fences, scripts or Redis.

A worker is known by its number, a session's life by its own; whether a worker may still write is decided by who claimed
last, not by comparing texts. `now` is always the time in milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from redismem.context import Receipt, Summary
from redismem.protocol.queue_calls import Job
from redismem.settings import Settings

QUEUES = ("overdue", "leased", "dead")
INDEXES = ("active", *QUEUES, "evictions")


@dataclass
class SessionModel:
    """A session. `contents` are all messages ever appended to it, with their tokens."""

    life: int
    active_ms: int = 0
    expires_ms: int = 0
    epoch: str = ""
    first_seq: int = 1
    contents: list[tuple[str, int]] = field(default_factory=list)
    appends: list[tuple[str, Receipt]] = field(default_factory=list)
    params: dict[str, int] = field(default_factory=dict)
    summaries: list[Summary] = field(default_factory=list)
    unsummarised: set[int] = field(default_factory=set)
    """Seqs that were dropped without a summary."""
    with_originals: bool = False
    queued: str | None = None
    holder: int | None = None
    attempts: int | None = None
    committed: int | None = None
    committed_fence: str = ""
    fence: str = ""
    evicting: str | None = None
    dropped_seq: int | None = None

    @property
    def total(self) -> int:
        return len(self.contents)

    @property
    def window(self) -> list[tuple[str, int]]:
        return self.contents[self.first_seq - 1 :]


@dataclass
class Claim:
    """What a worker took with it: the session as it was then."""

    name: str
    worker: int
    life: int
    job: Job
    first_seq: int
    window: list[tuple[str, int]]
    summaries: list[Summary]


@dataclass
class Model:
    settings: Settings
    sessions: dict[str, SessionModel] = field(default_factory=dict)
    indexes: dict[str, dict[str, int]] = field(default_factory=lambda: {name: {} for name in INDEXES})
    originals: dict[str, list[str]] = field(default_factory=dict)

    def _leave(self, name: str, *indexes: str) -> None:
        for index in indexes:
            self.indexes[index].pop(name, None)

    def _queue(self, name: str, queue: str | None, due_ms: int) -> None:
        session = self.sessions[name]
        self._leave(name, *QUEUES)
        session.queued, session.holder = queue, None
        if queue is not None:
            self.indexes[queue][name] = due_ms

    def waits(self, session: SessionModel) -> bool:
        return len(session.window) > self.settings.threshold or len(session.summaries) > self.settings.summaries_limit

    # The user's side.

    def write(self, name: str, life: int, contents: list[tuple[str, int]], params: dict[str, int], now: int) -> None:
        """Writes messages, or params alone."""
        created = name not in self.sessions
        if created:
            self._leave(name, *QUEUES, "evictions")
            self.sessions[name] = SessionModel(life)
        session = self.sessions[name]
        session.contents += contents
        session.params |= params
        if len(session.window) > self.settings.threshold and session.queued is None:
            self._queue(name, "overdue", now)
        if created or now - session.active_ms >= 1000:
            session.active_ms = self.indexes["active"][name] = now
            if session.expires_ms - now < self.settings.idle_timeout_ms + 1000:
                session.expires_ms = self._expires_ms(now)
        self._untouch(name)

    def append(self, name: str, id: str, life: int, contents: list[tuple[str, int]], now: int) -> Receipt | None:
        """Gives None if the window may not hold so many."""
        session = self.sessions.get(name)
        for known, receipt in [] if session is None else session.appends[-16:]:
            if known == id:
                return Receipt(receipt.first_seq, receipt.last_seq, receipt.total, receipt.created, True)
        before = 0 if session is None else len(session.window)
        if before + len(contents) > self.settings.max_window_count:
            return None
        self.write(name, life, contents, {}, now)
        total = self.sessions[name].total
        receipt = Receipt(total - len(contents) + 1, total, total, session is None, False)
        self.sessions[name].appends.append((id, receipt))
        return receipt

    def touch(self, name: str, now: int) -> bool:
        session = self.sessions.get(name)
        if session is None:
            return False
        session.active_ms = self.indexes["active"][name] = now
        session.expires_ms = self._expires_ms(now)
        self._untouch(name)
        return True

    def _expires_ms(self, now: int) -> int:
        return now + self.settings.idle_timeout_ms + max(1000, self.settings.idle_timeout_ms // 16)

    def _untouch(self, name: str) -> None:
        session = self.sessions[name]
        if session.evicting is not None:
            session.evicting = None
            self._leave(name, "evictions")

    def prune(self, name: str, life: int, first_seq: int, count: int) -> int:
        session = self.sessions.get(name)
        if session is None or (session.life, session.first_seq) != (life, first_seq):
            return 0
        session.unsummarised |= set(range(first_seq, first_seq + count))
        session.first_seq += count
        self.originals.pop(name, None)
        return count

    def remove(self, name: str, life: int | None) -> bool:
        """Removes everything of this life; without one, what a session that is gone has left."""
        session = self.sessions.get(name)
        if (None if session is None else session.life) != life:
            return False
        self._leave(name, *INDEXES)
        left = self.originals.pop(name, None) is not None
        return self.sessions.pop(name, None) is not None or left

    def expire(self, name: str) -> None:
        """Lets the keys go; what names them stays."""
        self.sessions.pop(name, None)

    # The workers' side.

    def claim(self, name: str, now: int) -> str:
        session = self.sessions.get(name)
        if session is None:
            self._leave(name, *QUEUES)
            return "gone"
        if session.queued not in ("overdue", "leased"):
            return "none"
        if self.indexes[session.queued][name] > now:
            return "leased" if session.queued == "leased" else "notdue"
        if not self.waits(session):
            self._queue(name, None, 0)
            session.attempts = None
            return "noop"
        if (session.attempts or 0) >= self.settings.max_attempts:
            self._queue(name, "dead", now)
            return "dead"
        return "job"

    def claimed(self, claim: Claim, now: int) -> None:
        session = self.sessions[claim.name]
        self._queue(claim.name, "leased", now + int(self.settings.lease_s * 1000))
        session.holder, session.fence, session.attempts = claim.worker, claim.job.fence, (session.attempts or 0) + 1

    def _held(self, claim: Claim) -> SessionModel | None:
        session = self.sessions.get(claim.name)
        return session if session is not None and (session.life, session.holder) == (claim.life, claim.worker) else None

    def extend(self, claim: Claim, now: int) -> bool:
        if self._held(claim) is None:
            return False
        self.indexes["leased"][claim.name] = now + int(self.settings.lease_s * 1000)
        return True

    def commit(
        self, claim: Claim, count: int, folded: list[Summary], summary: Summary | None, keep: bool, now: int
    ) -> str:
        session = self.sessions.get(claim.name)
        if session is None or session.life != claim.life:
            return "gone"
        if session.committed == claim.worker:
            return "already"
        if session.holder != claim.worker:
            return "fenced"
        if session.first_seq != claim.first_seq or not all(old in session.summaries for old in folded):
            return "stale"
        self._swap(claim.name, session, count, keep)
        for old in folded:
            session.summaries.remove(old)
        covered = range(0) if summary is None else range(summary.first_seq, summary.last_seq + 1)
        gone = [seq for old in folded for seq in range(old.first_seq, old.last_seq + 1)]
        session.unsummarised = session.unsummarised.union(gone, range(claim.first_seq, session.first_seq)) - set(
            covered
        )
        if summary is not None:
            session.summaries = sorted([*session.summaries, summary], key=lambda each: each.first_seq)
        session.committed, session.committed_fence = claim.worker, claim.job.fence
        session.attempts = session.dropped_seq = None
        self._queue(claim.name, "overdue" if self.waits(session) else None, now)
        return "ok"

    def _swap(self, name: str, session: SessionModel, count: int, keep: bool) -> None:
        leaving = [content for content, _ in session.window[:count]]
        session.first_seq += count
        if count:
            kept = self.originals.pop(name, []) if keep and session.with_originals else []
            self.originals.pop(name, None)
            session.with_originals = keep
            if keep:
                self.originals[name] = kept + leaving

    def release(self, claim: Claim, backoff_ms: int, counts: bool, dead: bool, now: int) -> str:
        session = self._held(claim)
        if session is None:
            return "fenced"
        session.attempts = (session.attempts or 0) - (not counts)
        over = dead or session.attempts >= self.settings.max_attempts
        self._queue(claim.name, "dead" if over else "overdue", now if over else now + backoff_ms)
        return "dead" if over else "ok"

    def requeue(self, name: str, again: bool, now: int) -> bool:
        session = self.sessions.get(name)
        if session is None or session.queued != "dead":
            return self.indexes["dead"].pop(name, None) is not None
        self._queue(name, "overdue" if again else None, now)
        session.attempts = None
        if not again:
            session.dropped_seq = session.total
        return True

    # Eviction, and the sweep.

    def queue_eviction(self, seen: list[tuple[str, int]], reason: str, now: int) -> int:
        chosen = 0
        for name, active_ms in seen:
            session = self.sessions.get(name)
            if session is None:
                self._leave(name, *INDEXES)
            elif session.active_ms == active_ms and session.evicting is None:
                session.evicting = reason
                self.indexes["evictions"][name] = now
                chosen += 1
        return chosen

    def claim_eviction(self, name: str, now: int) -> bool:
        session, due_ms = self.sessions.get(name), self.indexes["evictions"].get(name)
        if due_ms is None or due_ms > now:
            return False
        if session is None or session.evicting is None:
            self._leave(name, "evictions")
            return False
        self.indexes["evictions"][name] = now + int(self.settings.lease_s * 1000)
        return True

    def evict(self, name: str, life: int, total: int) -> bool:
        session = self.sessions.get(name)
        if session is None or (session.life, session.total) != (life, total) or session.evicting is None:
            return False
        return self.remove(name, life)

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
            self.indexes["active"].setdefault(name, session.active_ms)
            forgotten = session.evicting is not None and name not in self.indexes["evictions"]
            session.evicting = None if forgotten else session.evicting
            mended += forgotten or self.indexes != before
        return removed, mended
