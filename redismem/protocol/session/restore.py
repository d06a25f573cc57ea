"""Plan the restoration of a quarantined session: its readable parts and its faults. No I/O.

Seqs are counted back from the last one, and a summary must be readable and overlap no other summary. Nothing is
guessed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from redismem.context.results import Summary
from redismem.messages.decoding import StoredMessages, decode_messages, split_elements
from redismem.messages.gaps import gap_count, last_seqs, seqs_count
from redismem.messages.message import Message
from redismem.messages.values import Undecodable, decode_value
from redismem.protocol import layout
from redismem.protocol.layout import LEFT_IDS, PARAM, PINNED, SUMMARY
from redismem.protocol.owners import is_owner_field

_EPOCH = re.compile(rb"[1-9][0-9]{0,18}-[0-9a-f]+")
_VALUES = (layout.WAITING, layout.LAST_INTENT, layout.LAST_RESULT, layout.PLAN, layout.INSTRUCTION)
_KEPT_FIELDS = (*_VALUES, layout.OWNER, layout.ZONE, layout.TITLE)
_MOST = 1 << 53
# Fields of a claim, a queue, other processes or a turn.
_DROPPED_FIELDS = (
    layout.FENCE,
    layout.EVICTOR,
    layout.ATTEMPTS,
    layout.DROPPED_SEQ,
    layout.FAILURE,
    layout.DEATHS,
    layout.OTHERS,
    layout.TURN,
    layout.STOP,
    layout.DOUBT,
)


# Fields that are only valid if the whole session is restored.
_WHOLE_FIELDS = (
    layout.EPOCH,
    layout.COUNTERS,
    layout.QUEUED,
    layout.NEWEST_IDS,
    *layout.OLDER_IDS,
    layout.RESENT,
    layout.COMMITTED,
    layout.SUMMARIES_COUNT,
    layout.WITH_ORIGINALS,
    layout.PRUNED,
    layout.EDITED,
    layout.REMOVED,
    layout.PINS,
    layout.LARGE_BYTES,
    layout.SKETCH,
)
_NUMBERS = (layout.SUMMARIES_COUNT, layout.LARGE_BYTES, layout.REMOVED)
_FIELDS = frozenset((*_KEPT_FIELDS, *_DROPPED_FIELDS, *_WHOLE_FIELDS))


@dataclass(frozen=True, slots=True)
class Restoration:
    """The restorable parts of a session, and its `faults`. A fault is described without any text of the session."""

    faults: Sequence[str]
    epoch: str
    """"" means that a new epoch is drawn."""
    first_seq: int
    messages: Sequence[Message]
    elements: Sequence[bytes]
    """The messages as stored."""
    left_out_count: int
    """The number of unreadable messages."""
    fields: Mapping[bytes, bytes]
    summaries: Sequence[Summary]
    policy: str = ""
    """The policy, as the counters contain it."""
    has_lost_owner: bool = False
    """True if the session may have an owner, and nobody can tell who it is."""
    stored: Mapping[bytes, bytes] = field(default_factory=dict)
    """The state of a session without faults, as stored."""


def plan_restoration(stored: Mapping[bytes, bytes], elements: Sequence[bytes], kinds: Mapping[str, str]) -> Restoration:
    """Plan the restoration. `kinds` contains the actual type of each key with a foreign type.

    Raises:
        UnsupportedFormat: another release wrote the session.
    """
    faults = [f"{name} has the type {kind}" for name, kind in kinds.items()]
    if not stored and "state" not in kinds:
        faults.append("the state is missing")
    readable = list(filter(_is_readable, elements))
    if left_out_count := len(elements) - len(readable):
        faults.append(f"{left_out_count} of {len(elements)} messages cannot be read")
    summaries = _summaries(stored, faults)
    epoch = _epoch(stored, summaries, faults)
    summaries = [summary for summary in summaries if summary.id.startswith(f"{epoch}:")]
    covered = summaries[-1].last_seq if summaries else 0
    counters = _counters(stored, covered, len(elements), faults)
    first_seq, kept_count = covered + 1, seqs_count(readable)
    if counters is not None and counters.first_seq > covered and counters.message_count < _MOST:
        first_seq = max(counters.message_count - kept_count, covered) + 1  # the last message keeps its seq
    messages = StoredMessages(readable, 0, epoch, last_seqs(readable, first_seq + kept_count - 1)).messages()
    fields = _fields(stored, faults)
    if faults:
        fields = _salvaged(fields, summaries, readable, messages)
        fields |= _removed(stored, fields, first_seq - 1, readable)
    has_lost_owner = not stored or (layout.OWNER in stored and layout.OWNER not in fields)
    policy = "" if counters is None else counters.policy
    parts = (epoch, first_seq, messages, readable, left_out_count, fields, summaries, policy, has_lost_owner)
    return Restoration(faults, *parts, {} if faults else stored)


def _is_readable(element: bytes) -> bool:
    try:
        decode_messages([element], 1, "")
        gap_count(element)
    except Undecodable:
        return False
    return True


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


def _counters(
    stored: Mapping[bytes, bytes], covered: int, seen_count: int, faults: list[str]
) -> layout.Counters | None:
    """Return the counters; `None` if they cannot be read."""
    try:
        counters = layout.counters(stored.get(layout.COUNTERS, b""))
    except Undecodable:
        faults.append("the counters cannot be read")
        return None
    if counters.element_count != seen_count:
        faults.append(f"there are {seen_count} messages, but the counters say {counters.element_count}")
    if counters.first_seq <= covered or counters.message_count >= _MOST:
        faults.append("the counters and the summaries contradict each other")
    return counters


def _fields(stored: Mapping[bytes, bytes], faults: list[str]) -> dict[bytes, bytes]:
    """Return the readable fields of the state that a restored session keeps."""
    kept = {}
    for name, value in stored.items():
        fault = _fault_of(name, value)
        if fault is not None:
            faults.append(fault)
        elif name not in _DROPPED_FIELDS and not name.startswith(LEFT_IDS):
            kept[name] = value
    return kept


def _fault_of(name: bytes, value: bytes) -> str | None:
    if name == layout.OWNER:
        return None if is_owner_field(value) else "the owner cannot be read"
    is_pinned = name.startswith(PINNED)
    try:
        if is_pinned:
            decode_messages(_split_pinned(name, value), 1, "")
        elif name == layout.PINS:
            layout.pins(value)
        elif name in _NUMBERS:
            int(value)
        elif name == layout.TITLE:
            value.decode()
        elif name.startswith(PARAM) or name in _VALUES:
            name.decode("utf-8", "surrogatepass")
            decode_value(value)
        elif name not in _FIELDS and not name.startswith((SUMMARY, LEFT_IDS)):
            return "the state has an unknown field"
    except (Undecodable, ValueError):
        return "pinned messages cannot be read" if is_pinned else "a value of the state cannot be read"
    return None


def _salvaged(
    fields: Mapping[bytes, bytes], summaries: Sequence[Summary], readable: Sequence[bytes], messages: Sequence[Message]
) -> dict[bytes, bytes]:
    """Return the fields of a session with faults: values, owner, zone, readable summaries and pinned messages."""
    kept = {name: value for name, value in fields.items() if name.startswith((PARAM, PINNED)) or name in _KEPT_FIELDS}
    pinned = [element for element, message in zip(readable, messages, strict=True) if message.pinned]
    pinned += [
        element for name, value in kept.items() if name.startswith(PINNED) for element in _split_pinned(name, value)
    ]
    kept |= {SUMMARY + b"%d" % summary.first_seq: summary.encode() for summary in summaries}
    if summaries:
        kept[layout.SUMMARIES_COUNT] = b"%d" % len(summaries)
    if large_bytes := layout.large_bytes(readable):
        kept[layout.LARGE_BYTES] = b"%d" % large_bytes
    if pinned or layout.PINS in fields:
        kept[layout.PINS] = b"%d %d" % (len(pinned), sum(map(len, pinned)))
    return kept


def _removed(
    stored: Mapping[bytes, bytes], kept: Mapping[bytes, bytes], before_count: int, readable: Sequence[bytes]
) -> dict[bytes, bytes]:
    """Return the field with the number of seqs without a message, if there are any.

    It is as stored, but at least the number of those in the window, and at most that of these and all seqs before it.
    `before_count` is the number of the latter; a pinned message may have one of them.
    """
    in_window = sum(map(gap_count, readable))
    outside = sum(len(layout.pinned_seqs(name)) for name in kept if name.startswith(PINNED))
    try:
        count = int(stored.get(layout.REMOVED, b"0"))
    except ValueError:
        count = 0
    count = max(in_window, min(count, in_window + before_count - outside))
    return {layout.REMOVED: b"%d" % count} if count else {}


def _split_pinned(field: bytes, value: bytes) -> list[bytes]:
    """Split the value of a field `pinned:` into its elements.

    Raises:
        Undecodable: the value has another number of elements than the field's name has seqs.
        ValueError: the field's name contains no seqs.
    """
    return split_elements(value, len(layout.pinned_seqs(field)))
