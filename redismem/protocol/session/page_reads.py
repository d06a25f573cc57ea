"""Read a page of a session with plain commands. Lua copies each message twice, and blocks the server meanwhile. No I/O.

Plain commands need positions before they know the counters. The newest messages of a window are its last elements. For
an older page, the positions follow from the page after it. If the session has changed in between, the reply shows it,
and the caller reads the page by script.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, NamedTuple

from redismem.errors import UnsupportedFormat
from redismem.events import Op
from redismem.messages.gaps import elements_between
from redismem.messages.values import Undecodable
from redismem.originals.blocks import block_number
from redismem.protocol import layout
from redismem.protocol.call import Call, Command
from redismem.protocol.keys import SessionKeys
from redismem.protocol.owners import check_same_owner
from redismem.protocol.replies import corrupt_session
from redismem.protocol.session.pages import Page, find_blocks, with_heads

_STATE = (layout.COUNTERS, layout.EPOCH, layout.WITH_ORIGINALS, layout.OWNER, layout.ZONE)


class Reread(Enum):
    """The result of a page's plain commands that cannot tell the page."""

    BY_SCRIPT = 0


Decoded = Page | Reread | None


class PageRange(NamedTuple):
    """The newest `limit` messages before a seq, or before the end of the session."""

    limit: int
    before_seq: int | None = None
    include_originals: bool = False
    originals_stop: int | None = None
    """The first seq of the window or, if all of the page are originals, any seq from `before_seq` to there."""

    def native_call(self, keys: SessionKeys) -> Call[Decoded] | None:
        """Return a call that reads the range without a script. None means that the positions are unknown.

        The page ends where the window begins, and then `has_older` says whether the session has originals.
        """
        if self.before_seq is None:
            return _newest(keys, self.limit, self.include_originals)
        if self.originals_stop is None or self.before_seq <= 1:
            return None
        if self.include_originals and self.before_seq <= self.originals_stop:
            return _originals(keys, self.limit, self.before_seq)
        return _older(keys, self.limit, self.before_seq, self.originals_stop, self.include_originals)


def _newest(keys: SessionKeys, limit: int, include_originals: bool) -> Call[Decoded]:
    def decode(epoch: str, counters: layout.Counters, has_originals: bool, element_count: int, *read: Any) -> Decoded:
        if element_count != counters.element_count:
            return Reread.BY_SCRIPT
        elements, first_seq, last_seq = read[0], counters.first_seq, counters.message_count
        start = max(first_seq, last_seq + 1 - limit)
        if counters.hidden:
            elements = elements_between(elements, last_seq, start, last_seq + 1)
        has_older = has_originals and start == first_seq > 1
        return Page(keys.session_id, epoch, start, first_seq, (), elements, has_older=has_older)

    newest = (-limit, -1) if limit else (1, 0)  # -0 would mean the whole window
    reads = (("LLEN", keys.messages), ("LRANGE", keys.messages, *newest))
    return _call(keys, include_originals, reads, decode)


def _older(keys: SessionKeys, limit: int, before: int, first_seq: int, include_originals: bool) -> Call[Decoded]:
    start = max(first_seq, before - limit)

    def decode(epoch: str, counters: layout.Counters, has_originals: bool, elements: Sequence[bytes]) -> Decoded:
        if counters.first_seq != first_seq or counters.message_count < before - 1 or counters.hidden:
            return Reread.BY_SCRIPT
        has_older = has_originals and start == first_seq > 1
        return Page(keys.session_id, epoch, start, first_seq, (), elements, has_older=has_older)

    places = (start - first_seq, before - 1 - first_seq) if start < before else (1, 0)
    return _call(keys, include_originals, (("LRANGE", keys.messages, *places),), decode)


def _originals(keys: SessionKeys, limit: int, before: int) -> Call[Decoded]:
    start = max(1, before - limit)
    numbers = range(block_number(start), block_number(before - 1) + 1)
    fields = with_heads(numbers)

    def decode(epoch: str, counters: layout.Counters, has_originals: bool, stored: Sequence[bytes | None]) -> Decoded:
        if not has_originals or counters.first_seq < before:
            return Reread.BY_SCRIPT
        blocks = find_blocks(numbers, dict(zip(fields, stored, strict=True)))
        return Page(keys.session_id, epoch, start, before, blocks, ())

    return _call(keys, True, (("HMGET", keys.originals, *fields),), decode)


def _call(
    keys: SessionKeys, include_originals: bool, reads: tuple[Command, ...], decode_read: Callable[..., Decoded]
) -> Call[Decoded]:
    """Build the call of these reads, with the state before them."""

    def decode(state: Sequence[bytes | None], *replies: Any) -> Decoded:
        counters, epoch, kept, owner, zone = state
        check_same_owner(keys, owner, counters)
        if counters is None:
            return None
        has_originals = include_originals and kept is not None and replies[-1] > 0
        try:
            found = layout.counters(counters)
            if epoch is None:
                raise Undecodable("no epoch")
            read = replies[: len(reads)]
            decoded = decode_read(epoch.decode(), found, has_originals, *read)
            if zone and isinstance(decoded, Page):
                decoded.zone = layout.decode_zone(zone)
            return decoded
        except UnsupportedFormat as other:
            raise UnsupportedFormat(str(other), keys.session_id) from None
        except (Undecodable, ValueError) as cause:
            raise corrupt_session(keys.session_id, cause, (epoch or b"").decode("utf-8", "replace")) from None

    count: tuple[Command, ...] = (("HLEN", keys.originals),) if include_originals else ()
    return Call(keys.session_id, (("HMGET", keys.state, *_STATE), *reads, *count), decode, op=Op.MESSAGES)


def is_native_page(call: Call[Any]) -> bool:
    """True if the call reads a page with plain commands."""
    return call.commands[0][0] == "HMGET" and call.commands[0][2:] == _STATE
