"""The invariant of turns, I16: the fields, the log, the ended turns and the index of a session agree. No I/O."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from redismem.protocol import layout
from redismem.protocol.call import Command
from redismem.protocol.keys import SessionKeys
from redismem.protocol.layout import Counters
from redismem.protocol.live.turns import decode_turn

_FIELDS = (layout.TURN, layout.STOP, layout.DOUBT)
_FIELD_BYTES = 64
"""A longer value would make the state take more memory: its hash would be no listpack any more."""
_NONE_MS = -2
_HEADER_BYTES = _RECORD_BYTES = 16
_OUTCOMES, _FLAGS = range(1, 5), range(1, 16)


class StoredTurns(NamedTuple):
    """The stored keys of a session's turns. A time is -1 without an expiry, -2 without a key."""

    log: bytes
    ended: bytes
    log_expires_ms: int
    ended_expire_ms: int
    waiters_expire_ms: int


def turn_reads(keys: SessionKeys) -> tuple[Command, ...]:
    """Build the commands that read a session's turns, in the order of `StoredTurns`."""
    times = tuple(("PEXPIRETIME", key) for key in (keys.live, keys.turned, keys.waiters))
    return ("GET", keys.live), ("GET", keys.turned), *times


def broken_turn_rules(
    fields: dict[bytes, bytes], turns: StoredTurns, place: float | None, counters: Counters, late_ms: int
) -> Iterator[str]:
    """Yield how the turns of a session break the invariant. `place` is the session's score in the index of turns."""
    turn = decode_turn(fields.get(layout.TURN))
    is_running = turn is not None and turn.is_running
    if turn is None and layout.TURN in fields:
        yield "the turn cannot be read"
    if long := [name.decode() for name in _FIELDS if len(fields.get(name, b"")) > _FIELD_BYTES]:
        yield f"fields of the turn have more than {_FIELD_BYTES} bytes: {', '.join(long)}"
    if not is_running and (waiting := [name.decode() for name in _FIELDS[1:] if name in fields]):
        yield f"no turn runs, but the state has {', '.join(waiting)}"
    if is_running != (place is not None):
        yield f"{'a' if is_running else 'no'} turn runs, but the index of turns says otherwise"
    if turn is not None and not 1 <= turn.first_seq <= counters.message_count:
        yield f"the question of the turn is message {turn.first_seq}, but the session has {counters.message_count}"
    yield from _log_rules(turns, counters, late_ms)
    yield from _ended_rules(fields.get(layout.EPOCH, b""), turns, counters, late_ms)
    if turns.waiters_expire_ms == -1:
        yield "the turns that wait never expire"


def _log_rules(turns: StoredTurns, counters: Counters, late_ms: int) -> Iterator[str]:
    if turns.log_expires_ms == _NONE_MS:
        return
    if not 0 < turns.log_expires_ms <= counters.expires_ms + late_ms:
        yield f"the log of the turn expires at {turns.log_expires_ms}, but the session at {counters.expires_ms}"
    if not turns.log.endswith(b"\n") or not all(map(_is_event, turns.log[:-1].split(b"\n"))):
        yield "the log of the turn has a line that is no event"


def _is_event(line: bytes) -> bool:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(event, dict) and isinstance(event.get("type"), str)


def _ended_rules(epoch: bytes, turns: StoredTurns, counters: Counters, late_ms: int) -> Iterator[str]:
    if turns.ended_expire_ms == _NONE_MS:
        return
    if not 0 < turns.ended_expire_ms <= counters.expires_ms + late_ms:
        yield f"the ended turns expire at {turns.ended_expire_ms}, but the session at {counters.expires_ms}"
    header, records = turns.ended[:_HEADER_BYTES], turns.ended[_HEADER_BYTES:]
    if len(header) < _HEADER_BYTES or len(records) % _RECORD_BYTES:
        yield "the ended turns are no whole records"
    elif header != epoch.partition(b"-")[2]:
        return  # of an earlier life, so nothing reads them
    elif turns.ended_expire_ms < counters.expires_ms:
        yield f"the ended turns expire at {turns.ended_expire_ms}, but the session at {counters.expires_ms}"
    parts = [records[at : at + _RECORD_BYTES] for at in range(0, len(records), _RECORD_BYTES)]
    if wrong := sum(not _is_record(record, counters.message_count) for record in parts):
        yield f"{wrong} of {len(parts)} records of ended turns cannot be read, or name messages that do not exist"


def _is_record(record: bytes, message_count: int) -> bool:
    first_seq = int.from_bytes(record[7:12])
    last_seq, flags = first_seq + int.from_bytes(record[12:15]), record[-1]
    return 1 <= first_seq <= last_seq <= message_count and flags in _FLAGS and flags % 8 in _OUTCOMES
