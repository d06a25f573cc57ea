"""What this process has accepted while Redis was away, and Redis has not taken yet: in order a session, and bounded."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from redismem.context import Receipt
from redismem.errors import FallbackFull
from redismem.protocol.call import Call
from redismem.protocol.ids import now_ms
from redismem.protocol.session.append import Append
from redismem.settings.settings import Settings
from redismem.store.fallback.session_view import View

# Beside what an entry would store.
_ENTRY_BYTES = 512


@dataclass(slots=True, eq=False)
class Entry:
    """An append, or a change of the state alone."""

    call: Call[Any]
    append: Append
    receipt: Receipt
    """What the caller was told."""
    sent_s: float | None
    """When it was first sent, by the monotonic clock, if its reply was lost: Redis may have made it. None: it was not
    sent."""
    known_seq: int | None
    """The last seq that was known before it was sent: it stands behind that one, if it was made. None: nothing was."""

    @property
    def count(self) -> int:
        """How many messages it has; a change of the state alone counts as one."""
        return max(1, len(self.append.elements))

    @property
    def size_bytes(self) -> int:
        """What it takes in memory, in bytes, about."""
        return self.append.size_bytes + _ENTRY_BYTES


@dataclass(slots=True, eq=False)
class Held:
    """A session with something to replay."""

    session_id: str
    view: View
    entries: deque[Entry] = field(default_factory=deque)
    last_seq: int | None = None
    """The last seq that Redis is known to have; None if nothing is known."""
    taken: set[int] = field(default_factory=set)
    """Seqs that were found to be those of entries whose reply was lost."""
    refused: str = ""
    """Why Redis does not take the first of them."""
    is_replaying: bool = False
    """Whether the first of them is on its way."""

    def known(self, append: Append) -> tuple[int, int] | None:
        """The first and last seq of what was accepted, or made before, of the same token."""
        found = next((entry.receipt for entry in self.entries if entry.append.token == append.token), None)
        return self.view.known(append) if found is None else (found.first_seq, found.last_seq)


class Backlog:
    """Guarded by whoever uses it: `Fallback` holds one lock around each change."""

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
        """Sessions whose replay Redis refuses."""
        return sum(held.refused != "" for held in self)

    def check_room(self, append: Append, session_id: str) -> None:
        """Raises FallbackFull."""
        settings = self._settings
        count = self.message_count + max(1, len(append.elements))
        size_bytes = self.size_bytes + append.size_bytes + _ENTRY_BYTES
        if count > settings.max_backlog_count or size_bytes > settings.max_backlog_bytes:
            raise FallbackFull(
                f"Redis is away, and this process holds {self.message_count} messages of {self.size_bytes} bytes for "
                f"it: it takes {settings.max_backlog_count} and {settings.max_backlog_bytes}",
                session_id,
                "FallbackFull",
            )

    def add(self, held: Held, entry: Entry) -> None:
        """Puts it behind the session's others."""
        self.held[held.session_id] = held
        held.entries.append(entry)
        self.message_count += entry.count
        self.size_bytes += entry.size_bytes

    def done(self, held: Held) -> None:
        """Redis has taken the session's first entry."""
        entry = held.entries.popleft()
        self.message_count -= entry.count
        self.size_bytes -= entry.size_bytes
        held.refused = ""
        if not held.entries:
            del self.held[held.session_id]

    def is_clearing(self, session_id: str) -> bool:
        """Whether a clear of the session is under way: nothing is replayed into it until that has ended."""
        return self._clears_count[session_id] > 0

    def is_replaying(self, session_id: str) -> bool:
        """Whether something of the session is on its way to Redis."""
        held = self.held.get(session_id)
        return held is not None and held.is_replaying

    def begin_clear(self, session_id: str) -> frozenset[Entry]:
        """A clear is to come. Gives what goes with the session then."""
        self._clears_count[session_id] += 1
        held = self.held.get(session_id)
        return frozenset(() if held is None else held.entries)

    def end_clear(self, session_id: str, gone: frozenset[Entry], *, is_cleared: bool) -> None:
        """If the session was cleared, `gone` goes with it, and what was accepted since stays. Else all waits on."""
        self._clears_count[session_id] -= 1
        self._clears_count += Counter()  # without those that are zero
        held = self.held.pop(session_id, None) if is_cleared else None
        if held is None:
            return
        left = Held(session_id, View(None, []))
        for entry in held.entries:
            if entry in gone:
                self.message_count -= entry.count
                self.size_bytes -= entry.size_bytes
            else:
                entry.known_seq = None  # it was one of the session that is gone
                left.view.append(entry.append, now_ms())
                left.entries.append(entry)
        if left.entries:
            self.held[session_id] = left
