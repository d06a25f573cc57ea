"""Calls about running turns: write, stop, claim, read, find. No I/O.

A turn is fenced by its generation and its holder: a process that another one has replaced writes nothing more. The
lease only decides when another process may take the turn over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from redismem.events import Op
from redismem.protocol import layout, replies
from redismem.protocol.call import Call, independent, script_call
from redismem.protocol.clock import Clock, time_argument
from redismem.protocol.keys import SessionKeys, ShardKeys
from redismem.protocol.live.turns import TurnField, TurnRecord, check_reason, decode_turn, find_record
from redismem.protocol.namespace.calls import name_of
from redismem.protocol.owners import check_same_owner
from redismem.settings.settings import Settings

_STATE_FIELDS = (layout.COUNTERS, layout.EPOCH, layout.OWNER, layout.TURN, layout.STOP)


@dataclass(frozen=True, slots=True)
class TurnWrite:
    """Bytes for the log of a running turn, which lie at `offset` of it. No bytes extend the lease alone."""

    keys: SessionKeys
    turn: TurnField
    offset: int
    """0 replaces a log that differs."""
    data: bytes


class WriteReply(NamedTuple):
    """The outcome of a write."""

    state: str
    """`ok`, `lost` or `differs`.

    `lost` means that the turn has ended, or that another process has taken it over; `differs` that the log has other
    bytes there.
    """
    log_bytes: int
    """The bytes of the log. If they are fewer than `offset`, nothing was written: the log must be sent from there."""
    stop: str | None
    """The reason of a stop that waits; None means that none waits."""


def write_turns(settings: Settings, clock: Clock | None, writes: Sequence[TurnWrite]) -> Call[list[WriteReply]]:
    """Build a call that writes to the logs of turns, and extends their leases. In a cluster they are of one shard.

    Raises:
        InvalidTime: the clock returned an invalid time.
    """
    more_keys = [key for write in writes for key in (write.keys.state, write.keys.live, write.keys.shard.turns)]
    more = [
        part
        for write in writes
        for part in (write.keys.session, write.turn.generation, write.turn.holder, write.offset, write.data)
    ]
    named = {"now_ms": time_argument(clock), "lease_ms": lease_ms(settings)}
    keys = writes[0].keys
    call = script_call(Op.WRITE_TURNS, keys, _write_replies, named, more_keys=more_keys[3:], more=more)
    is_one = all(write.keys.session == keys.session for write in writes)
    return call if is_one else replace(call, session_id=None)


def lease_ms(settings: Settings) -> int:
    """Return the time of a lease in milliseconds."""
    return int(settings.live_lease_s * 1000)


def _write_replies(reply: Sequence[bytes]) -> list[WriteReply]:
    return [_write_reply(each) for each in reply]


def _write_reply(reply: bytes) -> WriteReply:
    word, _, stop = reply.decode("utf-8", "replace").partition(" ")
    return WriteReply("ok", int(word), stop or None) if word.isdigit() else WriteReply(word, 0, stop or None)


def stop_turn(keys: SessionKeys, reason: str, *, generation: str | None, name: bytes | None) -> Call[bool]:
    """Build a call that asks a running turn to stop. False means that no such turn runs.

    `generation` and `name` say which turn is meant; None means any.

    Raises:
        InvalidMessage: the reason is not 1 to 40 printable ASCII characters.

    Decoding raises:
        OwnerMismatch: the session has another owner than the keys name, or none.
    """
    named = {"reason": check_reason(reason), "generation": generation, "name": None if name is None else name.hex()}
    return script_call(Op.STOP_TURN, keys, bool, named)


class ClaimReply(NamedTuple):
    """The outcome of a claim."""

    state: str
    """`none`: no turn runs; `leased`: its lease is not over; `doubted`: its holder has half a lease left; `claimed`."""
    left_ms: int
    """The time until the lease ends."""
    turn: TurnField | None
    """The turn afterwards: of a claimed one, the caller is the holder."""


def claim_turn(keys: SessionKeys, settings: Settings, clock: Clock | None, holder: str) -> Call[ClaimReply]:
    """Build a call that takes over a running turn whose lease is over. The second such call in turn succeeds.

    Raises:
        InvalidTime: the clock returned an invalid time.
    """
    named = {"now_ms": time_argument(clock), "holder": holder, "lease_ms": lease_ms(settings)}
    return script_call(Op.CLAIM_TURN, keys, _claim_reply, named)


def _claim_reply(reply: Any) -> ClaimReply:
    outcome, left_ms, turn = reply
    return ClaimReply(outcome.decode(), left_ms, decode_turn(turn))


class TurnRead(NamedTuple):
    """The running or last turn of a session, and the bytes of its log from the asked offset on."""

    turn: TurnField | None
    stop: str | None
    """The reason of a stop that waits."""
    epoch: str
    """The session's epoch; "" means that there is no session."""
    log: bytes
    total_seqs: int
    """The session's last seq."""


