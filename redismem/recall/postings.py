"""The inverted index of one session, built from the signatures of its blocks. No I/O.

A query looks up only its own stems, so its cost grows with the number of matches, not with the length of the session.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple

from redismem.originals.blocks import BLOCK_COUNT
from redismem.originals.signatures import Signature

SEGMENT_COUNT = 256
"""The number of blocks per segment. Old blocks are dropped a segment at a time."""
_SEGMENT_SEQS = SEGMENT_COUNT * BLOCK_COUNT
_POSTING: Final = "H"
# The approximate memory of a block, and of a stem in a segment, without their postings.
_BLOCK_BYTES, _STEM_BYTES = 530, 120
# A stem is rare in a segment if two to four messages contain it. This many stems of a segment are looked at.
_RARE_BYTES, _PAIRED_STEMS = (4, 8), 4_096
_NO_WEIGHTS = (0.0,) * BLOCK_COUNT


class BlockStats(NamedTuple):
    """The contents of a signature apart from its stems."""

    weights: Sequence[float]
    """The weight of a stem at each position of the block: higher in a short message, 0 if there is no message."""
    message_count: int
    """The number of messages that contain words."""
    block_bytes: int
    """The unpacked size of the block in bytes."""
    days: Sequence[tuple[int, int]]
    """The days of the messages, each with one bit per position."""


class Postings:
    """An inverted index from stems to the messages of one session.

    A full block is added once. The last, partly filled block is replaced as it grows.
    """

    def __init__(self) -> None:
        self.count = 0
        """The number of messages that contain words."""
        self.blocks: dict[int, BlockStats] = {}
        """The stats of each block by its number."""
        self._segments: dict[int, dict[int, bytes]] = {}
        """The posting list of each stem, by segment: for each message, its distance from the segment's first one."""
        self.weights: tuple[int, list[float]] = 0, []
        """The weight of a stem in each message, and the seq of the first one. 0 means that there is no message."""
        self._growing: tuple[int, Mapping[int, int]] | None = None
        self._postings_bytes = 0

    @property
    def size_bytes(self) -> int:
        stem_count = sum(map(len, self._segments.values())) + (0 if self._growing is None else len(self._growing[1]))
        return _STEM_BYTES * stem_count + self._postings_bytes + _BLOCK_BYTES * len(self.blocks)

    def add(self, signatures: Sequence[tuple[int, Signature]]) -> None:
        """Add full blocks, each once. If `grow` has added one of them before, the full block replaces it."""
        for number, signature in signatures:
            self._set_stats(number, signature)
            at, place = divmod(number, SEGMENT_COUNT)
            segment = self._segments.setdefault(at, {})
            get_postings, added_bytes = segment.get, 0
            for hashed, mask in zip(signature.hashes, signature.masks, strict=True):
                postings, before = _encode_postings(place, mask), get_postings(hashed)
                segment[hashed] = postings if before is None else before + postings
                added_bytes += len(postings)
            self._postings_bytes += added_bytes

    def grow(self, number: int, signature: Signature | None) -> None:
        """Replace the last, partly filled block. `None` means that no block is partly filled."""
        if self._growing is not None:
            self._remove_stats(self._growing[0])
        if signature is not None:
            self._set_stats(number, signature)
            self._growing = number, signature.places()

    def drop_before(self, number: int) -> None:
        """Drop every segment that contains only blocks before this one."""
        first = number // SEGMENT_COUNT
        for at in [at for at in self._segments if at < first]:
            self._postings_bytes -= sum(map(len, self._segments.pop(at).values()))
            for block in [block for block in self.blocks if block // SEGMENT_COUNT == at]:
                self._remove_stats(block)
        first_seq, weights = self.weights
        if (dropped_count := first * _SEGMENT_SEQS + 1 - first_seq) > 0 and weights:
            # A new list, since a search in another thread may be reading the old one.
            self.weights = first_seq + dropped_count, weights[dropped_count:]

    def _set_stats(self, number: int, signature: Signature) -> None:
        self._remove_stats(number)
        self.blocks[number] = BlockStats(signature.weights, signature.count, signature.block_bytes, signature.days)
        self.count += signature.count
        self._set_weights(number, signature.weights)

    def _remove_stats(self, number: int) -> None:
        removed = self.blocks.pop(number, None)
        if removed is not None:
            self.count -= removed.message_count
            self._set_weights(number, _NO_WEIGHTS)
        if self._growing is not None and self._growing[0] == number:
            self._growing = None

    def _set_weights(self, number: int, block_weights: Sequence[float]) -> None:
        first_seq, weights = self.weights
        if not weights:
            first_seq = number // SEGMENT_COUNT * _SEGMENT_SEQS + 1
            self.weights = first_seq, weights
        at = number * BLOCK_COUNT + 1 - first_seq
        if at < 0:
            return  # the segment of the block has been dropped
        if at >= len(weights):  # a block without a readable signature has no weights
            weights += [0.0] * (at + BLOCK_COUNT - len(weights))
        weights[at : at + BLOCK_COUNT] = block_weights

    def of(self, stem_hash: int) -> Sequence[int]:
        """Return the seqs of the messages that contain a stem, ascending."""
        seqs: Sequence[int] = ()
        growing = self._growing
        for at, segment in list(self._segments.items()):
            if (packed := segment.get(stem_hash)) is not None:
                base, distances = at * _SEGMENT_SEQS, memoryview(packed).cast(_POSTING)
                part = distances.tolist() if base == 0 else [base + distance for distance in distances]
                seqs = [*seqs, *part] if seqs else part
        if growing is not None and (mask := growing[1].get(stem_hash)):
            first_seq = growing[0] * BLOCK_COUNT + 1
            seqs = [*seqs, *(first_seq + place for place in places_of(mask))]
        return seqs

    def rare_pairs(self) -> Iterator[tuple[int, int]]:
        """Yield pairs of messages that share a rare stem, as seqs, newest segment first."""
        for at in sorted(self._segments, reverse=True):
            base = at * _SEGMENT_SEQS
            for packed in list(self._segments[at].values())[:_PAIRED_STEMS]:  # another thread may add some
                if _RARE_BYTES[0] <= len(packed) <= _RARE_BYTES[1]:
                    distances = memoryview(packed).cast(_POSTING)
                    yield from ((base + one, base + other) for one, other in pairwise(distances))

    def on_days(self, matches: Callable[[int], bool]) -> list[int]:
        """Return the seqs of the messages on days that match, ascending."""
        are_meant: dict[int, bool] = {}
        seqs: list[int] = []
        for number, block in list(self.blocks.items()):
            mask = 0
            for day, places in block.days:
                if (is_meant := are_meant.get(day)) is None:
                    is_meant = are_meant[day] = matches(day)
                mask |= places if is_meant else 0
            if mask:
                first_seq = number * BLOCK_COUNT + 1
                seqs += [first_seq + place for place in places_of(mask) if block.weights[place]]
        return seqs


@lru_cache(maxsize=8_192)
def places_of(mask: int) -> tuple[int, ...]:
    """Return the positions of the bits that are set in the mask."""
    return tuple([place for place in range(BLOCK_COUNT) if mask >> place & 1])


@lru_cache(maxsize=16_384)
def _encode_postings(place: int, mask: int) -> bytes:
    """Encode the postings of one block at a place of its segment. Equal ones share one object, to save memory."""
    first = place * BLOCK_COUNT + 1
    return array(_POSTING, [first + position for position in places_of(mask)]).tobytes()
