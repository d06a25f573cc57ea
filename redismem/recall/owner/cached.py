"""The sessions of an owner as this process has read them: the index of all, and blocks of each. No I/O."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from redismem.errors import UnsupportedFormat
from redismem.messages.decoding import decode_messages
from redismem.messages.gaps import elements_between
from redismem.messages.values import Undecodable
from redismem.originals.blocks import BLOCK_COUNT, block_number, first_seq_of, split_at_blocks
from redismem.originals.fields import index_messages
from redismem.originals.signatures import Signature, decode_signature
from redismem.protocol.owner.calls import Contained, OwnedState, Stored
from redismem.recall.cached import Contents, Part
from redismem.recall.postings import Postings

_OWNER_BYTES, _STATE_BYTES, _SESSION_BYTES, _SIGNATURE_BYTES = 2_000, 1_800, 700, 1_100


class BlockRef(NamedTuple):
    """A block of a session."""

    session_id: str
    number: int


class OwnedSession:
    """The signatures of one session, and the messages that were read of it, as of one state."""

    __slots__ = ("contents", "first_number", "has_window", "parts", "signatures", "size_bytes", "state")

    def __init__(self, state: OwnedState, first_number: int, *, has_window: bool) -> None:
        self.state = state
        self.first_number = first_number
        """The number of the first block that is searched."""
        self.has_window = has_window
        """True if the messages of the window are among the signatures."""
        self.signatures: dict[int, Signature] = {}
        """The signatures of the blocks, by number."""
        self.parts: dict[int, Part] = {}
        """First seq and elements of the messages of the window, by the number of their block."""
        self.contents: dict[int, list[Contents]] = {}
        """The decoded messages of blocks that a search has read, by number."""
        self.size_bytes = 0
        """The approximate memory of this entry, in bytes."""

    @property
    def full_stop(self) -> int:
        """The number of the first block that is not full of originals."""
        return block_number(self.state.first_seq) if self.state.has_originals else 0

    def covers(self, state: OwnedState, first_number: int, *, with_window: bool) -> bool:
        """True if this is what a search in this state needs."""
        is_enough = self.first_number <= first_number and (self.has_window or not with_window)
        return is_enough and self.state.is_as(state, with_window=with_window)

    def add(self, found: Contained, before: OwnedSession | None) -> None:
        """Add what was read, signatures of the window, and what is the same as in an earlier state."""
        if before is not None:
            kept = range(self.first_number, min(before.full_stop, self.full_stop))
            self.signatures = {number: each for number, each in before.signatures.items() if number in kept}
            self.contents = {number: each for number, each in before.contents.items() if number in kept}
        for number, encoded in found.signatures.items():
            if encoded is not None and (signature := _decode_signature(encoded)) is not None:
                self.signatures[number] = signature
        if self.has_window and found.elements:
            try:
                self._add_window(found.elements, before)
            except (Undecodable, UnsupportedFormat):
                self.parts = {}  # the next turn of that session puts it into quarantine, or is refused
        parts_bytes = sum(sys.getsizeof(element) for _, part in self.parts.values() for element in part)
        parts_bytes += sum(each.size_bytes for contents in self.contents.values() for each in contents)
        self.size_bytes = _SESSION_BYTES + _SIGNATURE_BYTES * len(self.signatures) + parts_bytes

    def _add_window(self, elements: Sequence[bytes], before: OwnedSession | None) -> None:
        state = self.state
        first_seq = max(state.first_seq, first_seq_of(self.first_number))
        between = elements_between(elements, state.last_seq, first_seq, state.last_seq + 1)
        if len(between) != state.last_seq + 1 - first_seq:
            raise Undecodable("the window has another length than its counters say")
        signed: dict[int, Signature] = {}
        for seq, part in split_at_blocks(first_seq, between):
            number = block_number(seq)
            self.parts[number] = seq, part
            if before is not None and before.parts.get(number) == (seq, part) and seq == first_seq_of(number):
                signature = before.signatures.get(number)
            else:
                signature = _sign(seq, part, state)
            if signature is not None:
                signed[number] = signature
        for number, signature in signed.items():
            own = self.signatures.get(number)
            self.signatures[number] = signature if own is None else _join(own, signature)


def _decode_signature(encoded: bytes) -> Signature | None:
    try:
        return decode_signature(encoded)
    except Undecodable:
        return None  # the search skips the block; `redismem doctor --deep` reports it


def _sign(first_seq: int, elements: Sequence[bytes], state: OwnedState) -> Signature | None:
    """Return the signature of messages of a window; None without any. Pinned messages are left out."""
    messages = decode_messages(elements, first_seq, state.epoch, state.zone)
    unpinned = [message for message in messages if not message.pinned]
    signature = index_messages(unpinned, sum(map(len, elements))) if unpinned else None
    return signature if signature is not None and signature.count else None


def _join(one: Signature, other: Signature) -> Signature:
    """Return the signature of a block whose first messages are originals, and whose last ones are in the window."""
    masks = one.places()
    for hashed, mask in other.places().items():
        masks[hashed] = masks.get(hashed, 0) | mask
    hashes = sorted(masks)
    return Signature(
        tuple([own or its for own, its in zip(one.weights, other.weights, strict=True)]),
        one.count + other.count,
        one.block_bytes + other.block_bytes,
        array("H", hashes),
        array("H", [masks[hashed] for hashed in hashes]),
        one.days + other.days,
    )


class CachedOwner:
    """The index of one owner: the postings of all sessions, with the blocks in one numbering.

    Each block of each session has a number of its own here, in the order of the sessions' first days. A number is left
    out before each block that does not follow the one before it in its session, so no message has a neighbour there.
    """

    def __init__(self, sessions: Mapping[str, OwnedSession]) -> None:
        self.sessions = sessions
        """The sessions that are searched."""
        self.keys: Mapping[str, bytes] = {}
        """The keys of the states of all sessions that are listed for the owner, without the one that asks."""
        self.stored: Mapping[str, Stored] = {}
        """The fields of these states."""
        self.states: Mapping[str, OwnedState] = {}
        """The states of all sessions of the owner."""
        self.is_cut = False
        """True if a window is not searched, because the windows are too large together."""
        self.unsearched_sessions = 0
        """The number of the owner's sessions with messages that are not searched."""
        self.unsearched_count = 0
        """The number of messages that are not searched."""
        self.postings = Postings()
        self.places: dict[int, BlockRef] = {}
        """The blocks by their numbers here."""
        self.numbers: dict[str, list[int]] = {}
        """The numbers here of the blocks of a session."""
        self.counted_bytes = 0
        """The size of this entry in the cache's sum, in bytes."""
        self.used_s = 0.0
        """The time of the last search, for the cache."""
        number, signatures = -1, list[tuple[int, Signature]]()
        for session in sorted(filter(_has_signatures, sessions.values()), key=_first_day):
            session_id, last = session.state.session_id, -2
            numbers = self.numbers[session_id] = list[int]()
            for own, signature in sorted(session.signatures.items()):
                number += 1 if own == last + 1 else 2
                self.places[number], last = BlockRef(session_id, own), own
                numbers.append(number)
                signatures.append((number, signature))
        self.postings.add(signatures)
        read_bytes = sum(session.size_bytes for session in sessions.values())
        self._read_bytes = _OWNER_BYTES + read_bytes + self.postings.size_bytes

    @property
    def size_bytes(self) -> int:
        """The approximate memory of this entry, in bytes."""
        return self._read_bytes + _STATE_BYTES * len(self.stored)

    def note(
        self,
        own_id: str,
        keys: Mapping[str, bytes],
        stored: Mapping[str, Stored],
        states: Mapping[str, OwnedState],
    ) -> None:
        """Note the states of which this is the index, and how many messages are not in it."""
        self.keys, self.stored, self.states = keys, stored, states
        left_out = {name: self._left_out(state, is_own=name == own_id) for name, state in states.items()}
        self.is_cut = any(window_count for _, window_count in left_out.values())
        self.unsearched_sessions = sum(any(counts) for counts in left_out.values())
        self.unsearched_count = sum(map(sum, left_out.values()))

    def _left_out(self, state: OwnedState, *, is_own: bool) -> tuple[int, int]:
        """Return the number of a session's messages that are not searched: before those that are, and in its window."""
        session = self.sessions.get(state.session_id)
        first_seq = 1 if state.has_originals else state.first_seq
        stop_seq = state.first_seq if is_own else state.last_seq + 1
        if session is None:
            return max(0, stop_seq - first_seq), 0
        window_count = 0 if is_own or session.has_window else stop_seq - state.first_seq
        return max(0, first_seq_of(session.first_number) - first_seq), window_count

    def add_contents(self, place: BlockRef, contents: list[Contents]) -> None:
        """Keep the decoded messages of a block."""
        session = self.sessions[place.session_id]
        added_bytes = sum(each.size_bytes for each in contents)
        added_bytes -= sum(each.size_bytes for each in session.contents.get(place.number, ()))
        session.contents[place.number] = contents
        session.size_bytes += added_bytes
        self._read_bytes += added_bytes

    def seqs_from(self, session_id: str, stop_seq: int) -> Iterable[int]:
        """Return the seqs, in the numbering of all sessions, of a session's messages from `stop_seq` on."""
        for number in self.numbers.get(session_id, ()):
            own = first_seq_of(self.places[number].number)
            if own + BLOCK_COUNT > stop_seq:
                first = first_seq_of(number)
                yield from range(first + max(0, stop_seq - own), first + BLOCK_COUNT)


def _has_signatures(session: OwnedSession) -> bool:
    return bool(session.signatures)


def _first_day(session: OwnedSession) -> tuple[int, str]:
    days = [day for signature in session.signatures.values() for day, _ in signature.days]
    return min(days, default=0), session.state.session_id
