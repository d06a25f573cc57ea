"""Decode replies of Redis into receipts, contexts and errors. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from redismem.context.context import Context
from redismem.context.info import SessionInfo
from redismem.context.results import Receipt, State, Summary
from redismem.errors import (
    Conflict,
    CorruptSession,
    IdReused,
    InvalidTime,
    RedismemError,
    ScriptFailed,
    SessionExists,
    TooLarge,
    UnsupportedFormat,
)
from redismem.messages.decoding import StoredMessages
from redismem.messages.gaps import gap_count, last_seqs
from redismem.messages.values import Undecodable, decode_value
from redismem.protocol import layout
from redismem.protocol.keys import SessionKeys
from redismem.protocol.layout import PARAM, PINNED, SUMMARY, bounds, counters, uncounted_count
from redismem.protocol.owners import check_same_owner, decode_owner, owner_mismatch
from redismem.protocol.permissions import decode_refused_command
from redismem.protocol.policy import decode_policy
from redismem.protocol.ring import CALL_BYTES, NAME_BYTES, newest_append
from redismem.protocol.server_errors import LASTING_WORDS, TRANSIENT_WORDS, ServerError
from redismem.protocol.turn_refusals import decode_refusal
from redismem.settings.names import name_setting, over_limit

_Meaning = Callable[[str, str | None], RedismemError]


def refusal(error: ServerError, session_id: str | None) -> RedismemError | None:
    """Decode a refusal by a script, of a command, or the failure of a script. Other errors of the server give None."""
    meaning, detail = _OWN_WORDS.get(error.word), error.text.partition(" ")[2]
    refused = decode_refused_command(error, session_id) if meaning is None else meaning(detail, session_id)
    if refused is not None or error.word in TRANSIENT_WORDS or error.word in LASTING_WORDS:
        return refused
    if "script:" in error.text or "user_script" in error.text:
        return ScriptFailed(f"a script stopped half way, which is a defect: {error.text[:300]}", session_id)
    return None


def _too_many_pins(count: str, size: str = "", count_limit: str = "", bytes_limit: str = "") -> str:
    over = f"{over_limit('max_pinned_count', count_limit)}, or {over_limit('max_pinned_bytes', bytes_limit)}"
    return (
        f"{count} messages of {size} bytes would be pinned, {over}: append a system prompt once, unpin or replace some"
    )


def cleared_conflict(session_id: str | None, last_seq: int) -> Conflict:
    """Return the error of a caller that has seen an earlier life of the session."""
    text = "the session that was read is gone: it was cleared, or has expired"
    return Conflict(text, session_id, last_seq, cleared=True)


def _seq_conflict(session_id: str | None, last_seq: str, cleared: str = "") -> Conflict:
    if cleared:
        return cleared_conflict(session_id, int(last_seq))
    return Conflict(f"another writer was faster, its last seq is {last_seq}", session_id, int(last_seq))


def _lost_race(word: str, item_id: str, version: str = "") -> Conflict:
    """Create the error of a project change that another writer has overtaken."""
    if word == "NAME":
        return Conflict(f"{item_id} has this name")
    cause = "what depends on it has changed" if item_id == "-" else f"{item_id} is at version {version} now"
    return Conflict(f"another writer was faster: {cause if version != '0' else f'{item_id} is gone'}")


def _corrupt_key(word: str) -> _Meaning:
    return lambda _, session_id: CorruptSession(f"a key has unexpected contents ({word})", session_id)


_OWN_WORDS: dict[str, _Meaning] = {
    "CONFLICT": lambda detail, session_id: _seq_conflict(session_id, *detail.split(" ")),
    "VERSION": lambda detail, _: _lost_race("VERSION", *detail.split(" ")),
    "NAME": lambda detail, _: _lost_race("NAME", *detail.split(" ")),
    "FULL": lambda detail, session_id: TooLarge(
        f"the window holds {detail} messages and may not grow: summarise, prune or clear, or raise "
        f"{name_setting('max_window_count')}",
        session_id,
    ),
    "PINS": lambda detail, session_id: TooLarge(_too_many_pins(*detail.split(" ")), session_id),
    "PARAMS": lambda detail, session_id: TooLarge(
        f"the session would hold {detail} params, over the limit {name_setting('max_params_count')}", session_id
    ),
    "PAST": lambda detail, session_id: InvalidTime(
        f"by the server's clock a session active at {detail} ms is past its timeout", session_id
    ),
    "OWNER": lambda _, session_id: owner_mismatch(session_id),
    "LIVE": lambda _, session_id: SessionExists(
        f"a {'session' if session_id else 'record'} with this id exists, so none can be restored in its place",
        session_id,
    ),
    **{word: _corrupt_key(word) for word in ("CORRUPT", "WRONGTYPE")},
    "LAYOUT": layout.unsupported_layout,
    "FORMAT": lambda version, _: UnsupportedFormat(
        f"the record has format {version}, which this release does not know"
    ),
    "OVERTAKEN": lambda _, session_id: ScriptFailed(
        "a call that is sent once was refused as overtaken by a later one, which is a defect", session_id
    ),
    "TURN": decode_refusal,
    "WIDE": lambda limit, _: TooLarge(f"a member of the record has over {limit} names or relatives, a fixed limit"),
}
"""For each word of a script's refusal, a function that makes the error from the detail and the session id."""


