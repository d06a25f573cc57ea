"""The inverted index of one session, built from the signatures of its blocks. No I/O.

A query looks up only its own stems, so its cost grows with the number of matches, not with the length of the session.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise

from redismem.originals.blocks import BLOCK_COUNT, first_seq_of
from redismem.originals.signatures import WEIGHTS, Signature
from redismem.recall.segments import SEGMENT_BLOCKS, Segment

# A stem is rare in a segment if two to four messages contain it. This many stems of a segment are looked at.
_RARE_COUNTS, _PAIRED_STEMS = (2, 4), 4_096
# The growing block and the unfrozen segment may be small, so the usual weight looks at one more.
_NEWEST_SEGMENTS = 3


class Postings:
    """An inverted index from stems to the messages of one session.

    A full block is added once. The last, partly filled block is replaced as it grows.
    """

    def __init__(self) -> None:
        self.count = 0
        """The number of messages that contain words."""
        self._segments: dict[int, Segment] = {}
        """The segments by number, each with SEGMENT_BLOCKS blocks. Only the last one is not frozen."""
        self._growing: tuple[int, Segment] | None = None
        self._frozen_bytes = 0

    @property
    def size_bytes(self) -> int:
        """The approximate memory of the index, in bytes."""
        return self._frozen_bytes + sum([segment.size_bytes for segment in self.segments() if not segment.is_frozen])

    @property
    def segment_count(self) -> int:
        """The number of segments, without the growing block."""
        return len(self._segments)

    @property
    def stop_seq(self) -> int:
        """The seq after the last message of the index; 0 if it is empty."""
        segments = self.segments()
        return segments[-1].first_seq + len(segments[-1].weights) if segments else 0

    def segments(self) -> list[Segment]:
        """Return the segments, oldest first. The last one may be the growing block."""
        growing = self._growing
        own = [segment for _, segment in sorted(self._segments.items())]
        return own if growing is None else [*own, growing[1]]

    def add(self, signatures: Sequence[tuple[int, Signature]]) -> None:
        """Add full blocks, ascending, each once. If `grow` has added one of them before, the full block replaces it.

        A segment takes no more blocks once its last block, or one of a later segment, was added.
        """
        if self._growing is not None and self._growing[0] in {number for number, _ in signatures}:
            self.grow(0, None)
        newest = max([*self._segments, *(number // SEGMENT_BLOCKS for number, _ in signatures[-1:])], default=0)
        for at, group in groupby(signatures, lambda each: each[0] // SEGMENT_BLOCKS):
            blocks = [(number % SEGMENT_BLOCKS, signature) for number, signature in group]
            before = self._segments.get(at)
            if before is None and (at < newest or blocks[-1][0] == SEGMENT_BLOCKS - 1):
                self._set(at, Segment.of(_first_seq(at), blocks))
            else:
                segment = Segment(_first_seq(at)) if before is None else before
                self.count -= segment.count
                segment.add(blocks)
                self._set(at, segment)
        for at, segment in list(self._segments.items()):
            if not segment.is_frozen and (at < newest or len(segment.block_bytes) == SEGMENT_BLOCKS):
                self.count -= segment.count
                self._set(at, segment.freeze())

    def _set(self, at: int, segment: Segment) -> None:
        self._segments[at] = segment
        self.count += segment.count
        self._frozen_bytes += segment.size_bytes if segment.is_frozen else 0

    def grow(self, number: int, signature: Signature | None) -> None:
        """Replace the last, partly filled block. `None` means that no block is partly filled."""
        if self._growing is not None:
            self.count -= self._growing[1].count
            self._growing = None
        if signature is not None:
            segment = Segment(first_seq_of(number))
            segment.add([(0, signature)])
            self._growing = number, segment
            self.count += segment.count

    def drop_oldest(self) -> int:
        """Drop the oldest segment, and return the number of the first block after it."""
        at = min(self._segments)
        dropped = self._segments.pop(at)
        self.count -= dropped.count
        self._frozen_bytes -= dropped.size_bytes if dropped.is_frozen else 0
        return (at + 1) * SEGMENT_BLOCKS

    def block_bytes(self, number: int) -> int | None:
        """Return the unpacked size of a block; `None` if the index does not contain the block."""
        segment, position = self._place_of(number)
        if segment is None or not 0 <= position < len(segment.block_bytes):
            return None
        size = segment.block_bytes[position]
        return None if size < 0 else size

    def weight_classes(self, number: int) -> bytes:
        """Return the number of the weight of each message of a block, 0 without a message; b"" without the block."""
        segment, position = self._place_of(number)
        at = position * BLOCK_COUNT
        return b"" if segment is None else bytes(segment.weights[at : at + BLOCK_COUNT])

    def message_weights(self, seqs: Iterable[int]) -> list[int]:
        """Return the number in WEIGHTS of the weight of each message; 0 means that there is no message."""
        segments, found = self.segments(), list[int]()
        first_seqs = [segment.first_seq for segment in segments]
        first_seq, weights = 0, bytearray()
        for seq in seqs:
            if not 0 <= seq - first_seq < len(weights) and (at := bisect_right(first_seqs, seq)):
                first_seq, weights = first_seqs[at - 1], segments[at - 1].weights
            place = seq - first_seq
            found.append(weights[place] if 0 <= place < len(weights) else 0)
        return found

    def usual_weight(self) -> float:
        """Return the mean weight of a word in the newest messages; 0 without messages."""
        classes = b"".join([segment.weights for segment in self.segments()[-_NEWEST_SEGMENTS:]])
        counts = [classes.count(number) for number in range(1, len(WEIGHTS))]
        return sum([count * weight for count, weight in zip(counts, WEIGHTS[1:], strict=True)]) / max(1, sum(counts))

    def _place_of(self, number: int) -> tuple[Segment | None, int]:
        """Return the segment that may contain a block, and the position of the block in it."""
        if (growing := self._growing) is not None and growing[0] == number:
            return growing[1], 0
        return self._segments.get(number // SEGMENT_BLOCKS), number % SEGMENT_BLOCKS

    def of(self, stem_hash: int) -> list[int]:
        """Return the seqs of the messages that contain a stem, ascending."""
        return [segment.first_seq + place for segment in self.segments() for place in segment.find(stem_hash)]

    def rare_pairs(self) -> Iterator[tuple[int, int]]:
        """Yield pairs of messages that share a rare stem, as seqs, newest segment first."""
        fewest, most = _RARE_COUNTS
        for segment in reversed(self.segments()):
            base = segment.first_seq
            for places in segment.lists(_PAIRED_STEMS):
                if fewest <= len(places) <= most:
                    yield from ((base + one, base + other) for one, other in pairwise(places))


def _first_seq(at: int) -> int:
    """Return the first seq of a segment."""
    return first_seq_of(at * SEGMENT_BLOCKS)
