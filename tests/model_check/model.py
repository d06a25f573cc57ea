"""What the sessions of one shard should be, in plain Python: said without fences, scripts or Redis.

Here the user's side; `work_model` adds what workers do. A session's life is known by its number. `now` is always the
time in milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from redismem.context import Receipt, Summary
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
class Model:
    """The sessions, and what users do with them."""

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

    def append(
        self,
        name: str,
        id: str,
        life: int,
        contents: list[tuple[str, int]],
        now: int,
        params: dict[str, int] | None = None,
    ) -> Receipt | None:
        """Messages, params or both. Gives None if the window may not hold so many."""
        session = self.sessions.get(name)
        for known, receipt in [] if session is None else session.appends[-16:]:
            if known == id:
                return replace(receipt, duplicate=True)
        before = 0 if session is None else len(session.window)
        if contents and before + len(contents) > self.settings.max_window_count:
            return None
        self.write(name, life, contents, params or {}, now)
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