HEAVY = b"!"
"""The end of the reply to an append after which bodies should leave the window."""


def receipt(session_id: str, sent_count: int, reply: Any, *, token: bytes = b"", any_kind: bool = False) -> Receipt:
    """Decode the reply of append.lua to the append with this token. A change of the state is one without messages.

    Raises:
        CorruptSession: the window has another length than the counters say.
        IdReused: the id was used for an append and a state change. With `any_kind`, this is not raised.
    """
    if type(reply) is bytes:  # new messages of an existing session
        packed, _, life = reply.partition(b"@")
        first_seq, total = bounds(packed)
        window_count = total - first_seq + 1 if b"+" not in packed else counters(packed).window_count
        epoch = _text(life.rstrip(HEAVY))
        seen = Receipt(total - sent_count + 1, total, total, False, False, window_count, epoch=epoch)
        seen.newest_append = token[:CALL_BYTES]
        return seen
    try:
        window_first_seq, total = bounds(reply[0])
        count = expected = total - window_first_seq + 1
        if b"+" in reply[0]:
            numbers = counters(reply[0])
            count, expected = numbers.window_count, numbers.element_count
    except Undecodable as unreadable:
        raise corrupt_session(session_id, unreadable, _epoch(reply)) from None
    if len(reply) == 3:
        cause = Undecodable(f"the window holds {reply[2]} messages, expected {expected}")
        raise corrupt_session(session_id, cause, _epoch(reply))
    _, first_seq, last_seq, created, duplicate, epoch = reply
    if duplicate and not any_kind and (sent_count == 0) != (last_seq < first_seq):
        made, sent = ("a change of the state", "an append") if sent_count else ("an append", "a change of the state")
        raise IdReused(f"the id was already used for {made}, so {sent} needs another", session_id)
    seen = Receipt(first_seq, last_seq, last_seq, created=created == 1, duplicate=duplicate == 1, epoch=_text(epoch))
    seen.window_count = -1 if duplicate else count
    # Of a duplicate, the bytes of the call that made it are unknown.
    seen.newest_append = token[: NAME_BYTES if duplicate else CALL_BYTES]
    return seen


def _epoch(reply: Sequence[Any]) -> str:
    """Return the epoch in a reply that reports a wrong window length; "" for other replies."""
    return _text(reply[1]) if len(reply) == 3 else ""


def _text(epoch: bytes | None) -> str:
    return (epoch or b"").decode("utf-8", "replace")


def fields(reply: Any) -> dict[bytes, bytes]:
    """Decode the reply of HGETALL: a mapping in RESP3, a flat list in RESP2."""
    if isinstance(reply, dict):
        return reply
    return {reply[at]: reply[at + 1] for at in range(0, len(reply), 2)}


def own_fields(keys: SessionKeys, reply: Any) -> dict[bytes, bytes]:
    """Decode the reply of HGETALL for a state.

    Raises:
        OwnerMismatch: the session has another owner than the keys name.
    """
    stored = fields(reply)
    if keys.owner is not None:
        check_same_owner(keys, stored.get(layout.OWNER), stored.get(layout.COUNTERS))
    return stored


