"""The invariants of a session and its queues: what must hold between the parts of what is stored. No I/O.

I1  the window is as long as its numbers say          I8  state and messages expire together, at the time that is noted
I2  appends are remembered once, and none too many    I9  the window is within its limit
I3  a session is in at most the queue it names        I10 the tokens are those of the window's messages
I4  what waits for a summary is in a queue            I11 attempts within their limit; a fence only with a lease
I5  epoch and fences come from the shard's counter    I12 a session is listed as active, at the time that is noted
I6  summaries, and originals, stand before the window I14 what is pinned is counted, and within its limits
I7  summaries are of this epoch, and as many as noted I15 originals can be read, and each block has a signature

Entries of a queue whose session has expired are no violation: the sweep removes them.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from redismem.context import Context, Summary
from redismem.errors import RedismemError
from redismem.messages.decoding import decode_messages
from redismem.messages.message import Message
from redismem.messages.values import Undecodable
from redismem.originals.blocks import decode_block
from redismem.originals.dictionaries import Dictionaries, DictionaryMissing
from redismem.originals.signatures import decode_signature
from redismem.originals.vectors import decode_vectors
from redismem.protocol import layout, replies
from redismem.protocol.layout import Counters, QueueState
from redismem.protocol.session import append_ids
from redismem.settings.settings import Settings

_OPTIONAL_NUMBERS = (layout.ATTEMPTS, layout.DEATHS, layout.SUMMARIES_COUNT, layout.DROPPED_SEQ)
_NONE_MS = -2
_FENCE = re.compile(r"([1-9][0-9]{0,18})-[0-9a-f]+")


class Violation(NamedTuple):
    """One invariant that does not hold, of one session: what was seen, in words without any text or value of it."""

    session_id: str
    invariant: str
    text: str


@dataclass(slots=True)
class Stored:
    """What one transaction saw of a session."""

    fields: dict[bytes, bytes]
    elements: list[bytes]
    originals: dict[bytes, bytes]
    state_expires_ms: int
    messages_expire_ms: int
    originals_expire_ms: int
    vectors_expire_ms: int
    """When the vector set expires, in milliseconds since 1970; -1: never, -2: there is none."""
    places: dict[str, float | None]
    """index → the session's score in it"""
    fences: int
    dictionaries: Dictionaries = dataclasses.field(default_factory=dict)
    """The dictionaries that the originals were compressed with, as far as they are there, by version."""

    def text(self, field: bytes) -> str | None:
        """What stands in a field; None if the field is missing."""
        value = self.fields.get(field)
        return None if value is None else value.decode("utf-8", "replace")

    def number(self, field: bytes) -> int:
        """The number in a field that is known to hold one; 0 if the field is missing."""
        return int(self.fields.get(field, b"0"))


def violations(session_id: str, seen: Stored, settings: Settings, *, late_ms: int = 0) -> Iterator[Violation]:
    """What is wrong with a session, as it was seen. `late_ms`: how much later than noted its keys may expire."""
    if not seen.fields:
        if seen.elements:
            yield Violation(session_id, "I1", f"{len(seen.elements)} messages without a state")
        return
    bad = [name for name in _OPTIONAL_NUMBERS if seen.text(name) is not None and not _is_number(seen.text(name))]
    if bad or not seen.text(layout.EPOCH):
        names = ", ".join(name.decode() for name in bad or [layout.EPOCH])
        yield Violation(session_id, "I1", f"the state has no usable {names}")
        return
    try:
        counters = layout.counters(seen.fields.get(layout.COUNTERS, b""))
        context = replies.context(session_id, settings.recent_limit, seen.fields, seen.elements)
        context.is_mixed = True  # whatever the counters say
    except (RedismemError, Undecodable) as unreadable:
        yield Violation(session_id, "I1", str(unreadable))
        return
    found = (
        *_window_rules(seen, counters, context.messages, settings),
        *_pin_rules(seen, counters, context),
        *_queue_rules(seen, counters, context.messages, settings),
        *_fence_rules(seen),
        *_summary_rules(seen, counters.first_seq, context.summaries),
        *_original_rules(seen, counters.first_seq),
        *_place_rules(seen, counters, late_ms),
    )
    for invariant, text in found:
        yield Violation(session_id, invariant, text)


