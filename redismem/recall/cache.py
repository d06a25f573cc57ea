"""The LRU cache of the sessions that this process recalled from, bounded in sessions and bytes. No I/O.

The cache is never stale: each search reads the session's epoch, version and newest signatures from Redis, and discards
the cached entry if it is outdated. An entry that no search uses for ten minutes is dropped, because another process may
have removed its messages.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Container
from typing import TYPE_CHECKING, Protocol

from redismem.concurrency import forks
from redismem.concurrency.expiry import Expiry

if TYPE_CHECKING:
    from redismem.recall.cached import CachedSession

# No session id contains a control character.
_OWNER = "\0"
UNUSED_S = 600
"""The seconds without a search after which an entry is dropped, within a minute more."""
_EVERY_S = 60
_REMOVALS_LIMIT = 1_000
# The share of the cache that the index of one session may take. A cache for which it is too little keeps no index of a
# long session, so each search builds one in the memory of the default.
_INDEX_SHARE, _LEAST_INDEX_BYTES, _INDEX_BYTES = 0.75, 256 * 1024, 48 * 1024 * 1024


class Cached(Protocol):
    """An entry of the cache: a session, or what was read of an owner's sessions."""

    counted_bytes: int
    """The size of the entry in the cache's sum, in bytes."""
    used_s: float
    """The time of the last search."""

    @property
    def size_bytes(self) -> int:
        """The approximate memory of the entry, in bytes."""


class CachedSessions(Cached, Protocol):
    """The sessions of an owner, as far as this process has read them."""

    @property
    def states(self) -> Container[str]:
        """The sessions."""


class RecallCache:
    """An LRU cache of sessions, bounded in sessions and bytes. Thread-safe."""

    def __init__(self, max_count: int, max_bytes: int, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._max_count = max_count
        self.max_bytes = max_bytes
        """The maximum memory of all cached sessions, in bytes."""
        self._clock_s = clock_s
        self.reset()
        forks.reset_after_fork(self)

    def reset(self) -> None:
        """Start empty, also in a forked process, which may have copied a lock that nothing releases."""
        self._sessions: OrderedDict[str, Cached] = OrderedDict()
        self._lock = threading.Lock()
        self._expiry = Expiry(self.drop_unused, _EVERY_S)
        self.size_bytes = 0
        """The approximate memory of all cached sessions, in bytes."""
        self.removals_count = 0
        """The number of removals so far. A search takes it at its start, and gives it to `put` at its end."""
        self._removals: OrderedDict[str, int] = OrderedDict()
        """The numbers of the last removals, by session, oldest first."""
        self._forgotten_count = 0
        """The number of the last removal that is not among them."""

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def max_index_bytes(self) -> int:
        """The maximum memory of the index of one session, in bytes."""
        own_bytes = int(_INDEX_SHARE * self.max_bytes)
        return own_bytes if own_bytes >= _LEAST_INDEX_BYTES else _INDEX_BYTES

    def get(self, session_id: str) -> CachedSession | None:
        """Return the cached session, or `None` if the session is not cached."""
        return self._sessions.get(session_id)  # type: ignore[return-value]  # no session id names an owner

    def get_owner(self, owner: str) -> CachedSessions | None:
        """Return what was read of an owner's sessions, or `None` if nothing is cached."""
        return self._sessions.get(_OWNER + owner)  # type: ignore[return-value]

    def put_owner(self, owner: str, cached: CachedSessions, since: int) -> None:
        """Mark an owner as most recently used, as `put` does."""
        self._put(_OWNER + owner, cached, since, cached.states)

    def put(self, session_id: str, cached: Cached, since: int) -> None:
        """Mark a session as most recently used and update its size. Evicts sessions while a limit is exceeded.

        Does nothing if the session was forgotten after the removal `since`: the entry may have its removed messages.
        """
        self._put(session_id, cached, since, (session_id,))

    def _put(self, name: str, cached: Cached, since: int, sessions: Container[str]) -> None:
        size_bytes = cached.size_bytes
        with self._lock:
            if since < self.removals_count and self._is_removed(sessions, since):
                return
            cached.used_s = self._clock_s()
            if size_bytes == cached.counted_bytes and self._sessions.get(name) is cached:
                self._sessions.move_to_end(name)
                return
            before = self._sessions.pop(name, None)
            self.size_bytes += size_bytes - (0 if before is None else before.counted_bytes)
            cached.counted_bytes = size_bytes
            self._sessions[name] = cached
            while self._sessions and (len(self._sessions) > self._max_count or self.size_bytes > self.max_bytes):
                _, oldest = self._sessions.popitem(last=False)
                self.size_bytes -= oldest.counted_bytes
            if self._sessions:
                self._expiry.start()

    def drop_unused(self) -> None:
        """Drop the entries that no search has used for ten minutes."""
        with self._lock:
            since_s = self._clock_s() - UNUSED_S
            while self._sessions and next(iter(self._sessions.values())).used_s <= since_s:
                _, oldest = self._sessions.popitem(last=False)
                self.size_bytes -= oldest.counted_bytes
            if self._sessions:
                self._expiry.start_again()
            else:
                self._expiry.stop()

    def _is_removed(self, sessions: Container[str], since: int) -> bool:
        if since < self._forgotten_count:
            return True
        for session_id, number in reversed(self._removals.items()):
            if number <= since:
                break
            if session_id in sessions:
                return True
        return False

    def forget(self, session_id: str) -> None:
        """Remove a session and what was read of its owner's sessions. No search that has begun adds them again."""
        with self._lock:
            self.removals_count += 1
            self._removals[session_id] = self.removals_count
            self._removals.move_to_end(session_id)
            if len(self._removals) > _REMOVALS_LIMIT:
                _, self._forgotten_count = self._removals.popitem(last=False)
        self.drop(session_id)

    def drop(self, session_id: str) -> None:
        """Drop an outdated entry of a session, and what was read of its owner's sessions."""
        with self._lock:
            names = [name for name in self._sessions if name.startswith(_OWNER)]
            owners = [name for name in names if session_id in self._sessions[name].states]  # type: ignore[attr-defined]
            for name in (session_id, *owners):
                removed = self._sessions.pop(name, None)
                self.size_bytes -= 0 if removed is None else removed.counted_bytes

    def clear(self) -> None:
        """Remove all sessions from the cache."""
        with self._lock:
            self.removals_count += 1
            self._forgotten_count = self.removals_count
            self._removals.clear()
            self._sessions.clear()
            self.size_bytes = 0
            self._expiry.stop()


NO_CACHE = RecallCache(0, 0)
"""A cache that stores nothing."""