def context(
    session_id: str,
    recent_limit: int,
    stored: Mapping[bytes, bytes],
    elements: Sequence[bytes],
    limit: int | None = None,
    newest: bytes | None = None,
) -> Context:
    """Decode a context from the state and the newest `limit` elements of the window; `newest` is an append just made.

    Raises:
        CorruptSession: the state cannot be read, or the window has another length than the counters say.
        UnsupportedFormat: another release wrote the session.
    """
    if not stored and not elements:
        return Context(session_id, [], [], State(), 0, 1, 0, "", recent_limit)
    epoch = ""
    try:
        epoch = stored[layout.EPOCH].decode()
        first_seq, total = bounds(packed := stored[layout.COUNTERS])
        has_hidden = b"-" in packed
        window_count = counters(packed).element_count if has_hidden else total - first_seq + 1
        if len(elements) != (expected := window_count if limit is None else min(limit, window_count)):
            raise Undecodable(f"the read returned {len(elements)} messages, expected {expected}")
        seqs = _hidden_seqs(elements, first_seq, total, limit) if has_hidden else None
        bare, zone = layout.BARE.issuperset(stored), layout.decode_zone(stored.get(layout.ZONE))
        decoded = Context(
            session_id,
            [] if bare else summaries(stored),
            StoredMessages(elements, total - len(elements) + 1, epoch, seqs, zone),
            State() if bare else state(stored),
            total if bare else layout.total_messages(stored, total),
            first_seq,
            total,
            epoch,
            recent_limit,
            "" if bare else stored.get(layout.COMMITTED, b"").decode(),
        )
        decoded.newest_append = newest_append(stored) if newest is None else newest
        if limit is not None or zone or b"+" in packed:
            decoded.is_part, decoded.zone, decoded.is_mixed = expected < window_count, zone, b"+" in packed
        return decoded if bare else _add_pinned(decoded, stored)
    except UnsupportedFormat as newer:
        raise UnsupportedFormat(str(newer), session_id) from None
    except (Undecodable, KeyError, ValueError, TypeError) as cause:
        raise corrupt_session(session_id, cause, epoch) from None


def _hidden_seqs(elements: Sequence[bytes], first_seq: int, total: int, limit: int | None) -> list[int]:
    """Return the last seq of each element of a window with gaps of several seqs.

    Raises:
        Undecodable: the gaps stand for other seqs than the counters say.
    """
    seqs = last_seqs(elements, total)
    begin = seqs[0] - (gap_count(elements[0]) or 1) + 1 if elements else total + 1
    if begin < first_seq or (limit is None and begin != first_seq):
        raise Undecodable(f"the window begins at {begin}, expected {first_seq}")
    return seqs


def appended_context(
    session_id: str,
    sent_count: int,
    recent_limit: int,
    token: bytes,
    reply: Any,
    stored: Any,
    elements: Sequence[bytes],
) -> Context:
    """Decode the context and receipt of `append_and_read`. Raises the errors of `context()` and `receipt()`."""
    is_new = type(reply) is bytes
    newest = token[:CALL_BYTES] if is_new else None
    stored = stored if type(stored) is dict else fields(stored)
    decoded = context(session_id, recent_limit, stored, elements, newest=newest)
    if is_new:
        # The reads are in the same transaction, so the counters are those of the context.
        total, window_count = decoded.last_seq, len(elements)
        if decoded.is_mixed:
            window_count -= uncounted_count(reply.partition(b"@")[0])
        epoch = decoded.epoch
        decoded.receipt = Receipt(total - sent_count + 1, total, total, False, False, window_count, epoch=epoch)
        decoded.receipt.newest_append = decoded.newest_append
    else:
        decoded.receipt = receipt(session_id, sent_count, reply, token=token)
    return decoded


@contextmanager
def decoding(session_id: str, epoch: bytes | str | None) -> Iterator[None]:
    """Decode the state of a session in the block.

    Raises:
        CorruptSession: the state cannot be read.
        UnsupportedFormat: another release wrote the session.
    """
    try:
        yield
    except UnsupportedFormat as newer:
        raise UnsupportedFormat(str(newer), session_id) from None
    except (Undecodable, KeyError, ValueError) as cause:
        named = epoch or ""
        text = named.decode("utf-8", "replace") if isinstance(named, bytes) else named
        raise corrupt_session(session_id, cause, text) from None


