"""List the records of a namespace by id, over all shards. No I/O."""

from __future__ import annotations

import base64
import binascii
import heapq
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from redismem.errors import InvalidRecord
from redismem.events import Op
from redismem.protocol.birth import decode_id, encode_id
from redismem.protocol.call import Call, Command, independent
from redismem.protocol.keys import Keys
from redismem.protocol.owners import check_owner, decode_owner, owner_score
from redismem.protocol.record.changes import check_names
from redismem.protocol.record.keys import DESCRIPTION, decode_description, record_keys
from redismem.protocol.record.reads import bounds_of

LIMIT = 10_000
"""The most records of one page."""
_LEAST_COUNT = 16
"""The ids that each shard is asked for at first: the records of one tag, such as a namespace, are all in one shard."""
_FOREIGN_CURSOR = "this cursor was not returned by records()"


@dataclass(frozen=True, slots=True)
class RecordEntry:
    """A record of a listing: `Memory.record(entry.id, tag=entry.tag)` opens it."""

    id: str
    tag: str
    owner: str | None
    """The owner that the record was created with; `None` without one."""
    values: tuple[bytes | None, ...] = ()
    """The values of the fields that the listing read; `None` for a missing one."""


@dataclass(slots=True)
class RecordPage:
    """A page of the records of a namespace, by id."""

    records: list[RecordEntry]
    cursor: str | None
    """The cursor of the next page; `None` at the end."""
    unreadable: list[str] = field(default_factory=list)
    """The ids of records on this page that are damaged. A page of one owner has none: nobody knows whose they are."""


@dataclass(slots=True)
class _Shard:
    number: int
    prefix: bytes
    bounds: tuple[bytes, bytes]
    count: int
    is_done: bool = False


class PageReader(ABC):
    """Reads one page: its subclass finds the ids, and this one what the records are."""

    def __init__(self, keys: Keys, prefix: str, limit: int, owner: str | None) -> None:
        """Begin a page.

        Raises:
            ValueError: the limit is out of range.
            InvalidRecord: the prefix is no string.
            InvalidSessionId: the owner is invalid.
        """
        if type(limit) is not int or not 1 <= limit <= LIMIT:
            raise ValueError(f"limit is an integer, from 1 to {LIMIT}")
        if not isinstance(prefix, str):
            raise InvalidRecord("a prefix of record ids is a string")
        self._keys, self._limit = keys, limit
        self._owner = None if owner is None else check_owner(owner)
        self._prefix, self._prefixes = encode_id(prefix), keys.prefixes()
        self.foreign: set[bytes] = set()
        """Keys of a foreign type instead of a record: `redismem doctor --deep` reports them."""
        self.unreadable: list[str] = []
        """The ids of records of the page that are damaged, unless it is the page of an owner."""

    @abstractmethod
    def next_call(self) -> Call[Any] | None:
        """Return a call that reads on; `None` once the ids of the page are known."""

    @abstractmethod
    def _page(self) -> list[tuple[bytes, int]]:
        """Return id and shard of each record of the page."""

    def cursor(self) -> str | None:
        """Return the cursor of the next page; `None` at the end."""
        return None

    def describe(self, fields: Sequence[bytes]) -> Call[list[RecordEntry]]:
        """Build a call that reads the descriptions and fields of the page's records, without those that have expired.

        Raises:
            InvalidRecord: a field is invalid.
        """
        check_names(fields)
        prefixes = self._prefixes
        named = [(decode_id(member), prefixes[number] + b":record:" + member) for member, number in self._page()]
        ids = [(name, key) for name, key in named if name is not None and key not in self.foreign]
        foreign = [name for name, key in named if name is not None and key in self.foreign]

        def decode(*answers: Any) -> list[RecordEntry]:
            entries, damaged = [], list(foreign)
            for (name, key), (described, *values) in zip(ids, answers, strict=True):
                about = decode_description(described)
                if about is not None and self._prefix_of(about.tag) != key.partition(b":record:")[0]:
                    about = None  # the tag is damaged: it would lead to another shard
                owner = None if about is None else decode_owner(about.owner)
                if about is not None and self._owner in (None, owner):
                    entries.append(RecordEntry(name, about.tag, owner, tuple(values)))
                elif about is None and described is not None:
                    damaged.append(name)
            self.unreadable = damaged if self._owner is None else []
            return entries

        commands: tuple[Command, ...] = tuple(("HMGET", key, DESCRIPTION, *fields) for _, key in ids)
        return independent(commands, decode, Op.RECORD_LIST)

    def _prefix_of(self, tag: str) -> bytes:
        return self._keys.prefix_of(encode_id(tag)) if tag else b""

    def find_foreign(self) -> Call[None]:
        """Build a call that notes the keys of a foreign type, for `describe` to leave out."""
        keys = [self._prefixes[number] + b":record:" + member for member, number in self._page()]

        def decode(*kinds: bytes) -> None:
            self.foreign = {key for key, kind in zip(keys, kinds, strict=True) if kind not in (b"hash", b"none")}

        return independent(tuple(("TYPE", key) for key in keys), decode, Op.RECORD_LIST)


