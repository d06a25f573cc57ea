"""The invariants that hold between the stored parts of a session and its queues. No I/O.

I1  the window is as long as its counters say         I8  state and messages expire together, at the recorded time
I2  each append is remembered once, and none too many I9  the window is within its limit
I3  a session is in at most the queue it names        I10 tokens and large bytes are sums over the window
I4  a session that waits for a summary is in a queue  I11 attempts are within their limit; a fence needs a lease
I5  epoch and fences come from the shard's counter    I12 a session is listed as active, at the recorded time
I6  summaries and originals precede the window        I14 pinned messages are counted, and within their limits
I7  summaries belong to this epoch, as many as noted  I15 originals are readable, and each block has a signature
I16 a running turn is in the index of turns, and its log and the ended turns are whole and expire with the session

A queue entry whose session has expired is not a violation: the sweep removes it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Set
from dataclasses import dataclass
from typing import NamedTuple

from redismem.context.context import Context
from redismem.context.results import Summary
from redismem.errors import RedismemError
from redismem.inspection.turn_rules import StoredTurns, broken_turn_rules
from redismem.messages.decoding import decode_messages
from redismem.messages.gaps import gap_count, last_seqs, place_of
from redismem.messages.message import Message
from redismem.messages.values import Undecodable
from redismem.originals.blocks import decode_block, is_merged, numbers_in
from redismem.originals.dictionaries import Dictionaries, DictionaryMissing
from redismem.originals.signatures import is_signature, split_signatures
from redismem.originals.vectors import decode_vectors
from redismem.protocol import layout, replies
from redismem.protocol.layout import Counters, QueueState
from redismem.protocol.owners import decode_owner, owner_score
from redismem.protocol.session import append_ids
from redismem.settings.settings import Settings

_OPTIONAL_NUMBERS = (
    layout.ATTEMPTS,
    layout.DEATHS,
    layout.SUMMARIES_COUNT,
    layout.DROPPED_SEQ,
    layout.LARGE_BYTES,
    layout.REMOVED,
)
_FENCE = re.compile(r"([1-9][0-9]{0,18})-[0-9a-f]+")


class Violation(NamedTuple):
    """An invariant that one session breaks. `text` describes it without any text or value of the session."""

    session_id: str
    invariant: str
    text: str


@dataclass(slots=True)
class StoredSession:
    """The stored parts of a session, as one transaction read them."""

    fields: dict[bytes, bytes]
    elements: list[bytes]
    originals: dict[bytes, bytes]
    state_expires_ms: int
    messages_expire_ms: int
    originals_expire_ms: int
    turns: StoredTurns
    places: dict[str, float | None]
    """The session's score in each index; `None` means it is not in that index."""
    fences: int
    dictionaries: Dictionaries = dataclasses.field(default_factory=dict)
    """The dictionaries of the originals' blocks, by version, without dictionaries that are missing in Redis."""

    def text(self, field: bytes) -> str | None:
        """Return the text of a field, or `None` if the field is missing."""
        value = self.fields.get(field)
        return None if value is None else value.decode("utf-8", "replace")

    def number(self, field: bytes) -> int:
        """Return the number in a numeric field, or 0 if the field is missing."""
        return int(self.fields.get(field, b"0"))


def violations(session_id: str, seen: StoredSession, settings: Settings, *, late_ms: int = 0) -> Iterator[Violation]:
    """Yield the violations of a session. Its keys may expire up to `late_ms` after the recorded time."""
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
        context.is_mixed = True  # look at every message: the counters may be wrong
        gaps = [gap_count(element) for element in seen.elements]
    except (RedismemError, Undecodable) as unreadable:
        yield Violation(session_id, "I1", str(unreadable))
        return
    broken = (
        *_window_rules(seen, counters, context.messages, settings),
        *_gap_rules(gaps, counters),
        *_pin_rules(seen, counters, context),
        *_queue_rules(seen, counters, context.messages, settings),
        *_fence_rules(seen),
        *_summary_rules(seen, counters.first_seq, context.summaries),
        *_original_rules(seen, counters.first_seq),
        *_body_rules(seen, counters),
        *_place_rules(seen, counters, late_ms),
        *(
            ("I16", text)
            for text in broken_turn_rules(seen.fields, seen.turns, seen.places["turns"], counters, late_ms)
        ),
    )
    for invariant, text in broken:
        yield Violation(session_id, invariant, text)


