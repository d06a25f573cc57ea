"""Cache the last context of each session for outages, bounded in sessions and bytes.

The cache contains raw replies, and the later appends. They are only decoded when they are needed. A
context older than the idle timeout is never served, and is dropped within an hour.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from redismem.concurrency.expiry import Expiry
from redismem.context.context import Context
from redismem.context.results import Receipt
from redismem.protocol import layout, replies
from redismem.protocol.appends import Append
from redismem.protocol.ids import now_ms
from redismem.settings.settings import Settings
from redismem.store.fallback.session_view import CachedView

# Approximate memory of each member of a list or dict.
_MEMBER_BYTES = 64
# A longer list of later appends is merged into the context.
_LATER_COUNT = 32
_EXPIRY_S = 3_600


@dataclass(slots=True)
class _Seen:
    stored: Mapping[bytes, bytes] | Sequence[bytes]
    elements: list[bytes]
    epoch: str
    last_seq: int
    """The last known seq. It is beyond the context if other processes have written since."""
    noted_s: float
    size_bytes: int
    later: list[tuple[Append, float]] = field(default_factory=list)
    """The appends and state changes since the context was read, each with its time."""


class SeenContexts:
    """A thread-safe LRU cache of contexts. Storing a turn is cheap, because only raw bytes are stored."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_count = settings.max_cached_sessions
        self._max_bytes = settings.max_cached_bytes
        self._idle_timeout_s = settings.idle_timeout_s
        self._clock = clock
        self._seen: OrderedDict[str, _Seen] = OrderedDict()
        self._lock = threading.Lock()
        self._expiry = Expiry(self.drop_old, _EXPIRY_S)
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._seen)

    def last_seq(self, session_id: str) -> int | None:
        """Return the last seq of the session that this process knows; `None` if it knows none."""
        seen = self._seen.get(session_id)
        return None if seen is None else seen.last_seq

    def note(self, session_id: str, stored: Any, elements: list[bytes], context: Context) -> None:
        """Store a context that Redis has just returned, as the raw replies that it was decoded from."""
        size_bytes = sum(map(len, elements)) + _MEMBER_BYTES * (len(elements) + len(stored) + 4)
        with self._lock:
            seen = self._seen.get(session_id)
            if seen is None:
                seen = _Seen(stored, elements, context.epoch, context.last_seq, self._clock(), size_bytes)
                self._seen[session_id] = seen
                self.size_bytes += size_bytes
                self._expiry.start()
            else:
                if seen.epoch == context.epoch and context.last_seq < seen.last_seq:
                    return  # the context of another thread is newer
                self.size_bytes += size_bytes - seen.size_bytes
                seen.stored, seen.elements, seen.epoch, seen.last_seq = (
                    stored,
                    elements,
                    context.epoch,
                    context.last_seq,
                )
                seen.noted_s, seen.size_bytes = self._clock(), size_bytes
                if seen.later:
                    seen.later = []
                self._seen.move_to_end(session_id)
            if len(self._seen) > self._max_count or self.size_bytes > self._max_bytes:
                self._shrink()

    def extend(self, session_id: str, append: Append, receipt: Receipt) -> None:
        """Add an append or state change that Redis has just made to the session's context."""
        with self._lock:
            seen = self._seen.get(session_id)
            if seen is None:
                if not receipt.created:
                    return
                self._seen[session_id] = seen = _Seen({layout.EPOCH: b""}, [], "", 0, 0.0, 0)  # a new session
                self._expiry.start()
            elif receipt.duplicate:
                return
            size_bytes = append.size_bytes + _MEMBER_BYTES * (len(append.parts) + 4)
            seen.size_bytes += size_bytes
            self.size_bytes += size_bytes
            seen.noted_s = self._clock()
            seen.later.append((append, seen.noted_s))
            seen.last_seq = max(seen.last_seq, receipt.last_seq)
            if len(seen.later) > _LATER_COUNT:
                view = self._view(seen)
                seen.stored, seen.elements, seen.later = view.fields, view.elements, []
            self._seen.move_to_end(session_id)
            if len(self._seen) > self._max_count or self.size_bytes > self._max_bytes:
                self._shrink()

    def forget(self, session_id: str) -> None:
        """Drop the session's context, because it is out of date."""
        with self._lock:
            seen = self._seen.pop(session_id, None)
            self.size_bytes -= 0 if seen is None else seen.size_bytes

    def clear(self) -> None:
        """Drop all contexts."""
        with self._lock:
            self._seen.clear()
            self.size_bytes = 0
            self._expiry.stop()

    def drop_old(self) -> None:
        """Drop the contexts that are older than the idle timeout."""
        with self._lock:
            since_s = self._clock() - self._idle_timeout_s
            while self._seen and next(iter(self._seen.values())).noted_s < since_s:
                self._drop_first()
            if self._seen:
                self._expiry.start_again()
            else:
                self._expiry.stop()

    def owners(self) -> dict[str, bytes | None]:
        """Return the field `owner` of each session with a cached context; `None` if it has no owner."""
        with self._lock:
            return {session_id: _owner_of(seen) for session_id, seen in self._seen.items()}

    def view(self, session_id: str) -> CachedView:
        """Return a new view of the session, which the caller may change.

        Without a cached context, or if it is older than the idle timeout, the view is empty.
        """
        with self._lock:
            seen = self._seen.get(session_id)
            if seen is None or self._clock() - seen.noted_s > self._idle_timeout_s:
                return CachedView(None, [])
            return self._view(seen)

    def put_back(self, session_id: str, view: CachedView) -> None:
        """Store a view as the session's context, once Redis has all its entries."""
        context = replies.context(session_id, 1, view.fields, view.elements)
        self.note(session_id, view.fields, view.elements, context)

    def _shrink(self) -> None:
        while len(self._seen) > self._max_count or self.size_bytes > self._max_bytes:
            self._drop_first()

    def _drop_first(self) -> None:
        _, oldest = self._seen.popitem(last=False)
        self.size_bytes -= oldest.size_bytes

    def _view(self, seen: _Seen) -> CachedView:
        view = CachedView(replies.fields(seen.stored), list(seen.elements))
        now_s, ms = self._clock(), now_ms()
        for append, made_s in seen.later:
            view.append(append, ms - int((now_s - made_s) * 1000))
        if layout.COUNTERS in view.fields and view.seqs_count <= seen.last_seq != view.last_seq:
            view.move_on(seen.last_seq)
        return view


def _owner_of(seen: _Seen) -> bytes | None:
    stored = replies.fields(seen.stored).get(layout.OWNER)
    later = (append.head.keys.owner for append, _ in seen.later)
    return stored or next(filter(None, later), None)
