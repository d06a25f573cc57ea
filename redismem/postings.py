"""Where each stem of a conversation stands: the signatures of its blocks in one order, for one question after another.

No I/O. A stem's places are found by bisection, so a question costs what is found for it, not what was ever said.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from redismem.blocks import BLOCK_COUNT
from redismem.signatures import Signature

SEGMENT_COUNT = 16
"""Blocks that are put into one order together: what a further one costs has a bound."""
APART_COUNT = 4
"""Full blocks that are put into it at once. Till then each is searched by itself: that costs less than the order."""
# Each key has the hash of a stem, the place of its block in the segment, and the places in that: 16, 4, 16 bits.
_HASH_SHIFT, _BLOCK_SHIFT = 20, BLOCK_COUNT
_BELOW_HASH = (1 << _HASH_SHIFT) - 1
PLACES = (1 << BLOCK_COUNT) - 1
"""The bits of the places in a block."""
_BLOCK_BYTES, _STEM_BYTES = 400, 120


class Known(NamedTuple):
    """What a signature says of its block beside the stems."""

    weights: Sequence[float]
    message_count: int
    block_bytes: int


class Postings:
    """Of the blocks of one session. Each full block is taken up once; the newest stand apart till they are some."""

    def __init__(self) -> None:
        self.count = 0
        """Messages that have words."""
        self.blocks: dict[int, Known] = {}
        """By their numbers."""
        self._segments: dict[int, array[int]] = {}
        self._apart: dict[int, dict[int, int]] = {}
        """Of blocks by their numbers: of each stem, the places where it stands."""
        self._growing: int | None = None
        self.size_bytes = 0

    def _measure(self) -> None:
        apart = sum(_STEM_BYTES * len(places) for places in self._apart.values())
        in_order = sum(8 * len(keys) for keys in self._segments.values())
        self.size_bytes = apart + in_order + _BLOCK_BYTES * len(self.blocks)

    def add(self, signatures: Sequence[tuple[int, Signature]]) -> None:
        """Takes up blocks by their numbers, each for the first time but for one that grew before."""
        for number, signature in signatures:
            self._note(number, signature)
        apart = self._apart | {number: signature.places() for number, signature in signatures}
        full = {number: places for number, places in apart.items() if number != self._growing}
        if len(full) >= APART_COUNT:
            self._put_in_order(full)
            apart = {number: places for number, places in apart.items() if number == self._growing}
        # Another dict each time, and after the segments: whoever searches meanwhile has the one before.
        self._apart = apart
        self._measure()

    def grow(self, number: int, signature: Signature | None) -> None:
        """The block that is not full yet, if there is one."""
        if self._growing is not None:
            self._forget(self._growing)
        if signature is not None:
            self._note(number, signature)
            self._growing, self._apart = number, self._apart | {number: signature.places()}
        self._measure()

    def drop_before(self, number: int) -> None:
        """Whole segments of blocks before this one are forgotten."""
        first = number // SEGMENT_COUNT
        if first <= 0:
            return
        for at in [at for at in self._segments if at < first]:
            del self._segments[at]
        for each in [each for each in self.blocks if each // SEGMENT_COUNT < first]:
            self._forget(each)
        self._measure()

    def _put_in_order(self, apart: Mapping[int, Mapping[int, int]]) -> None:
        made: dict[int, list[int]] = {}
        for number, places in apart.items():
            bits = number % SEGMENT_COUNT << _BLOCK_SHIFT
            keys = made.setdefault(number // SEGMENT_COUNT, [])
            keys += [hashed << _HASH_SHIFT | bits | mask for hashed, mask in places.items()]
        for at, keys in made.items():
            # Another array each time, likewise.
            self._segments[at] = array("Q", sorted([*self._segments.get(at, ()), *keys]))

    def _note(self, number: int, signature: Signature) -> None:
        self._forget(number)
        self.blocks[number] = Known(signature.weights, signature.count, signature.block_bytes)
        self.count += signature.count

    def _forget(self, number: int) -> None:
        gone = self.blocks.pop(number, None)
        self.count -= 0 if gone is None else gone.message_count
        if number in self._apart:
            self._apart = {each: places for each, places in self._apart.items() if each != number}
        if self._growing == number:
            self._growing = None

    def of(self, stem_hash: int) -> list[int]:
        """Where a stem stands: of each block that has it one integer, its number before 16 bits: a place in it each."""
        found: list[int] = []
        low = stem_hash << _HASH_SHIFT
        apart = self._apart  # before the segments, for what stands here now may stand there next
        for at, keys in list(self._segments.items()):
            begin = bisect_left(keys, low)
            end = bisect_left(
                keys, low + _BELOW_HASH, begin, min(begin + SEGMENT_COUNT, len(keys))
            )  # one a block at most
            if begin < end:
                first = at * SEGMENT_COUNT << _BLOCK_SHIFT
                found += [first + (key & _BELOW_HASH) for key in keys[begin:end]]
        for number, places in apart.items():
            if stem_hash in places:
                found.append(number << _BLOCK_SHIFT | places[stem_hash])
        return found