def _is_number(text: str | None) -> bool:
    return text is not None and re.fullmatch(r"-?[0-9]{1,19}", text) is not None


Broken = Iterator[tuple[str, str]]


def _window_rules(seen: StoredSession, counters: Counters, messages: list[Message], settings: Settings) -> Broken:
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
        yield "I2", f"{len(appends)} remembered appends claim {remembered} messages; the session has {total} in all"
    if count > settings.max_window_count:
        yield "I9", f"the window holds {count} messages, over {settings.max_window_count}"
    weight = sum(message.tokens for message in messages)
    if weight != counters.tokens:
        yield "I10", f"the window has {weight} tokens, but {counters.tokens} are recorded"
    large_bytes = layout.large_bytes(seen.elements)
    if large_bytes != seen.number(layout.LARGE_BYTES):
        text = f"the window's large messages have {large_bytes} bytes"
        yield "I10", f"{text}, but {seen.number(layout.LARGE_BYTES)} are recorded"


def _gap_rules(gaps: list[int], counters: Counters) -> Broken:
    """Check the gaps: `gaps` has the number of seqs of each element that is one, and 0 for a message."""
    hidden = sum(count - 1 for count in gaps if count)
    if hidden != counters.hidden:
        yield "I14", f"the gaps stand for {hidden} more seqs than they are, but {counters.hidden} is recorded"
    if any(map(min, gaps, gaps[1:])):
        yield "I14", "two gaps stand side by side"


def _pin_rules(seen: StoredSession, counters: Counters, context: Context) -> Broken:
    """Check the pinned messages. The current limits do not apply: the messages may have been pinned under others."""
    moved = {field: layout.pinned_seqs(field) for field in seen.fields if field.startswith(layout.PINNED)}
    pinned, moved_count = context.pinned, sum(map(len, moved.values()))
    places = (place_of(message.seq, *counters[:2], seen.elements) for message in pinned[moved_count:])
    inside = [seen.elements[place] for place in places]
    if len(seen.elements) - len(context.messages) != counters.uncounted:
        uncounted = len(seen.elements) - len(context.messages)
        yield "I14", f"{uncounted} of {len(seen.elements)} messages do not count, but {counters.uncounted} are recorded"
    late = [message.seq for message in pinned[:moved_count] if not message.pinned or message.seq >= counters.first_seq]
    size = sum(map(len, inside)) + sum(len(seen.fields[field]) for field in moved)
    try:
        recorded = layout.pins(seen.fields.get(layout.PINS, b"0 0"))
    except Undecodable as unreadable:
        yield "I14", str(unreadable)
        return
    if late or recorded != (len(pinned), size):
        text = f"{len(pinned)} pinned messages of {size} bytes, but {recorded} is recorded"
        yield "I14", f"{text}; out of place: {late}"


