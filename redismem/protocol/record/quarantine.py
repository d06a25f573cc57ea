"""Calls about records in quarantine: move, find, read, restore and drop their copies. No I/O.

A record may have several copies. The hash at `RecordKeys.copies` has the time of each, and what is known of it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from redismem.events import Op
from redismem.protocol import replies, scripts
from redismem.protocol.call import Call, Command, evalsha, independent
from redismem.protocol.keys import Keys, plain
from redismem.protocol.owners import is_owner_field
from redismem.protocol.record.keys import RecordKeys, decode_id, encode_id, keys_in_shard, read_birth

_SPECIAL = re.compile(rb"([\\*?\[\]^])")
_KEY = re.compile(rb"(rm:\{[^{}]+:\d+[a-z]+\}):quarantined(?:_(?:record|order):(\d{1,19}))?:(.+)", re.DOTALL)
_NONCE_BYTES = 8


class Copy(NamedTuple):
    """A copy of a record, in quarantine since `put_ms`."""

    keys: RecordKeys
    put_ms: int
    lasts: bool
    """True if the record had no time to live."""
    knows_owner: bool
    """False if neither the record nor the caller that found it unreadable named an owner: it may have one."""
    birth: bytes
    """Owner and tag, as the description of a restored record ends."""

    @property
    def owner(self) -> bytes | None:
        """The owner as a record stores it; `None` if there is none, or none is known."""
        return read_birth(self.birth)[0]


class CopyKey(NamedTuple):
    """A key of a copy. `entry_count` counts fields or members; -1 means that the key has a foreign type."""

    name: str
    type: str
    entry_count: int
    expires_ms: int


def quarantine(keys: RecordKeys, put_ms: int, kept_ms: int, *, forced: bool = False) -> Call[bool]:
    """Build a call that moves a record into quarantine if it is unreadable; `forced` moves a readable one too."""
    script = scripts.load("quarantine_record")
    names = (keys.records, keys.owned, keys.record, keys.order, keys.copies, *keys.copy(put_ms))
    arguments = (keys.member, put_ms, keys.birth, int(keys.owner is not None), kept_ms, int(forced))
    return Call(None, (evalsha(script, names, arguments),), bool, script, op=Op.RECORD_QUARANTINE)


def pattern(keys: Keys, record_id: str | None = None) -> bytes:
    """Return the MATCH pattern of the indexes of copies, of the namespace or of one id under any tag."""
    member = b"*" if record_id is None else _SPECIAL.sub(rb"\\\1", encode_id(plain(record_id)))
    return f"rm:{{{keys.namespace}:*}}:quarantined:".encode() + member


def scanned_copies(keys: Keys, scanned: Sequence[bytes]) -> dict[RecordKeys, set[int]]:
    """Return the records of this namespace that have an index of copies, or a copy, among scanned keys.

    With each comes the set of the times of its scanned copies.
    """
    shards = frozenset(keys.prefixes())
    found: dict[RecordKeys, set[int]] = {}
    for match in filter(None, map(_KEY.fullmatch, scanned)):
        record_id = decode_id(match[3])
        if match[1] in shards and record_id is not None:
            times_ms = found.setdefault(keys_in_shard(match[1], record_id), set())
            times_ms.update([] if match[2] is None else [int(match[2])])
    return found


def copies_of(records: Sequence[RecordKeys]) -> Call[list[Copy]]:
    """Build a call that reads the copies of records from their indexes."""

    def decode(*answers: Any) -> list[Copy]:
        return [copy for keys, answer in zip(records, answers, strict=True) for copy in _copies(keys, answer)]

    return independent(tuple(("HGETALL", keys.copies) for keys in records), decode)


def _copies(keys: RecordKeys, answer: Any) -> Iterator[Copy]:
    for put_ms, known in replies.fields(answer).items():
        if put_ms.isdigit() and _is_known(known):
            yield Copy(keys, int(put_ms), known[:1] == b"1", known[1:2] == b"1", known[2:])


def _is_known(known: bytes) -> bool:
    try:
        owner, tag = read_birth(known[2:])
    except ValueError:
        return False
    return tag != "" and (owner is None or is_owner_field(owner))


def key_types(copies: Sequence[Copy]) -> Call[list[list[CopyKey]]]:
    """Build a call that reads type and expiry of each copy's existing keys. Every `entry_count` is 0."""
    names = [name for copy in copies for name in copy.keys.copy(copy.put_ms)]
    commands = tuple(command for name in names for command in (("TYPE", name), ("PEXPIRETIME", name)))

    def decode(*answers: Any) -> list[list[CopyKey]]:
        pairs = list(zip(answers[::2], answers[1::2], strict=True))
        return [
            [
                CopyKey(name, kind.decode(), 0, expires_ms)
                for name, (kind, expires_ms) in zip(_NAMES, pairs[at : at + 2], strict=True)
                if kind != b"none"
            ]
            for at in range(0, len(pairs), 2)
        ]

    return independent(commands, decode)


_NAMES = ("record", "order")
_COUNTS = {("record", "hash"): "HLEN", ("order", "zset"): "ZCARD"}


def count_entries(copies: Sequence[Copy], present: Sequence[Sequence[CopyKey]]) -> Call[list[list[CopyKey]]]:
    """Build a call that counts fields and members in each existing key. -1 means that the key has a foreign type."""
    commands: list[Command] = []
    for copy, group in zip(copies, present, strict=True):
        names = dict(zip(_NAMES, copy.keys.copy(copy.put_ms), strict=True))
        commands += [(_COUNTS[key.name, key.type], names[key.name]) for key in group if is_sound(key)]

    def decode(*answers: Any) -> list[list[CopyKey]]:
        counts = iter(answers)
        return [[key._replace(entry_count=next(counts) if is_sound(key) else -1) for key in group] for group in present]

    return independent(tuple(commands), decode)


def is_sound(key: CopyKey) -> bool:
    """True if the key has the expected type."""
    return (key.name, key.type) in _COUNTS


def restore(copy: Copy) -> Call[bool]:
    """Build a call that restores a copy. False means that its fields are not in quarantine any more."""
    script, keys = scripts.load("restore_record"), copy.keys
    names = (keys.records, keys.owned, keys.record, keys.order, keys.copies, *keys.copy(copy.put_ms))
    score = b"-" if copy.owner is None else copy.owner.partition(b" ")[0]
    arguments = (keys.member, copy.put_ms, os.urandom(_NONCE_BYTES), score, copy.birth, int(copy.lasts))
    return Call(None, (evalsha(script, names, arguments),), bool, script, op=Op.RESTORE)


def drop(keys: RecordKeys, *times_ms: int) -> Call[bool]:
    """Build a call that removes copies for good. False means that all were gone."""
    copies = [name for put_ms in times_ms for name in keys.copy(put_ms)]
    commands: tuple[Command, ...] = (("UNLINK", *copies), ("HDEL", keys.copies, *times_ms))
    return Call(None, commands, lambda count, _: count > 0, op=Op.DROP)
