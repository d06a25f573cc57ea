"""Reads of the members of a record, in order or along their parents, and drops of members. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from redismem.errors import InvalidRecord
from redismem.events import Op
from redismem.protocol.call import Argument, Call, script_call
from redismem.protocol.clock import Clock
from redismem.protocol.ids import PROCESS, Sender
from redismem.protocol.record.calls import renewal
from redismem.protocol.record.changes import check_name, check_value
from redismem.protocol.record.keys import RecordKeys

REPLY_BYTES = 8 * 1024 * 1024
"""The size of a reply after which a read returns what it has."""
STEPS_COUNT = 2_000
"""The most members that one call of a walk visits."""
DROP_COUNT = 1_000
"""The most members that one call drops."""
RANGE_COUNT = 10_000
"""The most members of one related range that one call returns."""
_PAGE_LIMIT = 10_000


@dataclass(frozen=True, slots=True)
class Related:
    """A range that belongs to a member, such as the writes that belong to a checkpoint.

    If a member is `c:17` and the prefix of the read is `c:`, the range of `Related(b"w:", b":")` is every member that
    begins with `w:17:`.
    """

    prefix: bytes
    """The beginning of the range's members, before the part of the member behind the read's prefix."""
    suffix: bytes
    """The bytes after that part, at least one, and not all 0xff."""


@dataclass(slots=True)
class Found:
    """One member of a record, with what was read for it."""

    member: bytes
    value: bytes | None
    """The field of the member's name; `None` if it is missing."""
    named: dict[bytes, bytes | None] = field(default_factory=dict)
    """The fields that the value names as a `Head`, if asked for; `None` for a missing one."""
    related: list[tuple[bytes, bytes | None]] = field(default_factory=list)
    """Members and values of the related range, if asked for, least first."""


@dataclass(slots=True)
class Page:
    """A page of members, in the order of reading."""

    found: list[Found]
    after: bytes | None
    """The value of `after` for the next page; `None` at the end."""


@dataclass(frozen=True, slots=True)
class Trace:
    """One thing to collect along a walk: ranges related to each member, until a head names a field that has a value.

    `Trace(b"b:messages:", b"messages=")` with `Related(b"w:", b":")` collects the members that begin with `w:17:` and
    whose values begin with `messages=`. It ends at the first head that names a field beginning with `b:messages:` that
    is not empty.
    """

    seed_prefix: bytes
    """The beginning of the name of the field that ends the trace."""
    value_prefix: bytes = b""
    """The beginning of the values to collect."""


@dataclass(slots=True)
class Traced:
    """The result of one trace, nearest member first."""

    entries: list[tuple[bytes, bytes | None]] = field(default_factory=list)
    """Members and values of the ranges; within one range, least first."""
    seed: tuple[bytes, bytes] | None = None
    """Name and value of the field that ended the trace; `None` if the chain ended before."""


@dataclass(slots=True)
class Walk:
    """The result of a walk, nearest member first."""

    heads: list[tuple[bytes, bytes]] = field(default_factory=list)
    """Each visited member and its value, unless the walk has traces."""
    traced: list[Traced] = field(default_factory=list)
    """The result of each trace, in the order of the traces."""