def _queue_rules(seen: StoredSession, counters: Counters, messages: list[Message], settings: Settings) -> Broken:
    queued = seen.text(layout.QUEUED)
    places = [str(name) for name in QueueState if seen.places[name] is not None]
    if places != ([] if queued is None else [queued]):
        yield "I3", f"the session is in {places or 'no queue'}, but {queued} is recorded"
    count, summaries_count = counters.window_count, seen.number(layout.SUMMARIES_COUNT)
    # A session taken off the dead list without another try does not wait until its next message or summary. The seq of
    # a pop is not a message.
    newest_seq = messages[-1].seq if messages else 0
    waits = (
        "w" not in counters.policy
        and settings.is_overdue(count, counters.tokens)
        and newest_seq > seen.number(layout.DROPPED_SEQ)
    )
    folds = "w" not in counters.policy and summaries_count > settings.summaries_limit
    waits = waits or (folds and layout.DROPPED_SEQ not in seen.fields)
    if waits and not places:
        yield "I4", f"{count} messages and {summaries_count} summaries wait, but the session is in no queue"
    attempts = seen.number(layout.ATTEMPTS)
    if not 0 <= attempts <= settings.claims_limit:
        yield "I11", f"{attempts} attempts, over the limit of {settings.claims_limit}"
    if layout.FAILURE in seen.fields and layout.failure(seen.fields[layout.FAILURE]) is None:
        yield "I11", "the recorded reason of a failure is not a valid reason"
    if queued == QueueState.DEAD and seen.number(layout.DEATHS) < 1:
        yield "I11", "the session is dead, but no death is recorded"
    leased = queued == QueueState.LEASED
    if (seen.text(layout.FENCE) is not None) != leased or (leased and attempts < 1):
        fence = "a" if seen.text(layout.FENCE) else "no"
        yield "I11", f"the recorded queue is {queued}, with {fence} fence and {attempts} attempts"


def _fence_rules(seen: StoredSession) -> Broken:
    counted = {}
    for field in (layout.EPOCH, layout.COMMITTED, layout.FENCE):
        name, text = field.decode(), seen.text(field)
        match = None if text is None else _FENCE.fullmatch(text)
        if match is not None:
            counted[name] = int(match[1])
        elif text is not None:
            yield "I5", f"the {name} is not a number with a nonce"
    numbers = [*counted.values(), seen.fences + 1]
    if sorted(set(numbers)) != numbers:
        yield "I5", f"out of order: {counted}, while the shard's counter is at {seen.fences}"


def _summary_rules(seen: StoredSession, first_seq: int, summaries: list[Summary]) -> Broken:
    bounds = [bound for summary in summaries for bound in (summary.first_seq - 1, summary.last_seq)]
    ranges = [(summary.first_seq, summary.last_seq) for summary in summaries]
    if bounds != sorted(bounds) or any(first > last or last >= first_seq for first, last in ranges):
        yield "I6", f"summaries cover {ranges}, but the window begins at {first_seq}"
    names = {layout.SUMMARY + str(summary.first_seq).encode() for summary in summaries}
    epoch, recorded = seen.text(layout.EPOCH), seen.number(layout.SUMMARIES_COUNT)
    foreign = [summary.first_seq for summary in summaries if not summary.id.startswith(f"{epoch}:")]
    if foreign or len(summaries) != recorded or not names <= set(seen.fields):
        yield "I7", f"{len(summaries)} summaries, but {recorded} are recorded; of other epochs: {foreign}"


def _original_rules(seen: StoredSession, first_seq: int) -> Broken:
    if not seen.text(layout.WITH_ORIGINALS):
        return
    blocks = {int(field): block for field, block in seen.originals.items() if field.isdigit()}
    vectors = (field for field in seen.originals if field[:1] == b"v" and field[1:].isdigit())
    embedded = {int(field[1:]): seen.originals[field] for field in vectors}
    yield from _field_rules(seen, blocks, embedded.keys())
    for number, block in sorted(blocks.items()):
        try:
            first, elements = decode_block(number, block, seen.dictionaries)
            decode_messages(elements, first, "")
        except DictionaryMissing as missing:
            yield "I15", f"block {number} of the originals cannot be read: {missing}"
            continue
        except (Undecodable, RedismemError):
            yield "I15", f"block {number} of the originals cannot be read"
            continue
        if (field := seen.originals.get(b"s%d" % number)) is not None and not _are_signatures(number, block, field):
            yield "I15", f"the signatures of block {number} of the originals cannot be read: recall makes its own"
        for at in numbers_in(number, block):
            if at in embedded and not _are_vectors(embedded[at]):
                yield "I15", f"the vectors of block {at} of the originals cannot be read"
        if first + len(elements) > first_seq:
            yield "I6", f"originals end at {first + len(elements) - 1}, but the window begins at {first_seq}"


