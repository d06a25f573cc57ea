"""Calls about records: write, read, walk, drop, clear, touch. No I/O."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from redismem.errors import InvalidRecord, RecordConflict
from redismem.events import Op
from redismem.protocol import scripts
from redismem.protocol.call import Call, Command, evalsha
from redismem.protocol.clears import WHICHEVER, new_note, noted_ms
from redismem.protocol.clock import Clock, time_argument
from redismem.protocol.ids import sending
from redismem.protocol.record.changes import Argument, Change, check_names, check_size
from redismem.protocol.record.keys import DESCRIPTION, LIFE, RecordKeys, is_own
from redismem.protocol.sendings import resend
from redismem.settings.settings import Settings

_NONCE_BYTES = 8


class WriteOutcome(StrEnum):
    """The outcome of a write, in the words of `Event.outcome`."""

    OK = "ok"
    CREATED = "created"
    """It was made, and a record did not exist before."""
    DUPLICATE = "duplicate"
    """An earlier attempt of this write was made, and its reply was lost."""


def write(changes: Sequence[tuple[RecordKeys, Change]], clock: Clock | None) -> Call[WriteOutcome]:
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
    sent_as = sending()
    arguments: list[Argument] = [sent_as[:1] + os.urandom(_NONCE_BYTES - 1), time_argument(clock), sent_as]
    for keys, change in changes:
        arguments += (
            keys.member,
            "-" if keys.ttl_ms is None else keys.ttl_ms,
            keys.score,
            keys.birth,
            *change.encode(),
        )
    check_size(arguments)
    names = [first.records, first.owned, *(name for keys, _ in changes for name in (keys.record, keys.order))]
    checks = [(keys, field) for keys, change in changes for field, _ in change.checks()]

    def decode(reply: int) -> WriteOutcome:
        if reply < 0:
            raise _conflict(*checks[-reply - 1])
        return (WriteOutcome.DUPLICATE, WriteOutcome.OK, WriteOutcome.CREATED)[reply]

    call = script_call("write_record", Op.RECORD_WRITE, names, arguments, decode)
    call.resent = resend(len(names), 2, at=0)
    return call


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
    renewal = touch(keys, clock)
    commands = (*renewal.commands, read)
    return Call(None, commands, decode, renewal.script, op=Op.RECORD_GET, is_separable=True)


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
    return script_call(
        "touch_record", Op.RECORD_TOUCH, (keys.record, keys.order), (*renewal(keys, clock), keys.named), bool
    )


def renewal(keys: RecordKeys, clock: Clock | None, *, renew: bool = True) -> tuple[int | str, int | str]:
    """Return the arguments `ttl_ms` and `now_ms`, which renew the expiry or leave it alone.

    Raises:
        InvalidTime: the clock returned an invalid time.
    """
    return ("-", 0) if keys.ttl_ms is None or not renew else (keys.ttl_ms, time_argument(clock))


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

    arguments: list[Argument] = [WHICHEVER, noted_ms(settings), keys.named]
    arguments += (argument for check in checks for argument in check)
    return _clear(keys, [new_note(keys.shard)], arguments, decode)


def clear_life(keys: RecordKeys, life: bytes) -> Call[bool]:
    """Build a call that removes a whole record if it still has this life, and tells whether there was one."""
    return _clear(keys, (), (life, 0, ""), lambda reply: reply[0] == 1)


def life_of(kind: bytes, described: bytes | None) -> bytes:
    """Return the life of what is at the key of a record, by the key's type and its description."""
    if kind == b"none":
        return b"none"
    return b"other" if described is None else described[LIFE]


def _clear(keys: RecordKeys, note: Sequence[bytes], arguments: Sequence[Argument], decode: Any) -> Call[Any]:
    names = (keys.records, keys.owned, keys.record, keys.order, keys.copies, *note)
    return script_call("clear_record", Op.RECORD_CLEAR, names, (keys.member, *arguments), decode)


def script_call(name: str, op: Op, names: Sequence[bytes], arguments: Sequence[Argument], decode: Any) -> Call[Any]:
    """Build a call that runs one script about records."""
    script = scripts.load(name)
    return Call(None, (evalsha(script, names, arguments),), decode, script, op=op)
