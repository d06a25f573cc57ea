"""The backlog: appends that this process accepted while Redis was down and has not replayed.

The appends of a session are in order. The size of the backlog is bounded.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from redismem.errors import FallbackFull
from redismem.protocol.appends import Append
from redismem.protocol.ids import now_ms
from redismem.settings.settings import Settings
from redismem.store.fallback.session_view import CachedView

# The memory of an entry, without the data of its append.
_ENTRY_BYTES = 512


@dataclass(slots=True, eq=False)
class Entry:
    """An append or a state change that waits for its replay."""

    append: Append
    first_seq: int
    """The first and the last seq that were returned to the caller."""
    last_seq: int
    sent_s: float | None
    """The monotonic time at which the append was first sent; `None` if it was never sent.

    If it was sent, its reply was lost, so Redis may have made it.
    """
    known_seq: int | None
    """The last seq known before the append was sent; `None` if unknown.

    If Redis has made the append, its messages come after this seq.
    """

    @property
    def count(self) -> int:
        """The number of messages. A state change without messages counts as one."""
        return max(1, len(self.append.elements))

    @property
    def size_bytes(self) -> int:
        """The approximate size in memory."""
        return self.append.size_bytes + _ENTRY_BYTES


@dataclass(slots=True, eq=False)
class Held:
    """A session with entries to replay."""

    session_id: str
    view: CachedView
    entries: deque[Entry] = field(default_factory=deque)
    last_seq: int | None = None
    """The last seq that Redis is known to have; `None` if unknown."""
    taken: set[int] = field(default_factory=set)
    """The seqs in Redis that were already matched to entries whose reply was lost."""
    refused: str = ""
    """The type of the error with which Redis refuses the first entry; "" if Redis does not refuse it."""
    is_replaying: bool = False
    """True while the first entry is being sent to Redis."""

    def find_seqs(self, append: Append) -> tuple[int, int] | None:
        """Return the first and last seq of an earlier append with this token; `None` if there is none."""
        seqs = ((entry.first_seq, entry.last_seq) for entry in self.entries if entry.append.name == append.name)
        return next(seqs, None) or self.view.find_seqs(append)


class Backlog:
    """All sessions with entries to replay. The caller must hold the lock of `Fallback` around each change."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.held: dict[str, Held] = {}
        self._clears_count: Counter[str] = Counter()
        self.message_count = 0
        self.size_bytes = 0

    def __contains__(self, session_id: str) -> bool:
        return session_id in self.held

    def __iter__(self) -> Iterator[Held]:
        return iter(tuple(self.held.values()))

    @property
    def refused_count(self) -> int:
        """The number of sessions whose replay Redis refuses."""
        return sum(held.refused != "" for held in self)

    def check_room(self, append: Append, session_id: str) -> None:
        """Check that the backlog has room for one more append.

        Raises:
            FallbackFull: The append would exceed the backlog's limit of messages or bytes.
        """
        settings = self._settings
        count = self.message_count + max(1, len(append.elements))
        size_bytes = self.size_bytes + append.size_bytes + _ENTRY_BYTES
        if count > settings.max_backlog_count or size_bytes > settings.max_backlog_bytes:
            raise FallbackFull(
                f"Redis is down, and the backlog of this process is full: it holds {self.message_count} messages "
                f"({self.size_bytes} bytes), its limits are {settings.max_backlog_count} messages and "
                f"{settings.max_backlog_bytes} bytes",
                session_id,
                "FallbackFull",
            )

    def add(self, held: Held, entry: Entry) -> None:
        """Add an entry behind the session's other entries."""
        self.held[held.session_id] = held
        held.entries.append(entry)
        self.message_count += entry.count
        self.size_bytes += entry.size_bytes

    def remove_first(self, held: Held) -> None:
        """Remove the session's first entry, because Redis now has it."""
        entry = held.entries.popleft()
        self.message_count -= entry.count
        self.size_bytes -= entry.size_bytes
        held.refused = ""
        if not held.entries:
            del self.held[held.session_id]

    def is_clearing(self, session_id: str) -> bool:
        """True while a clear of the session is running. Until it ends, none of the session's entries is replayed."""
        return self._clears_count[session_id] > 0

    def is_replaying(self, session_id: str) -> bool:
        """True while an entry of the session is being sent to Redis."""
        held = self.held.get(session_id)
        return held is not None and held.is_replaying

    def begin_clear(self, session_id: str) -> frozenset[Entry]:
        """Record that a clear begins, and return the entries that it removes with the session."""
        self._clears_count[session_id] += 1
        held = self.held.get(session_id)
        return frozenset(() if held is None else held.entries)

    def end_clear(self, session_id: str, gone: frozenset[Entry], *, is_cleared: bool) -> None:
        """Record that a clear has ended.

        If it succeeded, the entries in `gone` are dropped, and later entries stay. If it failed, all entries stay.
        """
        self._clears_count[session_id] -= 1
        self._clears_count += Counter()  # drops counts of zero
        held = self.held.pop(session_id, None) if is_cleared else None
        if held is None:
            return
        left = Held(session_id, CachedView(None, []))
        for entry in held.entries:
            if entry in gone:
                self.message_count -= entry.count
                self.size_bytes -= entry.size_bytes
            else:
                entry.known_seq = None  # a seq of the cleared session
                left.view.append(entry.append, now_ms())
                left.entries.append(entry)
        if left.entries:
            self.held[session_id] = left
