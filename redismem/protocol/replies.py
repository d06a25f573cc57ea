"""What replies mean: Redis' answers into receipts, contexts and errors. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from redismem.context import Context, Receipt, State, Summary
from redismem.errors import (
    Conflict,
    CorruptSession,
    InvalidMessage,
    InvalidTime,
    RedismemError,
    ScriptFailed,
    SessionExists,
    TooLarge,
    UnsupportedFormat,
)
from redismem.info import SessionInfo
from redismem.messages.decoding import StoredMessages
from redismem.messages.values import Undecodable, decode_value
from redismem.protocol import layout
from redismem.protocol.layout import PARAM, PINNED, SUMMARY, bounds, counters, uncounted
from redismem.protocol.permissions import not_allowed
from redismem.protocol.server_errors import LASTING_WORDS, TRANSIENT_WORDS, ServerError

_Meaning = Callable[[str, str | None], RedismemError]


def refusal(error: ServerError, session_id: str | None) -> RedismemError | None:
    """The error that a script's own word stands for; None for a word of the server."""
    meant, detail = _OWN_WORDS.get(error.word), error.text.partition(" ")[2]
    refused = not_allowed(error, session_id) if meant is None else meant(detail, session_id)
    if refused is not None or error.word in TRANSIENT_WORDS or error.word in LASTING_WORDS:
        return refused
    if "script:" in error.text or "user_script" in error.text:
        return ScriptFailed(f"a script stopped half way, which is a defect: {error.text[:300]}", session_id)
    return None


def _pinned_too_many(count: str, size: str = "", count_limit: str = "", bytes_limit: str = "") -> str:
    over = f"over max_pinned_count, {count_limit}, or max_pinned_bytes, {bytes_limit}"
    return (
        f"{count} messages of {size} bytes would be pinned, {over}: append a system prompt once, unpin or replace some"
    )


def _lost_race(word: str, item_id: str, version: str = "") -> Conflict:
    """The error of a change of a project that came too late."""
    if word == "NAME":
        return Conflict(f"{item_id} has this name")
    found = "what depends on it has changed" if item_id == "-" else f"{item_id} is at version {version} now"
    return Conflict(f"another writer was faster: {found if version != '0' else f'{item_id} is gone'}")


def _not_as_it_should_be(word: str) -> _Meaning:
    return lambda _, session_id: CorruptSession(f"a key is not what it should be ({word})", session_id)


_OWN_WORDS: dict[str, _Meaning] = {
    "CONFLICT": lambda detail, session_id: Conflict(
        f"another writer was faster, its last seq is {detail}", session_id, int(detail)
    ),
    "VERSION": lambda detail, _: _lost_race("VERSION", *detail.split(" ")),
    "NAME": lambda detail, _: _lost_race("NAME", *detail.split(" ")),
    "FULL": lambda detail, session_id: TooLarge(
        f"the window holds {detail} messages and may not grow: summarise, prune or clear", session_id
    ),
    "PINS": lambda detail, session_id: TooLarge(_pinned_too_many(*detail.split(" ")), session_id),
    "PARAMS": lambda detail, session_id: TooLarge(
        f"the session would hold {detail} params, over max_params_count", session_id
    ),
    "PAST": lambda detail, session_id: InvalidTime(
        f"by the server's clock a session active at {detail} ms is past its timeout", session_id
    ),
    "LIVE": lambda _, session_id: SessionExists("it lives, so none of its name can be restored", session_id),
    **{word: _not_as_it_should_be(word) for word in ("CORRUPT", "WRONGTYPE", "CHANGED")},
    "LAYOUT": layout.unsupported,
}
"""The error that each word of a script stands for, made of what follows it and the session's id."""


def receipt(session_id: str, sent_count: int, reply: Any, *, any_kind: bool = False) -> Receipt:
    """What the append script answered; to a change of the state, an append of none.

    Raises CorruptSession if the window is not as long as the state says; unless `any_kind`, InvalidMessage if the id
    was given to an append and a change.
    """
    if type(reply) is bytes:  # of messages that were new, to a session that was there
        first_seq, total = bounds(reply)
        window_count = total - first_seq + 1 if b"+" not in reply else counters(reply).window_count
        return Receipt(total - sent_count + 1, total, total, False, False, window_count)
    try:
        window_first_seq, total = bounds(reply[0])
        count = total - window_first_seq + 1 - uncounted(reply[0])
    except Undecodable as cause:
        raise corrupt(session_id, cause, _epoch(reply)) from None
    if len(reply) == 3:
        expected = total - window_first_seq + 1
        found = Undecodable(f"the window holds {reply[2]} messages, expected {expected}")
        raise corrupt(session_id, found, _epoch(reply))
    _, first_seq, last_seq, created, duplicate = reply
    if duplicate and not any_kind and (sent_count == 0) != (last_seq < first_seq):
        made, sent = ("a change of the state", "an append") if sent_count else ("an append", "a change of the state")
        raise InvalidMessage(f"the id is the one of {made} that was made before, so {sent} needs another", session_id)
    return Receipt(first_seq, last_seq, last_seq, created == 1, duplicate == 1, -1 if duplicate else count)


def _epoch(reply: Sequence[Any]) -> str:
    """The epoch in an answer that nothing was written; "" if it is another answer."""
    return (reply[1] or b"").decode("utf-8", "replace") if len(reply) == 3 else ""


def fields(reply: Any) -> dict[bytes, bytes]:
    """The fields that HGETALL answered: a mapping with RESP3, a flat list with RESP2."""
    if isinstance(reply, dict):
        return reply
    return {reply[at]: reply[at + 1] for at in range(0, len(reply), 2)}


