"""Where each stem of a conversation stands: the signatures of its blocks in one order, for one question after another.

No I/O. A stem's places are found by bisection, so a question costs what is found for it, not what was ever said.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from redismem.signatures import Signature

SEGMENT_COUNT = 16
"""Blocks that are put into one order together: what a further one costs has a bound."""
# Each key has the hash of a stem, the place of its block in the segment, and the places in that: 16, 4, 16 bits.
_HASH_SHIFT, _BLOCK_SHIFT = 20, 16
_MASK, _SLOT = (1 << _BLOCK_SHIFT) - 1, SEGMENT_COUNT - 1
_BELOW_HASH = (1 << _HASH_SHIFT) - 1
_BLOCK_BYTES = 400


class Known(NamedTuple):
    """What a signature says of its block beside the stems."""

    weights: Sequence[float]
    message_count: int
    block_bytes: int


class Postings:
    """Of the blocks of one session. Each full block is taken up once; the one that still grows stands beside them."""

    def __init__(self) -> None:
        self.count = 0
        """Messages that have words."""
        self.blocks: dict[int, Known] = {}
        """By their numbers."""
        self._segments: dict[int, array[int]] = {}
        self._growing: tuple[int, Signature] | None = None

    @property
    def size_bytes(self) -> int:
        growing = 0 if self._growing is None else 4 * len(self._growing[1].hashes)
        return growing + _BLOCK_BYTES * len(self.blocks) + sum(8 * len(keys) for keys in self._segments.values())

    def add(self, signatures: Sequence[tuple[int, Signature]]) -> None:
        """Takes up blocks by their numbers, each for the first time but for one that grew before."""
        made: dict[int, list[int]] = {}
        for number, signature in signatures:
            bits = number % SEGMENT_COUNT << _BLOCK_SHIFT
            pairs = zip(signature.hashes, signature.masks, strict=True)
            keys = made.setdefault(number // SEGMENT_COUNT, [])
            keys += [hashed << _HASH_SHIFT | bits | mask for hashed, mask in pairs]
            self._forget(number)
            self._note(number, signature)
        for at, keys in made.items():
            # Another array each time: whoever searches meanwhile has the one before.
            self._segments[at] = array("Q", sorted([*self._segments.get(at, ()), *keys]))

    def grow(self, number: int, signature: Signature | None) -> None:
        """The block that is not full yet, if there is one."""
        if self._growing is not None:
            self._forget(self._growing[0])
        if signature is not None:
            self._note(number, signature)
            self._growing = (number, signature)

    def drop_before(self, number: int) -> None:
        """Whole segments of blocks before this one are forgotten."""
        while self._segments and (first := min(self._segments)) < number // SEGMENT_COUNT:
            del self._segments[first]
            for each in range(first * SEGMENT_COUNT, (first + 1) * SEGMENT_COUNT):
                self._forget(each)

    def _note(self, number: int, signature: Signature) -> None:
        self.blocks[number] = Known(signature.weights, signature.count, signature.block_bytes)
        self.count += signature.count

    def _forget(self, number: int) -> None:
        gone = self.blocks.pop(number, None)
        self.count -= 0 if gone is None else gone.message_count
        if self._growing is not None and self._growing[0] == number:
            self._growing = None

    def of(self, stem_hash: int) -> dict[int, int]:
        """Where a stem stands: of each block that has it, by its number, the places in it: a bit each."""
        found: dict[int, int] = {}
        low = stem_hash << _HASH_SHIFT
        high = low + _BELOW_HASH
        for at, keys in list(self._segments.items()):
            begin = bisect_left(keys, low)
            for key in keys[begin : begin + SEGMENT_COUNT]:  # one a block at most
                if key > high:
                    break
                found[at * SEGMENT_COUNT + (key >> _BLOCK_SHIFT & _SLOT)] = key & _MASK
        if (growing := self._growing) is not None:
            number, signature = growing
            if places := signature.places(stem_hash):
                found[number] = places
        return found
