"""A session as this process knows it while Redis is down: the last context, plus the appends accepted since. No I/O.

A view returns replies in the form of the scripts' replies, so that the usual code decodes them. It never summarises.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from redismem.errors import RedismemError
from redismem.messages.gaps import elements_between
from redismem.messages.values import Undecodable
from redismem.protocol import layout, replies
from redismem.protocol.appends import NO_CHANGE, Append
from redismem.protocol.owners import owner_mismatch
from redismem.protocol.server_errors import ServerError
from redismem.protocol.session import append_ids
from redismem.protocol.session.pages import MessagePage, Window
from redismem.settings.settings import Settings

_STAMP = b"\xcf"


class CachedView:
    """The fields of the state and the elements of the window. Both are changed in place."""

    __slots__ = ("_counters", "elements", "fields", "is_known")

    def __init__(self, stored: Mapping[bytes, bytes] | None, elements: list[bytes]) -> None:
        """Decode the counters. `stored` is `None` if this process knows nothing of the session.

        Raises:
            Undecodable: The counters cannot be read.
            UnsupportedFormat: A newer release wrote the counters.
        """
        self.is_known = stored is not None
        self.fields = dict(stored or {layout.EPOCH: b""})
        self.elements = elements
        self._counters = layout.counters(self.fields.get(layout.COUNTERS, layout.NO_COUNTERS))
        try:
            append_ids.decode_appends(self.fields)
        except Undecodable:  # `redismem doctor --deep` reports it; a context does not need the ids
            for name in (layout.NEWEST_IDS, *layout.OLDER_IDS):
                self.fields.pop(name, None)

    @property
    def last_seq(self) -> int:
        """The last known seq."""
        return self._counters.message_count

    @property
    def seqs_count(self) -> int:
        """The number of seqs in the window: gaps stand for several."""
        return len(self.elements) + self._counters.hidden

    def check_owner(self, owner: object, session_id: str) -> None:
        """Check the owner that a call names, as the state contains it; empty means that it names none.

        Raises:
            OwnerMismatch: The session has another owner, or none.
        """
        if owner and layout.COUNTERS in self.fields and self.fields.get(layout.OWNER) != owner:
            raise owner_mismatch(session_id)

    def refusal(self, append: Append, settings: Settings, session_id: str) -> RedismemError | None:
        """Return the error with which append.lua would refuse the append; `None` if this process knows no reason."""
        if append.pinned_count:
            count, size = self._pins_with(append)
            if count > settings.max_pinned_count or size > settings.max_pinned_bytes:
                word = f"PINS {count} {size} {settings.max_pinned_count} {settings.max_pinned_bytes}"
                return replies.refusal(ServerError("PINS", word), session_id)
        before_count = len(self.elements) - self._counters.uncounted
        count, tokens = before_count + len(append.elements) - append.pinned_count, self._counters.tokens + append.tokens
        if append.elements and count > settings.max_window_count and settings.is_overdue(count, tokens):
            return replies.refusal(ServerError("FULL", f"FULL {before_count}"), session_id)
        change = append.change or NO_CHANGE
        params = {field for field in (*self.fields, *change.sets[::2]) if field.startswith(layout.PARAM)}
        count = len(params.difference(change.drops))
        if change.sets and count > settings.max_params_count:
            return replies.refusal(ServerError("PARAMS", f"PARAMS {count}"), session_id)
        return None

    def append(self, append: Append, now_ms: int) -> bytes:
        """Add the append to the view. Return the reply of append.lua: the counters and the epoch."""
        stamp = _STAMP + now_ms.to_bytes(8, "big")
        self.elements.extend(element + stamp for element in append.elements)
        change = append.change or NO_CHANGE
        self.fields.update(zip(change.sets[::2], change.sets[1::2], strict=True))
        for field in change.drops:
            self.fields.pop(field, None)
        if append.pinned_count:
            self.fields[layout.PINS] = b"%d %d" % self._pins_with(append)
            self._counters = self._counters._replace(uncounted=self._counters.uncounted + append.pinned_count)
        if layout.COUNTERS not in self.fields:
            limits, owner = append.head.limits, append.head.keys.owner
            self._counters = self._counters._replace(policy=limits.policy)
            if owner:
                self.fields[layout.OWNER] = owner
            if limits.zone:
                self.fields[layout.ZONE] = limits.zone
        # With their stamps, as in Redis.
        if more_large := layout.large_bytes(element + stamp for element in append.elements):
            large_bytes = int(self.fields.get(layout.LARGE_BYTES, b"0")) + more_large
            self.fields[layout.LARGE_BYTES] = b"%d" % large_bytes
        append_ids.remember(self.fields, append.name, len(append.elements))
        first_seq, total, tokens, *_ = self._counters
        self._count(first_seq, total + len(append.elements), tokens + append.tokens, now_ms)
        return b"%s@%s" % (self.fields[layout.COUNTERS], self.fields[layout.EPOCH])

    def _pins_with(self, append: Append) -> tuple[int, int]:
        """Return the number of pinned messages and their bytes, with those of the append."""
        count, size = layout.pins(self.fields.get(layout.PINS, b"0 0"))
        return count + append.pinned_count, size + append.pinned_bytes

    def move_on(self, last_seq: int) -> None:
        """Set the last seq after other processes have written. The view does not contain their messages."""
        _, _, tokens, active_ms, *_ = self._counters
        self._count(last_seq - self.seqs_count + 1, last_seq, tokens, active_ms)

    def _count(self, first_seq: int, total: int, tokens: int, active_ms: int) -> None:
        self._counters = self._counters._replace(
            first_seq=first_seq, message_count=total, tokens=tokens, active_ms=active_ms
        )
        self.fields[layout.COUNTERS] = layout.encode_counters(self._counters)

    def find_seqs(self, append: Append) -> tuple[int, int] | None:
        """Return the first and last seq of an earlier append with this token; `None` if the session remembers none."""
        last_seq = self.last_seq
        for name, message_count in reversed(append_ids.decode_appends(self.fields)):
            if name == append.name:
                return last_seq - message_count + 1, last_seq
            last_seq -= message_count
        return None

    def duplicate(self, first_seq: int, last_seq: int) -> list[Any]:
        """Return the reply of append.lua to an append that was made before."""
        counters = self.fields.get(layout.COUNTERS, layout.NO_COUNTERS)
        return [counters, first_seq, last_seq, 0, 1, self.fields[layout.EPOCH]]

    def read(self, limit: int | None) -> tuple[dict[bytes, bytes], list[bytes]]:
        """Return the replies to the read of a context."""
        if not self.elements and layout.COUNTERS not in self.fields:
            return {}, []
        elements = self.elements if limit is None else self.elements[max(0, len(self.elements) - limit) :]
        return self.fields, elements

    def page(self, session_id: str, limit: int, before_seq: int | None) -> MessagePage:
        """Return the newest `limit` messages of the window before a seq."""
        first_seq, last_seq = self._counters.first_seq, self.last_seq
        stop = last_seq + 1 if before_seq is None else max(first_seq, min(last_seq + 1, before_seq))
        start = max(first_seq, stop - limit)
        elements = elements_between(self.elements, last_seq, start, stop)
        epoch, zone = self.fields[layout.EPOCH].decode(), layout.decode_zone(self.fields.get(layout.ZONE))
        return MessagePage(
            session_id, epoch, start, start, (), elements, zone=zone, window=Window(epoch, first_seq, last_seq)
        )
