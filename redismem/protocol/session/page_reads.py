"""Read a page of a session with plain commands. No I/O.

Plain commands need positions before they know the counters. The newest messages of a window are its last elements. For
any other page, the positions follow from the window as it was read before. If it has changed in between, the reply
shows it, and the caller reads the page again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from redismem.events import Op
from redismem.messages.gaps import elements_between
from redismem.messages.values import Undecodable
from redismem.originals.blocks import block_number
from redismem.protocol import layout
from redismem.protocol.call import Call, Command
from redismem.protocol.keys import SessionKeys
from redismem.protocol.owners import check_same_owner
from redismem.protocol.replies import decoding
from redismem.protocol.session.pages import MessagePage, Window, find_blocks, with_heads

_STATE = (layout.COUNTERS, layout.EPOCH, layout.WITH_ORIGINALS, layout.OWNER, layout.ZONE)
_NO_ELEMENTS = (1, 0)


class PageRange(NamedTuple):
    """The newest `limit` messages before a seq, or before the end of the session."""

    limit: int
    before_seq: int | None = None
    include_originals: bool = False
    window: Window | None = None
    """The window as it was last read, or as it probably is."""

    def call(self, keys: SessionKeys, op: Op = Op.MESSAGES) -> Call[MessagePage | Window | None]:
        """Build a call that reads the page. It returns the window if the page must be read again by its positions.

        None means that there is no session.

        Decoding raises:
            CorruptSession: the counters, the epoch or a gap cannot be read, or the window has a wrong length.
            UnsupportedFormat: another release wrote the session.
            OwnerMismatch: the session has another owner than the keys name.
        """
        plan = self._plan()

        def decode(state: Sequence[bytes | None], *replies: Any) -> MessagePage | Window | None:
            counters, epoch, kept, owner, zone = state
            check_same_owner(keys, owner, counters)
            if counters is None:
                return None
            with decoding(keys.session_id, epoch):
                numbers = layout.counters(counters)
                if epoch is None:
                    raise Undecodable("no epoch")
                page = self._page(plan, epoch.decode(), numbers, kept is not None, *replies)
            if isinstance(page, MessagePage):
                page.session_id, page.zone = keys.session_id, layout.decode_zone(zone)
            return page

        commands: tuple[Command, ...] = (
            ("HMGET", keys.state, *_STATE),
            ("HLEN", keys.originals),
            ("LLEN", keys.messages),
            ("LRANGE", keys.messages, *plan.places),
        )
        if plan.blocks:
            commands += (("HMGET", keys.originals, *with_heads(plan.blocks)),)
        named = self._asdict() | {"owner": keys.owner}
        return Call(keys.session_id, commands, decode, op=op, named=named, is_separable=True)

    def _plan(self) -> _Plan:
        window, before = self.window, self.before_seq
        if window is None:
            return _Plan(0, 0, (-self.limit, -1) if self.limit and before is None else _NO_ELEMENTS, range(0))
        stop = window.last_seq + 1 if before is None else min(before, window.last_seq + 1)
        start = max(1 if self.include_originals else window.first_seq, stop - self.limit)
        originals_stop, places, blocks = min(stop, window.first_seq), _NO_ELEMENTS, range(0)
        if (first := max(start, window.first_seq)) < stop:
            is_sparse = window.is_sparse
            places = (0, -1) if is_sparse else (first - window.first_seq, stop - 1 - window.first_seq)
        if start < originals_stop:
            blocks = range(block_number(start), block_number(originals_stop - 1) + 1)
        return _Plan(start, stop, places, blocks)

    def _page(
        self,
        plan: _Plan,
        epoch: str,
        counters: layout.Counters,
        kept: bool,
        originals_count: int,
        length: int,
        elements: Sequence[bytes],
        stored: Sequence[bytes | None] = (),
    ) -> MessagePage | Window:
        """Return the page, or the window as seen if the positions are unknown or wrong. Raises Undecodable."""
        first_seq, last_seq, is_sparse = counters.first_seq, counters.message_count, counters.hidden > 0
        seen, window = Window(epoch, first_seq, last_seq, is_sparse), self.window
        has_originals = kept and originals_count > 0
        start, stop = plan.start, plan.stop
        if window is None:
            start, stop = max(first_seq, last_seq + 1 - self.limit), last_seq + 1
            has_older = self.include_originals and has_originals and start > max(1, stop - self.limit)
            if self.before_seq is not None or has_older:
                return seen
        else:
            is_same = seen._replace(last_seq=window.last_seq) == window
            is_original = seen.epoch == window.epoch and stop <= min(first_seq, window.first_seq)
            if last_seq < stop - 1 or not (is_same or is_original):
                return seen
        if not has_originals:
            start = max(start, first_seq)
        if plan.places != _NO_ELEMENTS and length != counters.element_count:
            raise Undecodable(f"the window holds {length} messages, expected {counters.element_count}")
        if is_sparse and elements:
            elements = elements_between(elements, last_seq, max(start, first_seq), stop)
        blocks = find_blocks(plan.blocks, dict(zip(with_heads(plan.blocks), stored, strict=True)))
        return MessagePage(
            "", epoch, start, min(stop, first_seq), blocks if has_originals else (), elements, window=seen
        )


class _Plan(NamedTuple):
    """The positions of a page. Without a window, only the places of the newest elements are known."""

    start: int
    stop: int
    places: tuple[int, int]
    blocks: range
