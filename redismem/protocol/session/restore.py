"""What of a session in quarantine can be brought back, and what is wrong with it. No I/O.

Nothing is guessed: a message keeps its seq from the end on, a summary is kept if it can be read and overlaps no other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from redismem.context import Summary
from redismem.errors import UnsupportedFormat
from redismem.messages.decoding import decode_messages, is_gap, split_elements
from redismem.messages.message import Message
from redismem.messages.values import Undecodable, decode_value
from redismem.protocol import layout
from redismem.protocol.layout import PARAM, PINNED, SUMMARY

_EPOCH = re.compile(rb"[1-9][0-9]{0,18}-[0-9a-f]+")
_VALUES = (layout.WAITING, layout.LAST_INTENT, layout.LAST_RESULT, layout.PLAN)
# What belongs to a claim, or to a queue, that the session is in no more.
_OF_QUEUES = (
    layout.EPOCH,
    layout.COUNTERS,
    layout.QUEUED,
    layout.FENCE,
    layout.ATTEMPTS,
    layout.DROPPED_SEQ,
    layout.FAILURE,
    layout.DEATHS,
)
# What is true of the session only if all of it comes back.
_OF_A_WHOLE = (
    layout.NEWEST_IDS,
    *layout.OLDER_IDS,
    layout.REPEATED,
    layout.COMMITTED,
    layout.WITH_ORIGINALS,
    layout.PRUNED,
    layout.EDITED,
    layout.SKETCH,
)
_OTHERS = (*_OF_QUEUES, *_OF_A_WHOLE, layout.SUMMARIES_COUNT, layout.PINS)


@dataclass(frozen=True, slots=True)
class Restoration:
    """How a session comes back. `faults`: what is wrong with it, in words without any of its text."""

    faults: Sequence[str]
    epoch: str
    """"" for a new one."""
    first_seq: int
    messages: Sequence[Message]
    seen_count: int
    left_out: Sequence[int]
    """Places of messages that cannot be read."""
    fields: Mapping[bytes, bytes]
    summaries: Sequence[Summary]

    @property
    def tokens(self) -> int:
        """The tokens of the messages that come back and count."""
        return sum(message.tokens for message in self.messages if _counts(message))

    @property
    def uncounted_count(self) -> int:
        """How many of them are pinned or gaps."""
        return sum(not _counts(message) for message in self.messages)


def restoration(stored: Mapping[bytes, bytes], elements: Sequence[bytes], kinds: Mapping[str, str]) -> Restoration:
    """`kinds`: the type of each key that is another than it should be. Raises UnsupportedFormat."""
    faults = [f"{name} has the type {kind}" for name, kind in kinds.items()]
    if not stored and "state" not in kinds:
        faults.append("the state is gone")
    readable, left_out = _readable(elements)
    if left_out:
        faults.append(f"{len(left_out)} of {len(elements)} messages cannot be read")
    summaries = _summaries(stored, faults)
    epoch = _epoch(stored, summaries, faults)
    summaries = [each for each in summaries if each.id.startswith(f"{epoch}:")]
    first_seq = _first_seq(stored, summaries, len(elements), len(readable), faults)
    fields = _fields(stored, faults) | {SUMMARY + str(each.first_seq).encode(): each.encode() for each in summaries}
    if summaries:
        fields[layout.SUMMARIES_COUNT] = str(len(summaries)).encode()
    if not faults:
        fields |= {name: stored[name] for name in _OF_A_WHOLE if name in stored}
    messages = decode_messages(readable, first_seq, epoch)
    pinned = [element for element, message in zip(readable, messages, strict=True) if message.pinned]
    pinned += [element for name, value in fields.items() if name.startswith(PINNED) for element in _pinned(name, value)]
    if pinned or layout.PINS in stored:
        fields[layout.PINS] = b"%d %d" % (len(pinned), sum(map(len, pinned)))
    return Restoration(faults, epoch, first_seq, messages, len(elements), left_out, fields, summaries)


def _counts(message: Message) -> bool:
    return not (message.pinned or is_gap(message))


def _pinned(field: bytes, value: bytes) -> list[bytes]:
    """The pinned messages that left the window together. Raises Undecodable, ValueError."""
    return split_elements(value, len(layout.pinned_seqs(field)))


def _readable(elements: Sequence[bytes]) -> tuple[list[bytes], list[int]]:
    readable, left_out = [], []
    for place, element in enumerate(elements):
        try:
            decode_messages([element], 1, "")
            readable.append(element)
        except Undecodable:
            left_out.append(place)
    return readable, left_out


def _summaries(stored: Mapping[bytes, bytes], faults: list[str]) -> list[Summary]:
    """The summaries that can be read and overlap no other, oldest first."""
    found = []
    for value in (value for name, value in stored.items() if name.startswith(SUMMARY)):
        try:
            found.append(Summary.decode(value))
        except (Undecodable, ValueError, TypeError):
            faults.append("a summary cannot be read")
    kept: list[Summary] = []
    for each in sorted(found, key=lambda summary: (summary.first_seq, -summary.last_seq)):
        if each.first_seq > (kept[-1].last_seq if kept else 0) and each.last_seq >= each.first_seq:
            kept.append(each)
        else:
            faults.append("a summary covers what another covers")
    return kept


def _epoch(stored: Mapping[bytes, bytes], summaries: Sequence[Summary], faults: list[str]) -> str:
    """Its own, else that of its summaries; "" for a new one."""
    epoch = stored.get(layout.EPOCH, b"")
    if _EPOCH.fullmatch(epoch) is None:
        faults.append("the epoch is none")
        epoch = summaries[-1].id.rpartition(":")[0].encode() if summaries else b""
        return epoch.decode() if _EPOCH.fullmatch(epoch) else ""
    if any(not each.id.startswith(f"{epoch.decode()}:") for each in summaries):
        faults.append("a summary is of another epoch")
    return epoch.decode()


def _first_seq(
    stored: Mapping[bytes, bytes], summaries: Sequence[Summary], seen_count: int, kept_count: int, faults: list[str]
) -> int:
    """The last message keeps its seq, if that is known."""
    covered = summaries[-1].last_seq if summaries else 0
    try:
        counters = layout.counters(stored.get(layout.COUNTERS, b""))
    except UnsupportedFormat:
        raise
    except (Undecodable, ValueError):
        faults.append("the counters are none")
        return covered + 1
    if counters.element_count != seen_count:
        faults.append(f"there are {seen_count} messages, noted are {counters.element_count}")
    if counters.first_seq <= covered or counters.message_count >= 1 << 53:
        faults.append("the counters and the summaries contradict each other")
        return covered + 1
    return max(counters.message_count - kept_count, covered) + 1


def _fields(stored: Mapping[bytes, bytes], faults: list[str]) -> dict[bytes, bytes]:
    """Params and the other values that can be read."""
    kept = {}
    for name, value in stored.items():
        if name.startswith(PARAM) or name in _VALUES:
            try:
                name.decode("utf-8", "surrogatepass")
                decode_value(value)
                kept[name] = value
            except (Undecodable, ValueError):
                faults.append("a value of the state cannot be read")
        elif name.startswith(PINNED):
            try:
                decode_messages(_pinned(name, value), 1, "")
                kept[name] = value
            except (Undecodable, ValueError):
                faults.append("pinned messages cannot be read")
        elif name not in (*_OF_QUEUES, *_OF_A_WHOLE, layout.SUMMARIES_COUNT, layout.PINS) and not name.startswith(
            SUMMARY
        ):
            faults.append("the state has a field that is not known")
    return kept
