"""The LRU cache of the sessions that this process recalled from, bounded in sessions and bytes. No I/O.

The cache is never stale: each search reads the session's epoch, version and newest signatures from Redis, and discards
the cached entry if it is outdated.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from redismem.recall.cached import CachedSession

# No session id contains a control character.
_OWNER = "\0"


class Cached(Protocol):
    """An entry of the cache: a session, or the index of an owner."""

    counted_bytes: int
    """The size of the entry in the cache's sum, in bytes."""

    @property
    def size_bytes(self) -> int:
        """The approximate memory of the entry, in bytes."""


class RecallCache:
    """An LRU cache of sessions, bounded in sessions and bytes. Thread-safe."""

    def __init__(self, max_count: int, max_bytes: int) -> None:
        self._max_count = max_count
        self._max_bytes = max_bytes
        self._sessions: OrderedDict[str, Cached] = OrderedDict()
        self._lock = threading.Lock()
        self.size_bytes = 0
        """The approximate memory of all cached sessions, in bytes."""

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, session_id: str) -> CachedSession | None:
        """Return the cached session, or `None` if the session is not cached."""
        return self._sessions.get(session_id)  # type: ignore[return-value]  # no session id names an owner

    def get_owner(self, owner: str) -> Cached | None:
        """Return the cached index of an owner, or `None` if it is not cached."""
        return self._sessions.get(_OWNER + owner)

    def put_owner(self, owner: str, cached: Cached) -> None:
        """Mark an owner as most recently used, as `put` does."""
        self.put(_OWNER + owner, cached)

    def put(self, session_id: str, cached: Cached) -> None:
        """Mark a session as most recently used and update its size. Evicts sessions while a limit is exceeded."""
        size_bytes = cached.size_bytes
        with self._lock:
            if size_bytes == cached.counted_bytes and self._sessions.get(session_id) is cached:
                self._sessions.move_to_end(session_id)
                return
            before = self._sessions.pop(session_id, None)
            self.size_bytes += size_bytes - (0 if before is None else before.counted_bytes)
            cached.counted_bytes = size_bytes
            self._sessions[session_id] = cached
            while self._sessions and (len(self._sessions) > self._max_count or self.size_bytes > self._max_bytes):
                _, oldest = self._sessions.popitem(last=False)
                self.size_bytes -= oldest.counted_bytes

    def forget(self, session_id: str) -> None:
        """Remove a session from the cache."""
        with self._lock:
            removed = self._sessions.pop(session_id, None)
            self.size_bytes -= 0 if removed is None else removed.counted_bytes

    def clear(self) -> None:
        """Remove all sessions from the cache."""
        with self._lock:
            self._sessions.clear()
            self.size_bytes = 0


NO_CACHE = RecallCache(0, 0)
"""A cache that stores nothing."""