def read_turn(keys: SessionKeys, offset: int) -> Call[TurnRead]:
    """Build a call that reads the running or last turn, and its log from `offset` on.

    Decoding raises:
        CorruptSession: the counters cannot be read.
        OwnerMismatch: the session has another owner than the keys name, or none.
    """

    def decode(fields: Sequence[bytes | None], log: bytes) -> TurnRead:
        turn, stop, epoch, last_seq = _state_of(keys, fields)
        return TurnRead(turn, stop, epoch, log, last_seq)

    reads = (("HMGET", keys.state, *_STATE_FIELDS), ("GETRANGE", keys.live, offset, -1))
    return Call(keys.session_id, reads, decode, op=Op.READ_TURN)


class LookUp(NamedTuple):
    """The running or last turn of a session, and the record of the turn that was asked for."""

    turn: TurnField | None
    record: TurnRecord | None
    """None means that no ended turn has this name."""
    epoch: str
    """The session's epoch; "" means that there is no session."""
    last_seq: int


def look_up_turn(keys: SessionKeys, name: bytes) -> Call[LookUp]:
    """Build a call that finds the turn with this name.

    Decoding raises:
        CorruptSession: the counters cannot be read.
        OwnerMismatch: the session has another owner than the keys name, or none.
    """

    def decode(fields: Sequence[bytes | None], turned: bytes | None) -> LookUp:
        turn, _, epoch, last_seq = _state_of(keys, fields)
        return LookUp(turn, find_record(turned, epoch, name), epoch, last_seq)

    reads = (("HMGET", keys.state, *_STATE_FIELDS), ("GET", keys.turned))
    return Call(keys.session_id, reads, decode, op=Op.LOOK_UP_TURN)


def _state_of(keys: SessionKeys, fields: Sequence[bytes | None]) -> tuple[TurnField | None, str | None, str, int]:
    """Return the turn, the reason of a stop, the epoch and the last seq."""
    counters, epoch, owner, turn, stop = fields
    check_same_owner(keys, owner, counters)
    if counters is None:
        return None, None, "", 0
    with replies.decoding(keys.session_id, epoch):
        last_seq = layout.bounds(counters)[1]
    reason = None if stop is None else stop.decode("utf-8", "replace")
    return decode_turn(turn), reason, (epoch or b"").decode("utf-8", "replace"), last_seq


def due_turns(shards: Sequence[ShardKeys], now_ms: int, limit: int = 100) -> Call[list[str]]:
    """Build a call that reads sessions whose turn's lease is over, at most `limit` per shard."""
    commands = tuple(("ZRANGEBYSCORE", shard.turns, "-inf", now_ms, "LIMIT", 0, limit) for shard in shards)

    def decode(*answers: Any) -> list[str]:
        return [name_of(session) for answer in answers for session in answer]

    return independent(commands, decode, Op.DUE_TURNS, absent=())
