"""Plan the restoration of a quarantined session: its readable parts and its faults. No I/O.

Seqs are counted back from the last one, and a summary must be readable and overlap no other summary. Nothing is
guessed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from redismem.context import Summary
from redismem.errors import UnsupportedFormat
from redismem.messages.decoding import StoredMessages, decode_messages, is_gap, split_elements
from redismem.messages.gaps import gap_count, last_seqs, seqs_count
from redismem.messages.message import Message
from redismem.messages.values import Undecodable, decode_value
from redismem.protocol import layout
from redismem.protocol.layout import LEFT_IDS, PARAM, PINNED, SUMMARY
from redismem.protocol.owners import is_owner_field

_EPOCH = re.compile(rb"[1-9][0-9]{0,18}-[0-9a-f]+")
_VALUES = (layout.WAITING, layout.LAST_INTENT, layout.LAST_RESULT, layout.PLAN)
# Fields of the counters, of a claim or of a queue. A restoration writes new ones.
_QUEUE_FIELDS = (
    layout.EPOCH,
    layout.COUNTERS,
    layout.QUEUED,
    layout.FENCE,
    layout.EVICTOR,
    layout.ATTEMPTS,
    layout.DROPPED_SEQ,
    layout.FAILURE,
    layout.DEATHS,
    layout.OTHERS,
)
# Fields that are only valid if the whole session is restored.
_WHOLE_FIELDS = (
    layout.NEWEST_IDS,
    *layout.OLDER_IDS,
    layout.RESENT,
    layout.COMMITTED,
    layout.WITH_ORIGINALS,
    layout.PRUNED,
    layout.EDITED,
    layout.REMOVED,
    layout.SKETCH,
)
_DROPPED_FIELDS = (*_QUEUE_FIELDS, *_WHOLE_FIELDS, layout.SUMMARIES_COUNT, layout.PINS, layout.LARGE_BYTES)


@dataclass(frozen=True, slots=True)
class Restoration:
    """The restorable parts of a session, and its `faults`. A fault is described without any text of the session."""

    faults: Sequence[str]
    epoch: str
    """"" means that a new epoch is drawn."""
    first_seq: int
    messages: Sequence[Message]
    seen_count: int
    left_out: Sequence[int]
    """The indices of unreadable messages in the list."""
    fields: Mapping[bytes, bytes]
    summaries: Sequence[Summary]
    policy: str = ""
    """The policy, as the counters contain it."""
    has_lost_owner: bool = False
    """True if the session may have an owner, and nobody can tell who it is."""

    @property
    def tokens(self) -> int:
        """The tokens of the restored messages, without pinned ones and gaps."""
        return sum(message.tokens for message in self.messages if _is_counted(message))

    @property
    def uncounted_count(self) -> int:
        """The number of restored messages that are pinned or gaps."""
        return sum(not _is_counted(message) for message in self.messages)

    @property
    def hidden_count(self) -> int:
        """The number of seqs without an element, for which restored gaps stand."""
        return sum(message.beside["gap"] - 1 for message in self.messages if message.beside and is_gap(message))


def plan_restoration(stored: Mapping[bytes, bytes], elements: Sequence[bytes], kinds: Mapping[str, str]) -> Restoration:
    """Plan the restoration. `kinds` contains the actual type of each key with a foreign type.

    Raises:
        UnsupportedFormat: another release wrote the session.
    """
    faults = [f"{name} has the type {kind}" for name, kind in kinds.items()]
    if not stored and "state" not in kinds:
        faults.append("the state is missing")
    readable, left_out = _split_readable(elements)
    if left_out:
        faults.append(f"{len(left_out)} of {len(elements)} messages cannot be read")
    summaries = _summaries(stored, faults)
    epoch = _epoch(stored, summaries, faults)
    summaries = [summary for summary in summaries if summary.id.startswith(f"{epoch}:")]
    kept_count = seqs_count(readable)
    first_seq = _first_seq(stored, summaries, len(elements), kept_count, faults)
    fields = _fields(stored, faults) | _summary_fields(summaries)
    if summaries:
        fields[layout.SUMMARIES_COUNT] = str(len(summaries)).encode()
    if not faults:
        fields |= {name: stored[name] for name in _WHOLE_FIELDS if name in stored}
    seqs = last_seqs(readable, first_seq + kept_count - 1)
    messages = StoredMessages(readable, 0, epoch, seqs).messages()
    pinned = [element for element, message in zip(readable, messages, strict=True) if message.pinned]
    pinned += [
        element for name, value in fields.items() if name.startswith(PINNED) for element in _split_pinned(name, value)
    ]
    if large_bytes := layout.large_bytes(readable):
        fields[layout.LARGE_BYTES] = b"%d" % large_bytes
    if pinned or layout.PINS in stored:
        fields[layout.PINS] = b"%d %d" % (len(pinned), sum(map(len, pinned)))
    has_lost_owner = not stored or (layout.OWNER in stored and layout.OWNER not in fields)
    return Restoration(
        faults,
        epoch,
        first_seq,
        messages,
        len(elements),
        left_out,
        fields,
        summaries,
        _policy(stored),
        has_lost_owner,
    )


def _summary_fields(summaries: Sequence[Summary]) -> dict[bytes, bytes]:
    return {SUMMARY + str(summary.first_seq).encode(): summary.encode() for summary in summaries}


def _is_counted(message: Message) -> bool:
    return not (message.pinned or is_gap(message))


def _split_pinned(field: bytes, value: bytes) -> list[bytes]:
    """Split the value of a field `pinned:` into its elements.

    Raises:
        Undecodable: the value has another number of elements than the field's name has seqs.
        ValueError: the field's name contains no seqs.
    """
    return split_elements(value, len(layout.pinned_seqs(field)))


def _split_readable(elements: Sequence[bytes]) -> tuple[list[bytes], list[int]]:
    readable, left_out = [], []
    for place, element in enumerate(elements):
        try:
            decode_messages([element], 1, "")
            gap_count(element)
            readable.append(element)
        except Undecodable:
            left_out.append(place)
    return readable, left_out


def _summaries(stored: Mapping[bytes, bytes], faults: list[str]) -> list[Summary]:
    """Return the readable summaries that overlap no other summary, oldest first."""
    readable = []
    for value in (value for name, value in stored.items() if name.startswith(SUMMARY)):
        try:
            readable.append(Summary.decode(value))
        except (Undecodable, ValueError, TypeError):
            faults.append("a summary cannot be read")
    kept: list[Summary] = []
    for summary in sorted(readable, key=lambda summary: (summary.first_seq, -summary.last_seq)):
        if summary.first_seq > (kept[-1].last_seq if kept else 0) and summary.last_seq >= summary.first_seq:
            kept.append(summary)
        else:
            faults.append("a summary overlaps another")
    return kept


def _epoch(stored: Mapping[bytes, bytes], summaries: Sequence[Summary], faults: list[str]) -> str:
    """Return the epoch of the state; if it is unreadable, the epoch of the summaries; "" if neither is readable."""
    epoch = stored.get(layout.EPOCH, b"")
    if _EPOCH.fullmatch(epoch) is None:
        faults.append("the epoch cannot be read")
        epoch = summaries[-1].id.rpartition(":")[0].encode() if summaries else b""
        return epoch.decode() if _EPOCH.fullmatch(epoch) else ""
    if any(not summary.id.startswith(f"{epoch.decode()}:") for summary in summaries):
        faults.append("a summary belongs to another epoch")
    return epoch.decode()


def _policy(stored: Mapping[bytes, bytes]) -> str:
    """Return the policy in the counters; "" if they are unreadable."""
    try:
        return layout.counters(stored.get(layout.COUNTERS, b"")).policy
    except (Undecodable, ValueError):
        return ""


def _first_seq(
    stored: Mapping[bytes, bytes], summaries: Sequence[Summary], seen_count: int, kept_count: int, faults: list[str]
) -> int:
    """Return the seq of the first restored message, so that the last message keeps its seq."""
    covered = summaries[-1].last_seq if summaries else 0
    try:
        counters = layout.counters(stored.get(layout.COUNTERS, b""))
    except UnsupportedFormat:
        raise
    except (Undecodable, ValueError):
        faults.append("the counters cannot be read")
        return covered + 1
    if counters.element_count != seen_count:
        faults.append(f"there are {seen_count} messages, but the counters say {counters.element_count}")
    if counters.first_seq <= covered or counters.message_count >= 1 << 53:
        faults.append("the counters and the summaries contradict each other")
        return covered + 1
    return max(counters.message_count - kept_count, covered) + 1


def _fields(stored: Mapping[bytes, bytes], faults: list[str]) -> dict[bytes, bytes]:
    """Return the readable params, values, owner and pinned messages."""
    kept = {}
    for name, value in stored.items():
        if name.startswith(PARAM) or name in _VALUES:
            try:
                name.decode("utf-8", "surrogatepass")
                decode_value(value)
                kept[name] = value
            except (Undecodable, ValueError):
                faults.append("a value of the state cannot be read")
        elif name == layout.ZONE:
            kept[name] = value
        elif name == layout.OWNER:
            if is_owner_field(value):
                kept[name] = value
            else:
                faults.append("the owner cannot be read")
        elif name.startswith(PINNED):
            try:
                decode_messages(_split_pinned(name, value), 1, "")
                kept[name] = value
            except (Undecodable, ValueError):
                faults.append("pinned messages cannot be read")
        elif name not in _DROPPED_FIELDS and not name.startswith((SUMMARY, LEFT_IDS)):
            faults.append("the state has an unknown field")
    return kept
