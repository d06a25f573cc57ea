"""What this process has accepted while Redis was away, and Redis has not taken yet: in order a session, and bounded."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from redismem.context import Receipt
from redismem.errors import FallbackFull
from redismem.protocol.append_command import Append
from redismem.protocol.call import Call
from redismem.settings import Settings
from redismem.store.view import View

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


class Backlog:
    """Guarded by whoever uses it: `FallbackStore` holds one lock around each change."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.held: dict[str, Held] = {}
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

    def drop(self, session_id: str) -> None:
        """The session was cleared: what was to come into it goes with it."""
        held = self.held.pop(session_id, None)
        for entry in () if held is None else held.entries:
            self.message_count -= entry.count
            self.size_bytes -= entry.size_bytes
