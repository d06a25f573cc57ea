"""Calls about the dictionaries of a namespace: list, read, add, retire and drop them. No I/O.

A dictionary is never changed, and its number is never used again. The hash of the dictionaries also has, beside the
dictionary `3`, a field `unused:3` since a search found no block that names it, and `dropped:3` once it is dropped. The
field `searched` has the time of the last search. Times are milliseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from redismem.events import Op
from redismem.messages.values import Undecodable
from redismem.originals.dictionaries import Dictionary
from redismem.protocol.call import Call, script_call
from redismem.protocol.keys import Keys, SessionKeys

_TIME_BYTES = 8
_FIELDS_COUNT = 100


class Listing(NamedTuple):
    """The versions of a namespace's dictionaries, ascending."""

    versions: Sequence[int]
    """The existing dictionaries."""
    retired: Collection[int]
    """The existing dictionaries that new blocks must not use."""
    dropped: Collection[int]
    returned: Collection[int]
    """Dropped dictionaries that a process has stored again, because it did not know yet that they were dropped."""

    @property
    def newest(self) -> int:
        """The highest number that any dictionary has had; 0 means that there was none."""
        return max([0, *self.versions, *self.dropped])


class Searches(NamedTuple):
    """The time of the last search for unused dictionaries, and since when searches have found no use, by version."""

    searched_ms: int
    unused_since_ms: dict[int, int]


def listing(keys: Keys) -> Call[Listing]:
    """Build a call that lists the dictionaries, without their content."""

    def decode(fields: Sequence[bytes]) -> Listing:
        stored, dropped = _versions(fields, b""), _versions(fields, b"dropped:")
        return Listing(sorted(stored - dropped), _versions(fields, b"unused:"), dropped, stored & dropped)

    return Call(None, (("HKEYS", keys.dictionaries),), decode, op=Op.DICTIONARIES)


def _versions(fields: Sequence[bytes], prefix: bytes) -> set[int]:
    numbers = (field.removeprefix(prefix) for field in fields if field.startswith(prefix))
    return {int(number) for number in numbers if number.isdigit()}


def read(keys: Keys, versions: Sequence[int]) -> Call[dict[int, Dictionary]]:
    """Build a call that reads dictionaries by version. Missing and unreadable ones are left out."""

    def decode(values: Sequence[bytes | None]) -> dict[int, Dictionary]:
        decoded = (_decode(version, value) for version, value in zip(versions, values, strict=True))
        return {dictionary.version: dictionary for dictionary in decoded if dictionary is not None}

    return Call(None, (("HMGET", keys.dictionaries, *versions),), decode, op=Op.DICTIONARIES)


def add(keys: Keys, dictionary: Dictionary) -> Call[bool]:
    """Build a call that adds a dictionary.

    False means that its version exists, perhaps because the first attempt of this call added it.
    """
    value = dictionary.created_ms.to_bytes(_TIME_BYTES, "big") + dictionary.content
    return Call(None, (("HSETNX", keys.dictionaries, dictionary.version, value),), bool, op=Op.DICTIONARIES)


def searches(keys: Keys, versions: Sequence[int]) -> Call[Searches]:
    """Build a call that reads when searches were made, and since when they have found no use of these versions."""

    def decode(values: Sequence[bytes | None]) -> Searches:
        searched, *since = [int(value) if value is not None and value.isdigit() else None for value in values]
        unused = {version: time_ms for version, time_ms in zip(versions, since, strict=True) if time_ms is not None}
        return Searches(searched or 0, unused)

    fields = [b"unused:%d" % version for version in versions]
    return Call(None, (("HMGET", keys.dictionaries, b"searched", *fields),), decode, op=Op.DICTIONARIES)


def note_search(keys: Keys, time_ms: int) -> Call[int]:
    """Build a call that notes the time of a search, so that other processes do not repeat it."""
    return Call(None, (("HSET", keys.dictionaries, b"searched", time_ms),), int, op=Op.DICTIONARIES)


def retire(keys: Keys, version: int, time_ms: int) -> Call[int]:
    """Build a call that keeps new blocks from using a dictionary, from a minute later on. It stays readable."""
    return Call(None, (("HSETNX", keys.dictionaries, b"unused:%d" % version, time_ms),), int, op=Op.DICTIONARIES)


def reinstate(keys: Keys, version: int) -> Call[int]:
    """Build a call that lets new blocks use a retired dictionary again."""
    return Call(None, (("HDEL", keys.dictionaries, b"unused:%d" % version),), int, op=Op.DICTIONARIES)


def drop(keys: Keys, version: int, time_ms: int) -> Call[bool]:
    """Build a call that deletes a dictionary for good. No process that has it in memory stores it again."""
    note = ("HSET", keys.dictionaries, b"dropped:%d" % version, time_ms)
    delete = ("HDEL", keys.dictionaries, version, b"unused:%d" % version)
    return Call(None, (note, delete), lambda _, count: bool(count), op=Op.DICTIONARIES)


def named(keys: SessionKeys, originals: bytes | None = None, cursor: int = 0) -> Call[tuple[int, set[int]]]:
    """Build a call that reads which versions a part of a session's blocks names, and the cursor of the next part.

    The last part has the next cursor 0. `originals` is the key of the session's originals in quarantine; None means the
    originals of the live session.
    """

    def decode(reply: Sequence[int]) -> tuple[int, set[int]]:
        next_cursor, *versions = reply
        return next_cursor, set(versions) - {0}

    named = {"originals": originals or keys.originals, "cursor": cursor, "count": _FIELDS_COUNT}
    return script_call(Op.DICTIONARIES, keys, decode, named, script="named_dictionaries")


def _decode(version: int, value: bytes | None) -> Dictionary | None:
    if value is None:
        return None
    try:
        return Dictionary(version, int.from_bytes(value[:_TIME_BYTES], "big"), value[_TIME_BYTES:])
    except Undecodable:
        return None