class RecordsReader(PageReader):
    """Reads one page, by id and then by shard. Asks each shard for little more than its share of the page first."""

    def __init__(self, keys: Keys, prefix: str, limit: int, cursor: str | None, owner: str | None = None) -> None:
        """Begin a page, of all records or of those of an owner.

        Raises:
            ValueError: the cursor was not returned by records(), or the limit is out of range.
            InvalidRecord: the prefix is no string.
            InvalidSessionId: the owner is invalid.
        """
        super().__init__(keys, prefix, limit, owner)
        self._found: list[tuple[bytes, int]] = []
        after, after_shard = (None, -1) if cursor is None else _decode_cursor(cursor)
        self._after = (after or b"", after_shard)
        share = limit / keys.shard_count
        count = min(limit + 1, max(math.ceil(share + 2 * math.sqrt(share)) + 2, _LEAST_COUNT))
        self._shards = [_Shard(number, name, (b"", b""), count) for number, name in enumerate(self._prefixes)]
        for shard in self._shards:
            least, greatest = bounds_of(encode_id(prefix), after=after)
            if after is not None and shard.number > after_shard and least == b"(" + after:
                least = b"[" + after
            shard.bounds = least, greatest

    def next_call(self) -> Call[int] | None:
        """Return a call that reads on; `None` once the page is complete."""
        last = self._page()[-1:]
        waiting = [shard for shard in self._shards if not shard.is_done and self._may_matter(shard, last)]
        if not waiting:
            return None
        commands = tuple(self._command(shard) for shard in waiting)

        def decode(*answers: Any) -> int:
            for shard, members in zip(waiting, answers, strict=True):
                if self._owner is not None:
                    self._found = [place for place in self._found if place[1] != shard.number]
                self._found += [place for member in members if self._is_wanted(place := (member, shard.number))]
                shard.is_done = len(members) < shard.count
                if members:
                    shard.bounds = b"(" + members[-1], shard.bounds[1]
                shard.count = 4 * shard.count if self._owner is not None else min(4 * shard.count, self._limit + 1)
            return len(waiting)

        return independent(commands, decode, Op.RECORD_LIST)

    def _command(self, shard: _Shard) -> Command:
        if self._owner is None:
            return ("ZRANGE", shard.prefix + b":records", *shard.bounds, "BYLEX", "LIMIT", 0, shard.count)
        # Members with equal scores are in order. Read from the first one again: a record may have gone meanwhile.
        score = owner_score(self._owner)
        return ("ZRANGE", shard.prefix + b":records_owned", score, score, "BYSCORE", "LIMIT", 0, shard.count)

    def _is_wanted(self, place: tuple[bytes, int]) -> bool:
        return self._owner is None or (place[0].startswith(self._prefix) and place > self._after)

    def _may_matter(self, shard: _Shard, last: list[tuple[bytes, int]]) -> bool:
        """True if unread members of the shard may belong to the page."""
        if len(self._found) <= self._limit or not last:
            return True
        return shard.bounds[0][1:] < last[0][0]

    def _page(self) -> list[tuple[bytes, int]]:
        return heapq.nsmallest(self._limit, self._found)

    def cursor(self) -> str | None:
        """Return the cursor of the next page; `None` at the end."""
        if len(self._found) <= self._limit:
            return None
        return _encode_cursor(*self._page()[-1])


def cursor_after(keys: Keys, record_id: str, tag: str | None) -> str:
    """Return the cursor of the page that begins behind a record; without its tag, behind all records with this id."""
    prefixes = list(keys.prefixes())
    number = len(prefixes) - 1 if tag is None else prefixes.index(keys.prefix_of(encode_id(tag)))
    return _encode_cursor(encode_id(record_id), number)


def field_sizes(keys: Keys, wanted: Sequence[tuple[RecordEntry, Sequence[bytes]]]) -> Call[list[dict[bytes, int]]]:
    """Build a call that returns the bytes of these fields of each record, without those that it lacks."""
    commands: list[Command] = []
    for entry, fields in wanted:
        key = record_keys(keys, entry.id, entry.tag).record
        commands += [("HSTRLEN", key, name) for name in fields]

    def decode(*sizes: int) -> list[dict[bytes, int]]:
        left = iter(sizes)
        return [{name: size for name in fields if (size := next(left))} for _, fields in wanted]

    return independent(tuple(commands), decode, Op.RECORD_LIST)


def _encode_cursor(member: bytes, number: int) -> str:
    return base64.urlsafe_b64encode(json.dumps([member.hex(), number]).encode()).decode()


def _decode_cursor(cursor: str) -> tuple[bytes, int]:
    if type(cursor) is not str:
        raise ValueError(_FOREIGN_CURSOR)
    try:
        member, number = json.loads(base64.urlsafe_b64decode(cursor.encode()))
        decoded = bytes.fromhex(member)
    except (binascii.Error, ValueError, TypeError, RecursionError) as cause:
        raise ValueError(_FOREIGN_CURSOR) from cause
    if type(number) is not int:
        raise ValueError(_FOREIGN_CURSOR)
    return decoded, number