def page(keys: RecordKeys, bounds: tuple[bytes, bytes], options: ReadOptions, clock: Clock | None) -> Call[Page]:
    """Build a call that reads members between two bounds.

    Raises:
        InvalidRecord: the related range is invalid.
        ValueError: the limit is out of range.
        InvalidTime: the clock returned an invalid time.
    """
    if type(options.limit) is not int or not 1 <= options.limit <= _PAGE_LIMIT:
        raise ValueError(f"limit is an integer, from 1 to {_PAGE_LIMIT}")
    named = {
        **renewal(keys, clock, renew=options.renew),
        **_related(options.prefix, options.related),
        "from": bounds[0],
        "to": bounds[1],
        "is_reversed": options.reverse,
        "limit": options.limit,
        "budget_bytes": REPLY_BYTES,
        "with_names": options.named,
    }
    return script_call(Op.RECORD_READ, keys, _decode_page, named, script="read_record")


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a read of members."""

    prefix: bytes = b""
    limit: int = 100
    reverse: bool = False
    named: bool = False
    related: Related | None = None
    renew: bool = False


def _related(prefix: bytes, related: Related | None) -> dict[str, Argument]:
    """Return the arguments about the related range."""
    if related is None:
        beginning, suffix, end = b"", b"", b""
    elif isinstance(related, Related) and isinstance(related.prefix, bytes):
        beginning, (suffix, end) = related.prefix, _with_end(related.suffix)
    else:
        raise InvalidRecord("a related range has a prefix and a suffix, both bytes")
    return {
        "prefix_size": len(prefix),
        "range_prefix": beginning,
        "range_suffix": suffix,
        "range_end": end,
        "range_limit": RANGE_COUNT,
    }


def _with_end(text: bytes) -> tuple[bytes, bytes]:
    """Return a beginning of members, and the least text greater than all that begin so."""
    end = successor(check_name(text))
    if end is None:
        raise InvalidRecord("the suffix or infix of a related range may not consist of the byte 0xff alone")
    return text, end


def successor(prefix: bytes) -> bytes | None:
    """Return the least bytes greater than all that begin with the prefix; `None` if there are none."""
    short = prefix.rstrip(b"\xff")
    return short[:-1] + bytes([short[-1] + 1]) if short else None


def bounds_of(prefix: bytes, *, after: bytes | None = None, before: bytes | None = None) -> tuple[bytes, bytes]:
    """Return the bounds, for ZRANGE BYLEX, of the members that begin with a prefix, after and before given ones.

    Raises:
        InvalidRecord: one of them is not bytes.
    """
    if any(not isinstance(text, bytes | None) for text in (prefix, after, before)) or prefix is None:
        raise InvalidRecord("a prefix or bound of members is bytes")
    end = successor(prefix)
    least = b"[" + prefix if prefix else b"-"
    greatest = b"+" if end is None else b"(" + end
    if after is not None and after >= prefix:
        least = b"(" + after
    if before is not None and (end is None or before < end):
        greatest = b"(" + before
    return least, greatest


def exactly(member: bytes) -> tuple[bytes, bytes]:
    """Return the bounds of one member. Raises InvalidRecord if it is invalid."""
    bound = b"[" + check_name(member)
    return bound, bound


def _decode_page(reply: list[Any]) -> Page:
    found: list[Found] = []
    texts = iter(reply[1:])
    for member in texts:
        value = next(texts)
        found.append(Found(member, value, dict(_pairs(texts)), list(_pairs(texts))))
    return Page(found, found[-1].member if reply[0] else None)


def _pairs(texts: Iterator[Any]) -> Iterator[tuple[bytes, bytes | None]]:
    for _ in range(next(texts)):
        yield next(texts), next(texts)


@dataclass(slots=True)
class Walker:
    """The state of a walk between its calls: the next member, the open traces, and what was collected."""

    keys: RecordKeys
    member: bytes
    prefix: bytes
    related: Related | None
    traces: Sequence[Trace]
    limit: int
    skips_start: bool
    walk: Walk = field(default_factory=Walk)
    _open: bytes = b""

    def __post_init__(self) -> None:
        """Check the arguments.

        Raises:
            InvalidRecord: a member, range or trace is invalid, or there are traces without a related range.
        """
        check_name(self.member)
        if self.traces and self.related is None:
            raise InvalidRecord("a walk with traces needs the related range that they belong to")
        self.walk.traced = [Traced() for _ in self.traces]
        self._open = b"".join(b"%d," % place for place, _ in enumerate(self.traces, 1))

    def next_call(self) -> Call[None] | None:
        """Return a call that goes on; `None` at the end of the walk."""
        if not self.member or self.limit <= 0:
            return None
        named = {
            **_related(self.prefix, self.related),
            "start": self.member,
            "skips_start": self.skips_start,
            "limit": min(self.limit, STEPS_COUNT),
            "budget_bytes": REPLY_BYTES,
            "with_heads": not self.traces,
            "traces": self._open,
        }
        traced = [(check_name(trace.seed_prefix), check_value(trace.value_prefix)) for trace in self.traces]
        more = [text for pair in traced for text in pair]
        return script_call(Op.RECORD_WALK, self.keys, self._collect, named, script="walk_record", more=more)

    def _collect(self, reply: list[Any]) -> None:
        self.member, visited, self._open = reply[:3]
        self.limit -= visited
        self.skips_start = False
        for place, name, value in zip(reply[3::3], reply[4::3], reply[5::3], strict=True):
            if place == 0:
                self.walk.heads.append((name, value))
            elif place > 0:
                self.walk.traced[place - 1].entries.append((name, value))
            else:
                self.walk.traced[-place - 1].seed = name, value


def drop(keys: RecordKeys, bounds: tuple[bytes, bytes], limit: int, sender: Sender = PROCESS) -> Call[int]:
    """Build a call that removes members between two bounds with their fields, and returns their number."""
    named = {"from": bounds[0], "to": bounds[1], "limit": min(limit, DROP_COUNT), "sending": sender.sending()}
    return script_call(Op.RECORD_DROP, keys, int, named, script="drop_record")
