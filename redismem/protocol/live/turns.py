"""The stored forms of turns: the field `turn` of a state, the records of ended turns, lines of the log. No I/O.

The field `turn` names the running or last turn. The key `turned` holds 16 hexadecimal digits of the epoch, then a
record of 16 bytes for each ended turn. The log of a turn has one JSON object per line.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from redismem.errors import InvalidMessage
from redismem.protocol.layout import NUMBER, TURN_HAS_REPLY, TURN_OUTCOMES, TURN_STATUSES, turn_outcome

_ID_BYTES = 256
_NAME_BYTES = 7
_FIELD = re.compile(rb"([rdsfl]) (%b-[0-9a-f]{1,16}) ([0-9a-f]{1,16}) ([0-9a-f]{14}) (%b)" % (NUMBER, NUMBER))
_HEADER_BYTES = 16
_RECORD_BYTES = 16
_LAST_SEQ_AT, _FLAGS_AT = 12, 15
_REASON = re.compile("[ -~]{1,40}")


@dataclass(frozen=True, slots=True)
class TurnField:
    """The decoded field `turn` of a state: the running turn, or the last one."""

    status: str
    """`running`, or the outcome: done, stopped, failed or lost."""
    generation: str
    """A number from `fences` and the first holder; no other turn has the same."""
    holder: str
    """The process that may write the turn: eight hexadecimal digits."""
    name: str
    """The hash of the turn's id, in hexadecimal digits."""
    first_seq: int
    """The seq of the first message of the turn."""

    @property
    def is_running(self) -> bool:
        """True if the turn has not ended."""
        return self.status == "running"


def decode_turn(field: bytes | None) -> TurnField | None:
    """Decode the field `turn`; None means that it is missing or unreadable, which counts as no turn."""
    match = _FIELD.fullmatch(field or b"")
    if match is None:
        return None
    status, generation, holder, name, first_seq = (part.decode() for part in match.groups())
    return TurnField(TURN_STATUSES[status], generation, holder, name, int(first_seq))


def turn_name(id: object) -> bytes:
    """Return the seven bytes that name a turn: a hash of its id.

    Raises:
        InvalidMessage: the id is not a string of 1 to 256 bytes.
    """
    if not isinstance(id, str) or not id:
        raise InvalidMessage("the id of a turn must be a non-empty string")
    encoded = id.encode("utf-8", "surrogatepass")
    if len(encoded) > _ID_BYTES:
        raise InvalidMessage(f"the id of a turn has at most {_ID_BYTES} bytes, this one has {len(encoded)}")
    return hashlib.blake2b(encoded, digest_size=_NAME_BYTES, person=b"turn").digest()


def append_name(*parts: object) -> bytes:
    """Return the seven bytes that name an append of a turn. They are equal in each process that repeats the append."""
    text = " ".join(map(str, parts)).encode()
    return hashlib.blake2b(text, digest_size=_NAME_BYTES, person=b"turn append").digest()


def question_id(turn_id: str) -> str:
    """Return the append id of a turn's question. The fallback uses it too: so a replay knows a call that came through.

    Raises:
        InvalidMessage: the id is not a string of 1 to 256 bytes.
    """
    return f"turn:{turn_name(turn_id).hex()}"


def new_holder() -> str:
    """Return eight random hexadecimal digits, which identify the holder of a turn."""
    return os.urandom(4).hex()


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """An ended turn: the seqs from its question to its last message, and its outcome."""

    first_seq: int
    last_seq: int
    outcome: str
    """done, stopped, failed or lost."""
    has_reply: bool
    """True if the last message is the reply."""

    @property
    def reply_seq(self) -> int:
        """The seq of the reply; 0 if there is none."""
        return self.last_seq if self.has_reply else 0


def find_record(turned: bytes | None, epoch: str, name: bytes) -> TurnRecord | None:
    """Return the newest record of the turn with this name; None if there is none in this epoch."""
    if not turned or turned[:_HEADER_BYTES] != epoch.partition("-")[2].encode():
        return None
    at = turned.rfind(name)
    while at >= _HEADER_BYTES and (at - _HEADER_BYTES) % _RECORD_BYTES:
        at = turned.rfind(name, 0, at + len(name) - 1)
    record = turned[at : at + _RECORD_BYTES]
    if at < _HEADER_BYTES or len(record) < _RECORD_BYTES:
        return None
    first_seq = int.from_bytes(record[_NAME_BYTES:_LAST_SEQ_AT])
    last_seq = first_seq + int.from_bytes(record[_LAST_SEQ_AT:_FLAGS_AT])
    flags = record[_FLAGS_AT]
    return TurnRecord(first_seq, last_seq, turn_outcome(flags), bool(flags & TURN_HAS_REPLY))


def encode_flags(outcome: str, *, has_reply: bool) -> int:
    """Encode the flags of a record. Raises ValueError if the outcome is unknown."""
    return TURN_OUTCOMES.index(outcome, 1) | (TURN_HAS_REPLY if has_reply else 0)


def message_line(first_seq: int, last_seq: int) -> bytes:
    """Return the line of stored messages. The scripts write the same bytes."""
    return b'{"type":"message","first_seq":%d,"last_seq":%d}\n' % (first_seq, last_seq)


def end_line(outcome: str, reason: str, seq: int | None, usage: Mapping[str, Any] | None) -> bytes:
    """Return the last line of a log. `seq` is that of the reply; None means that there is no reply.

    Raises:
        InvalidMessage: `usage` is not JSON.
    """
    before, after = end_parts(outcome, reason, usage)
    return b"%b%b%b" % (before, b"null" if seq is None else b"%d" % seq, after)


def end_parts(outcome: str, reason: str, usage: Mapping[str, Any] | None) -> tuple[bytes, bytes]:
    """Return the bytes of the last line before and after the seq of the reply, which the script writes between them.

    Raises:
        InvalidMessage: `usage` is not JSON.
    """
    try:
        encoded = json.dumps(usage, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        before = f'{{"type":"end","outcome":"{outcome}","reason":{json.dumps(reason, ensure_ascii=False)},"seq":'
        return before.encode(), f',"usage":{encoded}}}\n'.encode()
    except (TypeError, ValueError) as refused:  # a lone surrogate, too
        raise InvalidMessage(f"the usage of a turn must be JSON: {refused}") from None


def check_reason(reason: object) -> str:
    """Return the reason of a stop.

    Raises:
        InvalidMessage: the reason is not 1 to 40 printable ASCII characters.
    """
    if not isinstance(reason, str) or _REASON.fullmatch(reason) is None:
        raise InvalidMessage("the reason of a stop has 1 to 40 printable ASCII characters")
    return reason
