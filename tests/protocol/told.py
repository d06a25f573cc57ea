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
class Told:
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
class Shard:
    settings: Settings
    sessions: dict[str, Told] = field(default_factory=dict)
    indexes: dict[str, dict[str, int]] = field(default_factory=lambda: {name: {} for name in INDEXES})
    originals: dict[str, list[str]] = field(default_factory=dict)

    def _off(self, name: str, *indexes: str) -> None:
        for index in indexes:
            self.indexes[index].pop(name, None)

    def _queue(self, name: str, queue: str | None, due_ms: int) -> None:
        told = self.sessions[name]
        self._off(name, *QUEUES)
        told.queued, told.holder = queue, None
        if queue is not None:
            self.indexes[queue][name] = due_ms

    def waits(self, told: Told) -> bool:
        return len(told.window) > self.settings.threshold or len(told.summaries) > self.settings.summaries_limit

    # The user's side.

    def write(self, name: str, life: int, contents: list[tuple[str, int]], params: dict[str, int], now: int) -> None:
        """Messages, or params alone."""
        created = name not in self.sessions
        if created:
            self._off(name, *QUEUES, "evictions")
            self.sessions[name] = Told(life)
        told = self.sessions[name]
        told.contents += contents
        told.params |= params
        if len(told.window) > self.settings.threshold and told.queued is None:
            self._queue(name, "overdue", now)
        if created or now - told.active_ms >= 1000:
            told.active_ms = self.indexes["active"][name] = now
            if told.expires_ms - now < self.settings.idle_timeout_ms + 1000:
                told.expires_ms = self._expires_ms(now)
        self._untouch(name)

    def append(self, name: str, id: str, life: int, contents: list[tuple[str, int]], now: int) -> Receipt | None:
        """None: the window may not hold so many."""
        told = self.sessions.get(name)
        for known, receipt in [] if told is None else told.appends[-16:]:
            if known == id:
                return Receipt(receipt.first_seq, receipt.last_seq, receipt.total, receipt.created, True)
        before = 0 if told is None else len(told.window)
        if before + len(contents) > self.settings.max_window_count:
            return None
        self.write(name, life, contents, {}, now)
        total = self.sessions[name].total
        receipt = Receipt(total - len(contents) + 1, total, total, told is None, False)
        self.sessions[name].appends.append((id, receipt))
        return receipt

    def touch(self, name: str, now: int) -> bool:
        told = self.sessions.get(name)
        if told is None:
            return False
        told.active_ms = self.indexes["active"][name] = now
        told.expires_ms = self._expires_ms(now)
        self._untouch(name)
        return True

    def _expires_ms(self, now: int) -> int:
        return now + self.settings.idle_timeout_ms + max(1000, self.settings.idle_timeout_ms // 16)

    def _untouch(self, name: str) -> None:
        told = self.sessions[name]
        if told.evicting is not None:
            told.evicting = None
            self._off(name, "evictions")

    def prune(self, name: str, life: int, first_seq: int, count: int) -> int:
        told = self.sessions.get(name)
        if told is None or (told.life, told.first_seq) != (life, first_seq):
            return 0
        told.unsummarised |= set(range(first_seq, first_seq + count))
        told.first_seq += count
        self.originals.pop(name, None)
        return count

    def remove(self, name: str, life: int | None) -> bool:
        """Everything of this life; without one, what a session that is gone has left."""
        told = self.sessions.get(name)
        if (None if told is None else told.life) != life:
            return False
        self._off(name, *INDEXES)
        left = self.originals.pop(name, None) is not None
        return self.sessions.pop(name, None) is not None or left

    def expire(self, name: str) -> None:
        """The keys go, what names them stays."""
        self.sessions.pop(name, None)

    # The workers' side.

    def claim(self, name: str, now: int) -> str:
        told = self.sessions.get(name)
        if told is None:
            self._off(name, *QUEUES)
            return "gone"
        if told.queued not in ("overdue", "leased"):
            return "none"
        if self.indexes[told.queued][name] > now:
            return "leased" if told.queued == "leased" else "notdue"
        if not self.waits(told):
            self._queue(name, None, 0)
            told.attempts = None
            return "noop"
        if (told.attempts or 0) >= self.settings.max_attempts:
            self._queue(name, "dead", now)
            return "dead"
        return "job"

    def claimed(self, claim: Claim, now: int) -> None:
        told = self.sessions[claim.name]
        self._queue(claim.name, "leased", now + int(self.settings.lease_s * 1000))
        told.holder, told.fence, told.attempts = claim.worker, claim.job.fence, (told.attempts or 0) + 1

    def _held(self, claim: Claim) -> Told | None:
        told = self.sessions.get(claim.name)
        return told if told is not None and (told.life, told.holder) == (claim.life, claim.worker) else None

    def extend(self, claim: Claim, now: int) -> bool:
        if self._held(claim) is None:
            return False
        self.indexes["leased"][claim.name] = now + int(self.settings.lease_s * 1000)
        return True

    def commit(
        self, claim: Claim, count: int, folded: list[Summary], summary: Summary | None, keep: bool, now: int
    ) -> str:
        told = self.sessions.get(claim.name)
        if told is None or told.life != claim.life:
            return "gone"
        if told.committed == claim.worker:
            return "already"
        if told.holder != claim.worker:
            return "fenced"
        if told.first_seq != claim.first_seq or not all(old in told.summaries for old in folded):
            return "stale"
        self._swap(claim.name, told, count, keep)
        for old in folded:
            told.summaries.remove(old)
        covered = range(0) if summary is None else range(summary.first_seq, summary.last_seq + 1)
        gone = [seq for old in folded for seq in range(old.first_seq, old.last_seq + 1)]
        told.unsummarised = told.unsummarised.union(gone, range(claim.first_seq, told.first_seq)) - set(covered)
        if summary is not None:
            told.summaries = sorted([*told.summaries, summary], key=lambda each: each.first_seq)
        told.committed, told.committed_fence = claim.worker, claim.job.fence
        told.attempts = told.dropped_seq = None
        self._queue(claim.name, "overdue" if self.waits(told) else None, now)
        return "ok"

    def _swap(self, name: str, told: Told, count: int, keep: bool) -> None:
        leaving = [content for content, _ in told.window[:count]]
        told.first_seq += count
        if count:
            kept = self.originals.pop(name, []) if keep and told.with_originals else []
            self.originals.pop(name, None)
            told.with_originals = keep
            if keep:
                self.originals[name] = kept + leaving

    def release(self, claim: Claim, backoff_ms: int, counts: bool, dead: bool, now: int) -> str:
        told = self._held(claim)
        if told is None:
            return "fenced"
        told.attempts = (told.attempts or 0) - (not counts)
        over = dead or told.attempts >= self.settings.max_attempts
        self._queue(claim.name, "dead" if over else "overdue", now if over else now + backoff_ms)
        return "dead" if over else "ok"

    def requeue(self, name: str, again: bool, now: int) -> bool:
        told = self.sessions.get(name)
        if told is None or told.queued != "dead":
            return self.indexes["dead"].pop(name, None) is not None
        self._queue(name, "overdue" if again else None, now)
        told.attempts = None
        if not again:
            told.dropped_seq = told.total
        return True

    # Eviction, and the sweep.

    def queue_eviction(self, seen: list[tuple[str, int]], reason: str, now: int) -> int:
        chosen = 0
        for name, active_ms in seen:
            told = self.sessions.get(name)
            if told is None:
                self._off(name, *INDEXES)
            elif told.active_ms == active_ms and told.evicting is None:
                told.evicting = reason
                self.indexes["evictions"][name] = now
                chosen += 1
        return chosen

    def claim_eviction(self, name: str, now: int) -> bool:
        told, due_ms = self.sessions.get(name), self.indexes["evictions"].get(name)
        if due_ms is None or due_ms > now:
            return False
        if told is None or told.evicting is None:
            self._off(name, "evictions")
            return False
        self.indexes["evictions"][name] = now + int(self.settings.lease_s * 1000)
        return True

    def evict(self, name: str, life: int, total: int) -> bool:
        told = self.sessions.get(name)
        if told is None or (told.life, told.total) != (life, total) or told.evicting is None:
            return False
        return self.remove(name, life)

    def sweep(self, names: list[str], now: int) -> tuple[int, int]:
        removed = mended = 0
        for name in names:
            told = self.sessions.get(name)
            before = {index: dict(entries) for index, entries in self.indexes.items()}
            if told is None:
                self._off(name, *INDEXES)
                removed += 1
                continue
            self._off(name, *(queue for queue in QUEUES if queue != told.queued))
            if told.queued is not None and name not in self.indexes[told.queued]:
                self._queue(name, "overdue", now)
                told.attempts = None
            self.indexes["active"].setdefault(name, told.active_ms)
            forgotten = told.evicting is not None and name not in self.indexes["evictions"]
            told.evicting = None if forgotten else told.evicting
            mended += forgotten or self.indexes != before
        return removed, mended