def _is_number(text: str | None) -> bool:
    return text is not None and re.fullmatch(r"-?[0-9]{1,19}", text) is not None


Found = Iterator[tuple[str, str]]


def _window_rules(seen: Stored, counters: Counters, messages: list[Message], settings: Settings) -> Found:
    count, total = counters.window_count, counters.message_count
    if counters.first_seq < 1:
        yield "I1", f"the window begins at {counters.first_seq}"
    try:
        appends = append_ids.decode_appends(seen.fields)
    except Undecodable as unreadable:
        yield "I2", str(unreadable)
        return
    remembered = sum(append.message_count for append in appends)
    if len({append.name for append in appends}) < len(appends) or remembered > total:
        yield "I2", f"{len(appends)} appends of {remembered} messages are remembered, of {total} in all"
    if count > settings.max_window_count:
        yield "I9", f"the window holds {count} messages, over {settings.max_window_count}"
    weight = sum(message.tokens for message in messages)
    if weight != counters.tokens:
        yield "I10", f"the window has {weight} tokens, noted are {counters.tokens}"


def _pin_rules(seen: Stored, counters: Counters, context: Context) -> Found:
    """Settings may change, so what is pinned may be over the limits of today."""
    moved = {field: layout.pinned_seqs(field) for field in seen.fields if field.startswith(layout.PINNED)}
    pinned, moved_count = context.pinned, sum(map(len, moved.values()))
    inside = [seen.elements[message.seq - counters.first_seq] for message in pinned[moved_count:]]
    if len(seen.elements) - len(context.messages) != counters.uncounted:
        yield "I14", f"{len(context.messages)} of {len(seen.elements)} count, {counters.uncounted} are noted as not"
    late = [each.seq for each in pinned[:moved_count] if not each.pinned or each.seq >= counters.first_seq]
    size = sum(map(len, inside)) + sum(len(seen.fields[field]) for field in moved)
    try:
        noted = layout.pins(seen.fields.get(layout.PINS, b"0 0"))
    except Undecodable as unreadable:
        yield "I14", str(unreadable)
        return
    if late or noted != (len(pinned), size):
        yield "I14", f"{len(pinned)} pinned of {size} bytes, noted are {noted}; out of place {late}"


def _queue_rules(seen: Stored, counters: Counters, messages: list[Message], settings: Settings) -> Found:
    queued = seen.text(layout.QUEUED)
    places = [str(name) for name in QueueState if seen.places[name] is not None]
    if places != ([] if queued is None else [queued]):
        yield "I3", f"it is in {places or 'no queue'}, noted is {queued}"
    count, summaries_count = counters.window_count, seen.number(layout.SUMMARIES_COUNT)
    # Taken off the dead list without another try: its messages wait for the next one, its summaries for theirs.
    # The seqs of pops are no messages.
    newest_seq = messages[-1].seq if messages else 0
    waits = settings.is_overdue(count, counters.tokens) and newest_seq > seen.number(layout.DROPPED_SEQ)
    waits = waits or (summaries_count > settings.summaries_limit and layout.DROPPED_SEQ not in seen.fields)
    if waits and not places:
        yield "I4", f"{count} messages and {summaries_count} summaries wait, and it is in no queue"
    attempts = seen.number(layout.ATTEMPTS)
    if not 0 <= attempts <= settings.claims_limit:
        yield "I11", f"{attempts} attempts, over {settings.claims_limit}"
    if layout.FAILURE in seen.fields and layout.failure(seen.fields[layout.FAILURE]) is None:
        yield "I11", "the reason of a failure is none"
    if queued == QueueState.DEAD and seen.number(layout.DEATHS) < 1:
        yield "I11", "it is dead, and not noted how often"
    leased = queued == QueueState.LEASED
    if (seen.text(layout.FENCE) is not None) != leased or (leased and attempts < 1):
        fence = "a" if seen.text(layout.FENCE) else "no"
        yield "I11", f"queued is {queued}, with {fence} fence and {attempts} attempts"


