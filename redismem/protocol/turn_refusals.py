"""The errors of turns, with their texts, and the refusals of scripts that they decode. No I/O."""

from __future__ import annotations

from redismem.errors import RedismemError, TurnBusy, TurnKnown, TurnLost, TurnStopped
from redismem.protocol.layout import TURN_HAS_REPLY, turn_outcome


def busy(session_id: str | None, generation: str, left_ms: int) -> TurnBusy:
    """Return the error of a turn that cannot begin, because another one runs."""
    text = f"another turn of the session runs; {left_ms} ms are left of its lease, which a living turn extends"
    return TurnBusy(text, session_id, generation, left_ms)


def full(session_id: str | None, generation: str, left_ms: int, waiting_count: int) -> TurnBusy:
    """Return the error of a turn that cannot even wait."""
    text = f"another turn of the session runs, and {waiting_count} wait for it, the limit max_waiting_turns"
    return TurnBusy(text, session_id, generation, left_ms, may_wait=False)


def nested(session_id: str | None, generation: str) -> TurnBusy:
    """Return the error of a turn that would begin inside a turn of the same session."""
    text = "a turn inside a turn of the same session would wait for itself"
    return TurnBusy(text, session_id, generation, may_wait=False)


def running(session_id: str | None, generation: str, first_seq: int) -> TurnKnown:
    """Return the error of a turn whose id is that of the running turn."""
    text = "a turn with this id was begun before: it runs"
    return TurnKnown(text, session_id, "running", generation=generation, first_seq=first_seq)


def ended(session_id: str | None, outcome: str, first_seq: int, last_seq: int, reply_seq: int) -> TurnKnown:
    """Return the error of a turn whose id is that of an ended turn. `reply_seq` is 0 if it has no reply."""
    text = f"a turn with this id was begun before: it has ended, {outcome}"
    return TurnKnown(
        text, session_id, "ended", outcome=outcome, first_seq=first_seq, last_seq=last_seq, reply_seq=reply_seq
    )


def lost(session_id: str | None) -> TurnLost:
    """Return the error of a turn that another process has taken over, or whose session is gone."""
    text = "the turn is lost: its lease ended and another process took over, or the session was cleared"
    return TurnLost(text, session_id)


def stopped(session_id: str | None, reason: str) -> TurnStopped:
    """Return the error that ends the loop of a blocking caller."""
    return TurnStopped(f"the turn was stopped: {reason}", session_id, reason)


def decode_refusal(detail: str, session_id: str | None) -> RedismemError:
    """Decode a refusal with the word TURN: `running`, `ended`, `busy`, `full` or `lost`, and their values."""
    match detail.split(" "):
        case "running", generation, first_seq:
            return running(session_id, generation, int(first_seq))
        case "ended", first, last, flags, _:
            outcome, reply_seq = turn_outcome(int(flags)), int(last) if int(flags) & TURN_HAS_REPLY else 0
            return ended(session_id, outcome, int(first), int(last), reply_seq)
        case "busy", generation, left_ms, _:
            return busy(session_id, generation.strip("-"), int(left_ms))
        case "full", generation, left_ms, places:
            return full(session_id, generation.strip("-"), int(left_ms), int(places))
    return lost(session_id)