def context(
    session_id: str,
    recent_limit: int,
    stored: Mapping[bytes, bytes],
    elements: Sequence[bytes],
    limit: int | None = None,
) -> Context:
    """A context made of the state and the newest `limit` elements of the window.

    Raises CorruptSession, UnsupportedFormat.
    """
    if not stored and not elements:
        return Context(session_id, [], [], State(), 0, 1, 0, "", recent_limit)
    epoch = ""
    try:
        epoch = stored[layout.EPOCH].decode()
        first_seq, total = bounds(stored[layout.COUNTERS])
        window_count = total - first_seq + 1
        expected = window_count if limit is None else min(limit, window_count)
        if len(elements) != expected:
            raise Undecodable(f"the window gave {len(elements)} messages, expected {expected}")
        messages = StoredMessages(elements, total - len(elements) + 1, epoch)
        bare = layout.BARE.issuperset(stored)
        found = Context(
            session_id,
            [] if bare else summaries(stored),
            messages,
            State() if bare else state(stored),
            total,
            first_seq,
            total,
            epoch,
            recent_limit,
            "" if bare else stored.get(layout.COMMITTED, b"").decode(),
        )
        if limit is not None and limit < window_count:
            found.is_part = True
        if b"+" in stored[layout.COUNTERS]:
            found.is_mixed = True
        return found if bare else _with_pinned(found, stored)
    except UnsupportedFormat as newer:
        raise UnsupportedFormat(str(newer), session_id) from None
    except (Undecodable, KeyError, ValueError, TypeError) as cause:
        raise corrupt(session_id, cause, epoch) from None


def appended(
    session_id: str, sent_count: int, recent_limit: int, reply: Any, stored: Any, elements: Sequence[bytes]
) -> Context:
    """The context behind an append of so many messages, with its receipt. Raises as context() and receipt() do."""
    found = context(session_id, recent_limit, stored if type(stored) is dict else fields(stored), elements)
    if type(reply) is bytes:
        # In one transaction, these are the counters that the context was made of.
        total, window_count = found.total_messages, len(elements)
        if found.is_mixed:
            window_count -= uncounted(reply)
        found.receipt = Receipt(total - sent_count + 1, total, total, False, False, window_count)
    else:
        found.receipt = receipt(session_id, sent_count, reply)
    return found


def corrupt(session_id: str, cause: Exception, epoch: str) -> CorruptSession:
    why = str(cause) if isinstance(cause, Undecodable) else "the state lacks a field, or holds a foreign one"
    return CorruptSession(why, session_id, epoch)


def state(stored: Mapping[bytes, bytes]) -> State:
    """Raises Undecodable."""
    params = {
        field[len(PARAM) :].decode("utf-8", "surrogatepass"): decode_value(value)
        for field, value in stored.items()
        if field.startswith(PARAM)
    }

    def value(field: bytes) -> Any:
        packed = stored.get(field)
        return None if packed is None else decode_value(packed)

    return State(params, *map(value, (layout.WAITING, layout.LAST_INTENT, layout.LAST_RESULT, layout.PLAN)))


def _with_pinned(found: Context, stored: Mapping[bytes, bytes]) -> Context:
    """The context with the pinned messages that left the window. Raises Undecodable, UnsupportedFormat, ValueError."""
    if layout.EDITED in stored:
        found.window_version = stored[layout.EDITED].decode()
    if layout.PINS in stored:
        moved = sorted((layout.pinned_seqs(field), stored[field]) for field in stored if field.startswith(PINNED))
        if moved:
            seqs = [seq for group, _ in moved for seq in group]
            found._pinned = StoredMessages([joined for _, joined in moved], 0, found.epoch, seqs)
    return found


def summaries(stored: Mapping[bytes, bytes]) -> list[Summary]:
    """Oldest first. Raises Undecodable, ValueError, TypeError."""
    found = [Summary.decode(value) for field, value in stored.items() if field.startswith(SUMMARY)]
    return sorted(found, key=lambda summary: summary.first_seq)


def info(session_id: str, stored: Mapping[bytes, bytes]) -> SessionInfo | None:
    """The numbers of a session; None if there is none. Raises CorruptSession, UnsupportedFormat."""
    if not stored:
        return None
    try:
        noted = counters(stored[layout.COUNTERS])
        known, failed = state(stored), layout.failure(stored.get(layout.FAILURE))
        return SessionInfo(
            session_id=session_id,
            epoch=stored[layout.EPOCH].decode(),
            total_messages=noted.message_count,
            first_seq=noted.first_seq,
            window_count=noted.window_count,
            window_tokens=noted.tokens,
            summaries_count=sum(field.startswith(SUMMARY) for field in stored),
            pinned_count=layout.pins(stored[layout.PINS])[0] if layout.PINS in stored else 0,
            params_keys=tuple(sorted(known.params)),
            waiting_for_param=known.waiting_for_param,
            active_ms=noted.active_ms,
            expires_ms=noted.expires_ms,
            queued=stored[layout.QUEUED].decode() if layout.QUEUED in stored else None,
            attempts=int(stored.get(layout.ATTEMPTS, b"0")),
            failure=None if failed is None else failed.reason,
            failing_since_ms=None if failed is None else failed.since_ms,
            failed_ms=None if failed is None else failed.last_ms,
        )
    except UnsupportedFormat as newer:
        raise UnsupportedFormat(str(newer), session_id) from None
    except (Undecodable, KeyError, ValueError) as cause:
        raise corrupt(session_id, cause, stored.get(layout.EPOCH, b"").decode("utf-8", "replace")) from None


def telemetry(known: SessionInfo | None) -> dict[str, Any]:
    """Numbers and names of a session, fit for a log."""
    return {
        "history_count": 0 if known is None else known.window_count,
        "params_keys": [] if known is None else list(known.params_keys),
        "waiting_for_param": None if known is None else known.waiting_for_param,
    }