def corrupt_session(session_id: str, cause: Exception, epoch: str) -> CorruptSession:
    """Create the error of a session that cannot be decoded."""
    why = str(cause) if isinstance(cause, Undecodable) else "the state lacks a field, or holds a foreign one"
    return CorruptSession(why, session_id, epoch)


def state(stored: Mapping[bytes, bytes]) -> State:
    """Decode params and the other values of a state.

    Raises:
        Undecodable: a value cannot be read.
    """
    params = {
        field[len(PARAM) :].decode("utf-8", "surrogatepass"): decode_value(value)
        for field, value in stored.items()
        if field.startswith(PARAM)
    }

    def value(field: bytes) -> Any:
        packed = stored.get(field)
        return None if packed is None else decode_value(packed)

    fields = (layout.WAITING, layout.LAST_INTENT, layout.LAST_RESULT, layout.PLAN, layout.INSTRUCTION)
    return State(params, *map(value, fields))


def _add_pinned(decoded: Context, stored: Mapping[bytes, bytes]) -> Context:
    """Add the pinned messages that left the window to the context.

    Raises:
        Undecodable, UnsupportedFormat, ValueError: the pinned messages cannot be read.
    """
    if layout.EDITED in stored:
        decoded.window_version = stored[layout.EDITED].decode()
    if layout.PINS in stored:
        moved = sorted((layout.pinned_seqs(field), stored[field]) for field in stored if field.startswith(PINNED))
        if moved:
            seqs = [seq for group, _ in moved for seq in group]
            decoded._pinned = StoredMessages([elements for _, elements in moved], 0, decoded.epoch, seqs, decoded.zone)
    return decoded


def summaries(stored: Mapping[bytes, bytes]) -> list[Summary]:
    """Decode the summaries, oldest first.

    Raises:
        Undecodable, ValueError, TypeError: a summary cannot be read.
    """
    decoded = [Summary.decode(value) for field, value in stored.items() if field.startswith(SUMMARY)]
    return sorted(decoded, key=lambda summary: summary.first_seq)


def info(session_id: str, stored: Mapping[bytes, bytes]) -> SessionInfo | None:
    """Decode the numbers of a session. None means that there is no session.

    Raises:
        CorruptSession: the state cannot be read.
        UnsupportedFormat: another release wrote the session.
    """
    if not stored:
        return None
    with decoding(session_id, stored.get(layout.EPOCH)):
        numbers = counters(stored[layout.COUNTERS])
        values, failure = state(stored), layout.failure(stored.get(layout.FAILURE))
        return SessionInfo(
            session_id=session_id,
            epoch=stored[layout.EPOCH].decode(),
            total_messages=layout.total_messages(stored, numbers.message_count),
            last_seq=numbers.message_count,
            first_seq=numbers.first_seq,
            window_count=numbers.window_count,
            window_tokens=numbers.tokens,
            summaries_count=sum(field.startswith(SUMMARY) for field in stored),
            pinned_count=layout.pins(stored[layout.PINS])[0] if layout.PINS in stored else 0,
            params_keys=tuple(sorted(values.params)),
            waiting_for_param=values.waiting_for_param,
            active_ms=numbers.active_ms,
            expires_ms=numbers.expires_ms,
            policy=decode_policy(numbers.policy, layout.decode_zone(stored.get(layout.ZONE))),
            owner=decode_owner(stored.get(layout.OWNER)),
            title=layout.decode_title(stored.get(layout.TITLE)),
            queued=stored[layout.QUEUED].decode() if layout.QUEUED in stored else None,
            attempts=int(stored.get(layout.ATTEMPTS, b"0")),
            failure=None if failure is None else failure.reason,
            failing_since_ms=None if failure is None else failure.since_ms,
            failed_ms=None if failure is None else failure.last_ms,
            turn=layout.turn_status(stored.get(layout.TURN)),
        )


def telemetry(session: SessionInfo | None) -> dict[str, Any]:
    """Return the numbers and names of a session that may be logged."""
    return {
        "history_count": 0 if session is None else session.window_count,
        "params_keys": [] if session is None else list(session.params_keys),
        "waiting_for_param": None if session is None else session.waiting_for_param,
    }
