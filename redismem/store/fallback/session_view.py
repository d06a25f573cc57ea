"""A session as this process knows it while Redis is away: what was read last, and what was accepted since. No I/O.

It answers as the scripts would, so the same decoding makes contexts and receipts of it. Nothing is summarised.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from redismem.errors import RedismemError
from redismem.messages.values import Undecodable
from redismem.protocol import layout, replies
from redismem.protocol.server_errors import ServerError
from redismem.protocol.session import append_ids
from redismem.protocol.session.append import Append
from redismem.settings.settings import Settings

_STAMP = b"\xcf"


class View:
    """The state's fields and the window's elements; changed in place."""

    __slots__ = ("_counters", "elements", "fields", "is_known")

    def __init__(self, stored: Mapping[bytes, bytes] | None, elements: list[bytes]) -> None:
        """`stored` None: of this session nothing is known. Raises Undecodable, UnsupportedFormat."""
        self.is_known = stored is not None
        self.fields = dict(stored or {layout.EPOCH: b""})
        self.elements = elements
        self._counters = layout.counters(self.fields.get(layout.COUNTERS, layout.NO_COUNTERS))
        try:
            append_ids.decode_appends(self.fields)
        except Undecodable:  # `redismem check` tells of it; a context is made without it
            for name in (layout.NEWEST_IDS, *layout.OLDER_IDS):
                self.fields.pop(name, None)

    @property
    def last_seq(self) -> int:
        """The last seq, as far as this process knows."""
        return self._counters.message_count

    @property
    def first_seq(self) -> int:
        """The seq of the window's first message."""
        return self._counters.first_seq

    def refusal(self, append: Append, settings: Settings, session_id: str) -> RedismemError | None:
        """Why append.lua would refuse it, as far as this process can tell."""
        if append.pins:
            (count, size), (more_count, more_bytes, count_limit, bytes_limit) = self._pins(), append.pins
            if count + more_count > count_limit or size + more_bytes > bytes_limit:
                word = f"PINS {count + more_count} {size + more_bytes} {count_limit} {bytes_limit}"
                return replies.refusal(ServerError("PINS", word), session_id)
        more_uncounted = append.pins[0] if append.pins else 0
        before_count = len(self.elements) - self._counters.uncounted
        count, tokens = before_count + len(append.elements) - more_uncounted, self._counters.tokens + append.tokens
        if append.elements and count > settings.max_window_count and settings.is_overdue(count, tokens):
            return replies.refusal(ServerError("FULL", f"FULL {before_count}"), session_id)
        params = {field for field in (*self.fields, *append.sets[::2]) if field.startswith(layout.PARAM)}
        count = len(params.difference(append.drops))
        if append.sets and count > settings.max_params_count:
            return replies.refusal(ServerError("PARAMS", f"PARAMS {count}"), session_id)
        return None

    def append(self, append: Append, now_ms: int) -> bytes:
        """Adds it behind the others. Gives what append.lua answers: the counters."""
        stamp = _STAMP + now_ms.to_bytes(8, "big")
        self.elements.extend(element + stamp for element in append.elements)
        self.fields.update(zip(append.sets[::2], append.sets[1::2], strict=True))
        for field in append.drops:
            self.fields.pop(field, None)
        if append.pins:
            count, size = self._pins()
            self.fields[layout.PINS] = b"%d %d" % (count + append.pins[0], size + append.pins[1])
            self._counters = self._counters._replace(uncounted=self._counters.uncounted + append.pins[0])
        append_ids.remember(self.fields, append.token, len(append.elements))
        first_seq, total, tokens, *_ = self._counters
        self._count(first_seq, total + len(append.elements), tokens + append.tokens, now_ms)
        return self.fields[layout.COUNTERS]

    def _pins(self) -> tuple[int, int]:
        return layout.pins(self.fields.get(layout.PINS, b"0 0"))

    def move_on(self, last_seq: int) -> None:
        """The last message has this seq by now, for others have written too; their messages are not known here."""
        _, _, tokens, active_ms, *_ = self._counters
        self._count(last_seq - len(self.elements) + 1, last_seq, tokens, active_ms)

    def _count(self, first_seq: int, total: int, tokens: int, active_ms: int) -> None:
        self._counters = self._counters._replace(
            first_seq=first_seq, message_count=total, tokens=tokens, active_ms=active_ms
        )
        self.fields[layout.COUNTERS] = layout.encode_counters(self._counters)

    def known(self, append: Append) -> tuple[int, int] | None:
        """The first and last seq of an append that was made before; None if it is none of the last ones."""
        last_seq = self.last_seq
        for name, message_count in reversed(append_ids.decode_appends(self.fields)):
            if name == append.token:
                return last_seq - message_count + 1, last_seq
            last_seq -= message_count
        return None

    def duplicate(self, first_seq: int, last_seq: int) -> list[Any]:
        """What append.lua answers if the append was made before."""
        return [self.fields.get(layout.COUNTERS, layout.NO_COUNTERS), first_seq, last_seq, 0, 1]

    def read(self, limit: int | None) -> tuple[dict[bytes, bytes], list[bytes]]:
        """What the reads of a context answer."""
        if not self.elements and layout.COUNTERS not in self.fields:
            return {}, []
        elements = self.elements if limit is None else self.elements[max(0, len(self.elements) - limit) :]
        return self.fields, elements

    def page(self, limit: int, before_seq: int | None) -> list[Any]:
        """What page.lua answers: the newest `limit` messages of the window before a seq."""
        first_seq = self.first_seq
        stop = len(self.elements) if before_seq is None else max(0, min(len(self.elements), before_seq - first_seq))
        start = max(0, stop - limit)
        return [self.fields[layout.EPOCH], first_seq + start, first_seq + start, 0, 0, *self.elements[start:stop]]
