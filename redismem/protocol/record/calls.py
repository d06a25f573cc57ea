"""Calls about records: write, read, walk, drop, clear, touch. No I/O."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from redismem.errors import InvalidRecord, RecordConflict
from redismem.events import Op
from redismem.protocol.call import Argument, Call, Command, independent, script_call
from redismem.protocol.clears import WHICHEVER, new_note, noted_ms
from redismem.protocol.clock import Clock, time_argument
from redismem.protocol.ids import PROCESS, Sender
from redismem.protocol.layout import NONE
from redismem.protocol.record.changes import Change, check_names, check_size
from redismem.protocol.record.keys import DESCRIPTION, KEEP_EXPIRY, LIFE, RecordKeys, is_own
from redismem.protocol.record.quarantine import of_record
from redismem.settings.settings import Settings

_NONCE_BYTES = 8


class WriteOutcome(StrEnum):
    """The outcome of a write, in the words of `Event.outcome`."""

    OK = "ok"
    CREATED = "created"
    """It was made, and a record did not exist before."""
    DUPLICATE = "duplicate"
    """An earlier attempt of this write was made, and its reply was lost."""


def write(
    changes: Sequence[tuple[RecordKeys, Change]], clock: Clock | None, sender: Sender = PROCESS
) -> Call[WriteOutcome]:
    """Build a call that writes records of one shard, all or nothing.

    Raises:
        InvalidRecord: the records are not of one shard, or one is named twice, or a change is invalid.
        TooLarge: the changes are too large for one call.
        InvalidTime: the clock returned an invalid time.
    """
    first = changes[0][0]
    if any(keys.records != first.records for keys, _ in changes):
        raise InvalidRecord("records that are written together have one tag")
    if len({keys.record for keys, _ in changes}) < len(changes):
        raise InvalidRecord("a record is named twice in one write")
    sent_as = sender.sending()
    named = {"nonce": sent_as[:1] + os.urandom(_NONCE_BYTES - 1), "now_ms": time_argument(clock), "sending": sent_as}
    more: list[Argument] = []
    for keys, change in changes:
        ttl_ms = NONE if keys.ttl_ms is None else "=" if keys.ttl_ms == KEEP_EXPIRY else keys.ttl_ms
        more += (keys.member, ttl_ms, keys.score, keys.birth, *change.encode())
    check_size(more)
    names = [name for keys, _ in changes for name in (keys.record, keys.order)]

    def decode(reply: int) -> WriteOutcome:
        if reply < 0:
            checks = [(keys, field) for keys, change in changes for field, _ in change.checks()]
            raise _conflict(*checks[-reply - 1])
        return (WriteOutcome.DUPLICATE, WriteOutcome.OK, WriteOutcome.CREATED)[reply]

    return script_call(Op.RECORD_WRITE, first, decode, named, script="write_record", more_keys=names, more=more)


def _conflict(keys: RecordKeys, field: bytes) -> RecordConflict:
    return RecordConflict("not as the change expects: another writer was faster", None, keys.id, field)


def get(keys: RecordKeys, fields: Sequence[bytes], clock: Clock | None, *, renew: bool) -> Call[list[bytes | None]]:
    """Build a call that reads fields; `None` for a missing one.

    Raises:
        InvalidRecord: a field is invalid.
        InvalidTime: the clock returned an invalid time.
    """
    check_names(fields)
    read: Command = ("HMGET", keys.record, DESCRIPTION, *fields)

    def decode(*answers: Any) -> list[bytes | None]:
        described, *values = answers[-1]
        return values if is_own(keys, described) else [None] * len(values)

    if not renew:
        return Call(None, (read,), decode, op=Op.RECORD_GET)
    named = renewal(keys, clock)
    return script_call(Op.RECORD_GET, keys, decode, named, script="touch_record", after=[read], is_separable=True)


def get_each(records: Sequence[RecordKeys], fields: Sequence[bytes]) -> Call[list[list[bytes | None]]]:
    """Build a call that reads fields of several records; `None` for a missing one.

    Raises:
        InvalidRecord: a field is invalid.
    """
    check_names(fields)
    commands: tuple[Command, ...] = tuple(("HMGET", keys.record, DESCRIPTION, *fields) for keys in records)

    def decode(*answers: list[bytes | None]) -> list[list[bytes | None]]:
        absent: list[bytes | None] = [None] * len(fields)
        return [
            values if is_own(keys, described) else absent
            for keys, (described, *values) in zip(records, answers, strict=True)
        ]

    return independent(commands, decode, Op.RECORD_GET)


def exists(keys: RecordKeys) -> Call[bool]:
    """Build a call that tells whether the record exists."""

    def decode(described: bytes | None) -> bool:
        return is_own(keys, described)

    return Call(None, (("HGET", keys.record, DESCRIPTION),), decode, op=Op.RECORD_GET)


def touch(keys: RecordKeys, clock: Clock | None) -> Call[bool]:
    """Build a call that renews the expiry of a record; False means that there is none.

    Raises:
        InvalidTime: the clock returned an invalid time.
    """
    return script_call(Op.RECORD_TOUCH, keys, bool, renewal(keys, clock), script="touch_record")


def renewal(keys: RecordKeys, clock: Clock | None, *, renew: bool = True) -> dict[str, Argument]:
    """Return the arguments `ttl_ms` and `now_ms`, which renew the expiry or leave it alone.

    Raises:
        InvalidTime: the clock returned an invalid time.
    """
    if keys.ttl_ms is None or not renew:
        return {"ttl_ms": NONE, "now_ms": 0}
    return {"ttl_ms": keys.ttl_ms, "now_ms": time_argument(clock)}


class Cleared(NamedTuple):
    """The reply to a clear: whether there was a record, and the times of its copies in quarantine, which stay."""

    was_there: bool
    copies_ms: Sequence[int]


def clear(keys: RecordKeys, equals: Mapping[bytes, bytes], settings: Settings) -> Call[Cleared]:
    """Build a call that removes a whole record, if its fields have these values.

    Raises:
        InvalidRecord: a condition is invalid.
    """
    change = Change(equals=equals)
    change.encode()
    checks = change.checks()

    def decode(reply: list[Any]) -> Cleared:
        outcome, *copies_ms = reply
        if outcome < 0:
            raise _conflict(keys, checks[-outcome - 1][0])
        return Cleared(outcome == 1, [int(put_ms) for put_ms in copies_ms])

    named: dict[str, Any] = {
        "copies": of_record(keys).note,
        "cleared": new_note(keys.shard),
        "id": keys.member,
        "life": WHICHEVER,
    }
    named |= {"noted_ms": noted_ms(settings)}
    more = [argument for check in checks for argument in check]
    return script_call(Op.RECORD_CLEAR, keys, decode, named, script="clear_record", more=more)


def clear_life(keys: RecordKeys, life: bytes) -> Call[bool]:
    """Build a call that removes a whole record if it still has this life, and tells whether there was one."""
    named: dict[str, Any] = {"copies": of_record(keys).note, "cleared": None, "id": keys.member, "life": life}
    named |= {"noted_ms": 0, "named": b""}
    return script_call(Op.RECORD_CLEAR, keys, lambda reply: reply[0] == 1, named, script="clear_record")


def life_of(kind: bytes, described: bytes | None) -> bytes:
    """Return the life of what is at the key of a record, by the key's type and its description."""
    if kind == b"none":
        return b"none"
    return b"other" if described is None else described[LIFE]