def _fence_rules(seen: Stored) -> Found:
    counted = {}
    for field in (layout.EPOCH, layout.COMMITTED, layout.FENCE):
        name, text = field.decode(), seen.text(field)
        match = None if text is None else _FENCE.fullmatch(text)
        if match is not None:
            counted[name] = int(match[1])
        elif text is not None:
            yield "I5", f"the {name} is no number with a nonce"
    numbers = [*counted.values(), seen.fences + 1]
    if sorted(set(numbers)) != numbers:
        yield "I5", f"out of order: {counted}, and the shard's counter is at {seen.fences}"


def _summary_rules(seen: Stored, first_seq: int, summaries: list[Summary]) -> Found:
    bounds = [bound for summary in summaries for bound in (summary.first_seq - 1, summary.last_seq)]
    ranges = [(summary.first_seq, summary.last_seq) for summary in summaries]
    if bounds != sorted(bounds) or any(first > last or last >= first_seq for first, last in ranges):
        yield "I6", f"summaries of {ranges} before a window from {first_seq}"
    names = {layout.SUMMARY + str(summary.first_seq).encode() for summary in summaries}
    epoch, noted = seen.text(layout.EPOCH), seen.number(layout.SUMMARIES_COUNT)
    foreign = [summary.first_seq for summary in summaries if not summary.id.startswith(f"{epoch}:")]
    if foreign or len(summaries) != noted or not names <= set(seen.fields):
        yield "I7", f"{len(summaries)} summaries, noted are {noted}, of other epochs {foreign}"


def _original_rules(seen: Stored, first_seq: int) -> Found:
    if not seen.text(layout.WITH_ORIGINALS):
        if seen.vectors_expire_ms != _NONE_MS:
            yield "I15", "a vector set without originals"
        return
    blocks = {int(field): block for field, block in seen.originals.items() if field.isdigit()}
    signed = {int(field[1:]) for field in seen.originals if field[:1] == b"s" and field[1:].isdigit()}
    vectors = (field for field in seen.originals if field[:1] in (b"v", b"w") and field[1:].isdigit())
    meant = {int(field[1:]): seen.originals[field] for field in vectors}
    others = len(seen.originals) - len(blocks) - len(signed) - len(meant.keys() & blocks.keys())
    others -= b"vectors" in seen.originals
    if signed != blocks.keys() or others:
        yield "I15", f"{len(blocks)} blocks of originals, {len(signed)} signatures, {others} other fields"
    for number, block in sorted(blocks.items()):
        try:
            first, elements = decode_block(number, block, seen.dictionaries)
            decode_messages(elements, first, "")
            decode_signature(seen.originals.get(b"s%d" % number, b""))
        except DictionaryMissing as missing:
            yield "I15", f"block {number} of the originals cannot be read: {missing}"
            continue
        except (Undecodable, RedismemError):
            yield "I15", f"block {number} of the originals cannot be read"
            continue
        if number in meant and not _are_vectors(meant[number]):
            yield "I15", f"the vectors of block {number} of the originals cannot be read"
        if first + len(elements) > first_seq:
            yield "I6", f"originals up to {first + len(elements) - 1} before a window from {first_seq}"


def _are_vectors(encoded: bytes) -> bool:
    try:
        return decode_vectors(encoded) is not None
    except Undecodable:
        return False


def _place_rules(seen: Stored, counters: Counters, late_ms: int) -> Found:
    times = {seen.state_expires_ms} | ({seen.messages_expire_ms} if seen.elements else set())
    if seen.text(layout.WITH_ORIGINALS) and seen.originals:  # those of an earlier session expire when it would have
        times.add(seen.originals_expire_ms)
    if not all(counters.expires_ms <= time_ms <= counters.expires_ms + late_ms for time_ms in times):
        yield "I8", f"the keys expire at {sorted(times)}, noted is {counters.expires_ms}"
    if seen.vectors_expire_ms != _NONE_MS and not 0 < seen.vectors_expire_ms <= counters.expires_ms + late_ms:
        yield "I8", f"the vector set expires at {seen.vectors_expire_ms}, noted is {counters.expires_ms}"
    if seen.places["active"] != counters.active_ms:
        yield "I12", f"listed as active at {seen.places['active']}, noted is {counters.active_ms}"
    if (seen.places["evictions"] is not None) != (counters.evicting is not None):
        yield "I12", "on the eviction queue and not noted so, or the other way round"
