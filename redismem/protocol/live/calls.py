"""Calls about turns: begin, append, write, stop, claim, read, find. No I/O.

A turn is fenced by its generation and its holder: a process that another one has replaced writes nothing more. The
lease only decides when another process may take the turn over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from redismem.context.context import Context
from redismem.context.results import Receipt
from redismem.errors import InvalidMessage
from redismem.events import Op
from redismem.messages.coercion import Shape
from redismem.messages.message import Message
from redismem.protocol import layout, replies, scripts, turn_refusals
from redismem.protocol.appends import Append, append_head
from redismem.protocol.call import Call, context_reads, independent, script_call
from redismem.protocol.clock import Clock, time_argument
from redismem.protocol.keys import SessionKeys, ShardKeys
from redismem.protocol.live.turns import (
    TurnField,
    TurnRecord,
    append_name,
    check_reason,
    decode_turn,
    encode_flags,
    end_parts,
    find_record,
    question_id,
    turn_name,
)
from redismem.protocol.namespace.calls import name_of
from redismem.protocol.owners import check_same_owner
from redismem.protocol.ring import NAME_BYTES
from redismem.protocol.session.append import AppendOptions, set_confirm
from redismem.protocol.session.calls import SessionCalls
from redismem.protocol.session.state import StateChanges
from redismem.settings.settings import Settings

_STATE_FIELDS = (layout.COUNTERS, layout.EPOCH, layout.OWNER, layout.TURN)


class Begun(NamedTuple):
    """A turn that has begun."""

    context: Context
    """The session as the model gets it, with the question. Its receipt is that of the question."""
    turn: TurnField
    kept_ms: int
    """The time for which the session lives without activity."""

    @property
    def receipt(self) -> Receipt | None:
        """The receipt of the question."""
        return self.context.receipt


def begin_turn(
    calls: SessionCalls,
    messages: Sequence[Message | Shape],
    options: AppendOptions,
    *,
    turn_id: str,
    holder: str,
    ticket: str | None,
    has_waited: bool = False,
    again: TurnRecord | None,
) -> Call[Begun]:
    """Build a call that begins a turn: it appends the question, starts the lease and the log, and reads the context.

    Args:
        calls: The calls of the session.
        messages: The question.
        options: The options of an append, without `id`.
        turn_id: The caller's id of the turn. The session begins a turn of an id once.
        holder: The process that writes the turn, from `new_holder`. A later call with the same one finds its turn.
        ticket: Names the place of this turn in the line of waiting ones; None means that it does not wait.
        has_waited: True if an earlier call got a place in the line: the question goes with the session.
        again: The record of a turn of this id that failed or was lost without a reply. Its question is the newest
            message of the session: it is not appended again.

    Raises:
        InvalidMessage: a message, the id, `expect` or `confirm` is invalid.
        InvalidState: a param name or value is invalid.
        TooLarge: a message, the batch or a value exceeds its limit.
        InvalidTime: the clock returned an invalid time.

    Decoding raises:
        TurnBusy: another turn runs, or waits before this one.
        TurnKnown: the turn runs, or has ended.
        Conflict: with `again`, the question is not there any more; or the session is not as `expect` says; or it was
            cleared while the turn waited.
        TurnLost: the turn was lost while a full Redis read the context.
        CorruptSession: the session cannot be read.
    """
    if options.get("id"):
        raise InvalidMessage("a turn has one id, that of its question", calls.keys.session_id)
    if not messages and again is None:
        raise InvalidMessage("a turn needs a message", calls.keys.session_id)
    name, settings = turn_name(turn_id).hex(), calls.settings
    seqs = ("-", "-") if again is None else (again.first_seq, again.last_seq)
    begun = _words(
        name, holder, ticket or layout.NONE, lease_ms(settings), settings.max_waiting_turns, *seqs, int(has_waited)
    )
    named: AppendOptions = {**options, "id": question_id(turn_id)}
    made = calls.encode_append(() if again is not None else messages, **named)
    append, keys = _turn_append(calls, made, "begin_turn", made.token[:NAME_BYTES], begun), calls.keys

    def decode(reply: Any, stored: Any, elements: Sequence[bytes]) -> Begun:
        context = calls.appended_context(append, reply, stored, elements)
        fields = replies.fields(stored)
        turn = decode_turn(fields.get(layout.TURN))
        if turn is None or turn.holder != holder:  # the reads were made apart, and later
            raise turn_refusals.lost(keys.session_id)
        numbers = layout.counters(fields[layout.COUNTERS])
        return Begun(context, turn, numbers.expires_ms - numbers.active_ms)

    commands = (append.command(), *context_reads(keys))
    call = Call(keys.session_id, commands, decode, scripts.load("begin_turn"), Op.BEGIN_TURN, append)
    set_confirm(call, options, settings.confirm).has_id = True
    return call


class TurnEnd(NamedTuple):
    """The end of a turn."""

    outcome: str
    """done, stopped, failed or lost."""
    reason: str
    usage: Mapping[str, Any] | None
    has_reply: bool
    """True if the last message of the session is the reply."""


class Appended(NamedTuple):
    """Messages of a turn that are stored."""

    receipt: Receipt
    log_bytes: int
    """The bytes of the log afterwards: as many as before if it had not the bytes before `offset`; 0 if it is gone."""


def append_turn(
    calls: SessionCalls,
    turn: TurnField,
    messages: Sequence[Message | Shape],
    changes: StateChanges,
    *,
    offset: int,
    number: int,
    end: TurnEnd | None,
) -> Call[Appended]:
    """Build a call that appends whole messages of a running turn, and changes state fields.

    With `end`, it ends the turn.

    Args:
        calls: The calls of the session.
        turn: The turn, with its holder.
        messages: The messages; none to change the state or end the turn alone.
        changes: The changes of the state.
        offset: The bytes of the log before the line of these messages.
        number: Counts the appends of the turn, so that a repeated one is recognised, whichever process makes it.
        end: The end of the turn; None means that it goes on.

    Raises:
        InvalidMessage: a message is invalid, or the usage is not JSON.
        InvalidState: a param name or value is invalid.
        TooLarge: a message, the batch or a value exceeds its limit.
        InvalidTime: the clock returned an invalid time.

    Decoding raises:
        TurnLost: the turn has ended, another process has taken it over, or the session was removed.
        CorruptSession: the session cannot be read.
    """
    settings, keys = calls.settings, calls.keys
    times = lease_ms(settings), int(settings.live_keep_s * 1000), int(settings.keep_originals)
    status = (layout.NONE, 0) if end is None else (end.outcome[0], encode_flags(end.outcome, has_reply=end.has_reply))
    fence = _words(turn.generation, turn.holder, offset, *times, *status)
    line = (b"", b"") if end is None else end_parts(end.outcome, end.reason, end.usage)
    name = append_name("append" if end is None else "end", turn.generation, number)
    append = _turn_append(calls, calls.encode_append(messages, **changes), "append_turn", name, fence, *line)

    def decode(reply: Any, log_bytes: int) -> Appended:
        return Appended(calls.receipt(append, reply), log_bytes)

    commands = (append.command(), ("STRLEN", keys.live))
    call = Call(keys.session_id, commands, decode, scripts.load("append_turn"), Op.APPEND_TURN, append)
    call.confirm, call.has_id = settings.confirm, True
    return call


def _turn_append(calls: SessionCalls, append: Append, script: str, name: bytes, *more: bytes | str) -> Append:
    """Return the append as one of a turn: with this name, which may have been made before, and more arguments."""
    head = append_head(scripts.load(script), calls.keys, calls.settings, calls.limits, *more)
    return replace(append, head=head, token=name + append.token[NAME_BYTES:], fresh="0")


def _words(*values: object) -> str:
    return " ".join(map(str, values))


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


def leave_line(keys: SessionKeys, ticket: str) -> Call[TurnField | None]:
    """Build a call that gives up the place of a waiting turn. It returns the turn if it has begun meanwhile."""
    return script_call(Op.LEAVE_LINE, keys, decode_turn, {"ticket": ticket})


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
    log: bytes


def read_turn(keys: SessionKeys, offset: int) -> Call[TurnRead]:
    """Build a call that reads the running or last turn, and its log from `offset` on.

    Decoding raises:
        CorruptSession: the counters cannot be read.
        OwnerMismatch: the session has another owner than the keys name, or none.
    """

    def decode(fields: Sequence[bytes | None], log: bytes) -> TurnRead:
        return TurnRead(_state_of(keys, fields)[0], log)

    reads = (("HMGET", keys.state, *_STATE_FIELDS), ("GETRANGE", keys.live, offset, -1))
    return Call(keys.session_id, reads, decode, op=Op.READ_TURN)


class LookUp(NamedTuple):
    """The running or last turn of a session, and the record of the turn that was asked for."""

    turn: TurnField | None
    record: TurnRecord | None
    """None means that no ended turn has this name."""


def look_up_turn(keys: SessionKeys, name: bytes) -> Call[LookUp]:
    """Build a call that finds the turn with this name.

    Decoding raises:
        CorruptSession: the counters cannot be read.
        OwnerMismatch: the session has another owner than the keys name, or none.
    """

    def decode(fields: Sequence[bytes | None], turned: bytes | None) -> LookUp:
        turn, epoch = _state_of(keys, fields)
        return LookUp(turn, find_record(turned, epoch, name))

    reads = (("HMGET", keys.state, *_STATE_FIELDS), ("GET", keys.turned))
    return Call(keys.session_id, reads, decode, op=Op.LOOK_UP_TURN)


def _state_of(keys: SessionKeys, fields: Sequence[bytes | None]) -> tuple[TurnField | None, str]:
    """Return the turn and the epoch; "" means that there is no session."""
    counters, epoch, owner, turn = fields
    check_same_owner(keys, owner, counters)
    if counters is None:
        return None, ""
    with replies.decoding(keys.session_id, epoch):
        layout.bounds(counters)  # refuses what cannot be read, and another layout
    return decode_turn(turn), (epoch or b"").decode("utf-8", "replace")


def due_turns(shards: Sequence[ShardKeys], now_ms: int, limit: int = 100) -> Call[list[str]]:
    """Build a call that reads sessions whose turn's lease is over, at most `limit` per shard."""
    commands = tuple(("ZRANGEBYSCORE", shard.turns, "-inf", now_ms, "LIMIT", 0, limit) for shard in shards)

    def decode(*answers: Any) -> list[str]:
        return [name_of(session) for answer in answers for session in answer]

    return independent(commands, decode, Op.DUE_TURNS, absent=())