def _body_rules(seen: StoredSession, counters: Counters) -> Broken:
    """Check that each body whose message is in the window belongs to a shortened message, and that none lacks one."""
    if not counters.has_bodies:
        return  # what there is belongs to an earlier session
    seqs = last_seqs(seen.elements, counters.message_count)
    window = dict(zip(seqs, seen.elements, strict=True))
    bodies = {int(field[1:]) for field in seen.originals if _is_body(field)}
    for seq in sorted(seq for seq, element in window.items() if b"shortened" in element and seq not in bodies):
        if decode_messages([window[seq]], seq, "")[0].shortened:
            yield "I15", f"message {seq} is shortened, and its body is gone"
    for seq in sorted(bodies):
        shorter = window.get(seq)
        if shorter is None and seq >= counters.first_seq:
            yield "I15", f"a body of message {seq}, which does not exist"
        elif shorter is not None and not decode_messages([shorter], seq, "")[0].shortened:
            yield "I15", f"a body of message {seq}, which is not shortened"


def _is_body(field: bytes) -> bool:
    return field[:1] == b"b" and field[1:].isdigit()


def _field_rules(seen: StoredSession, blocks: dict[int, bytes], embedded: Set[int]) -> Broken:
    """Check that each block has a signature, and that it is in no merged block as well."""
    signed = {int(field[1:]) for field in seen.originals if field[:1] == b"s" and field[1:].isdigit()}
    merged = {at for number, block in blocks.items() if is_merged(block) for at in numbers_in(number, block)}
    others = len(seen.originals) - len(blocks) - len(signed) - len(embedded & (merged | blocks.keys()))
    others -= sum(map(_is_body, seen.originals))
    if signed != blocks.keys() or others:
        yield "I15", f"{len(blocks)} blocks of originals, {len(signed)} signatures, {others} other fields"
    twice = [number for number, block in sorted(blocks.items()) if number in merged and not is_merged(block)]
    if twice:
        yield "I15", f"blocks {twice} of the originals are also in a merged block"


def _are_signatures(number: int, block: bytes, field: bytes) -> bool:
    try:
        signatures = split_signatures(field)
    except Undecodable:
        return False
    return len(signatures) == len(numbers_in(number, block)) and all(map(is_signature, signatures))


def _are_vectors(encoded: bytes) -> bool:
    try:
        return decode_vectors(encoded) is not None
    except Undecodable:
        return False


def _place_rules(seen: StoredSession, counters: Counters, late_ms: int) -> Broken:
    times = {seen.state_expires_ms} | ({seen.messages_expire_ms} if seen.elements else set())
    # Originals of an earlier session keep the expiry that session had.
    if (seen.text(layout.WITH_ORIGINALS) or counters.has_bodies) and seen.originals:
        times.add(seen.originals_expire_ms)
    if not all(counters.expires_ms <= time_ms <= counters.expires_ms + late_ms for time_ms in times):
        yield "I8", f"the keys expire at {sorted(times)}, but {counters.expires_ms} is recorded"
    sign = -1 if "x" in counters.policy else 1
    if seen.places["active"] != sign * counters.active_ms:
        yield "I12", f"listed as active at {seen.places['active']}, but {counters.active_ms} is recorded"
    owner = decode_owner(seen.fields.get(layout.OWNER))
    if seen.places["owners"] != (None if owner is None else owner_score(owner)):
        yield "I12", "the index of owners and the session's state disagree about its owner"
    place = seen.places["evictions"]
    is_watched = counters.evicting is None and counters.policy.strip("bw") != ""
    is_right = place == -counters.expires_ms if is_watched else (place is not None) == (counters.evicting is not None)
    if not is_right:
        yield "I12", "the eviction queue and the session's state disagree about its eviction"
