"""One part of an inverted index: the posting lists of at most 256 consecutive blocks. No I/O.

While blocks are added, a dict has a posting list per stem. `freeze` packs the lists into arrays: two bytes per posting
and six per stem, which are found by bisection.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, chain
from typing import Final

from redismem.originals.blocks import BLOCK_COUNT
from redismem.originals.signatures import WEIGHTS, Signature

SEGMENT_BLOCKS = 256
"""The number of blocks per segment."""
SEGMENT_SEQS = SEGMENT_BLOCKS * BLOCK_COUNT
"""The number of messages per segment."""
_POSTING: Final = "H"
# The approximate memory of a segment, of a stem in a dict, and of the other numbers of a block.
_SEGMENT_BYTES, _STEM_BYTES, _BLOCK_BYTES = 1_500, 120, BLOCK_COUNT + 20
_CLASSES = {weight: number for number, weight in enumerate(WEIGHTS)}


class Segment:
    """The postings of consecutive blocks. A **place** is the distance of a message from the first one."""

    __slots__ = ("_hashes", "_lists", "_places", "_starts", "block_bytes", "days", "first_seq", "is_frozen", "weights")

    def __init__(self, first_seq: int) -> None:
        self.first_seq = first_seq
        self.weights = bytearray()
        """For each place, the number of the message's weight in WEIGHTS; 0 means that there is no message."""
        self.block_bytes = array("q")
        """The unpacked size of each block; -1 means that there is no block."""
        self.days = array("q")
        """Day, first place and stop of each run of messages on one day."""
        self.is_frozen = False
        """True if no block can be added."""
        self._lists: dict[int, bytes] = {}
        self._hashes, self._starts, self._places = array(_POSTING), array("I", [0]), array(_POSTING)

    @property
    def count(self) -> int:
        """The number of messages that contain words."""
        return len(self.weights) - self.weights.count(0)

    @property
    def size_bytes(self) -> int:
        """The approximate memory of the segment, in bytes."""
        lists_bytes = sum(map(len, self._lists.values())) + _STEM_BYTES * len(self._lists)
        frozen_bytes = 2 * len(self._places) + 6 * len(self._hashes)
        numbers_bytes = _BLOCK_BYTES * len(self.block_bytes) + 8 * len(self.days)
        return _SEGMENT_BYTES + lists_bytes + frozen_bytes + numbers_bytes

    @classmethod
    def of(cls, first_seq: int, blocks: Sequence[tuple[int, Signature]]) -> Segment:
        """Return a frozen segment of these blocks, see `add`."""
        segment = cls(first_seq)
        segment._freeze_lists(segment._collect(blocks))
        return segment

    def add(self, blocks: Sequence[tuple[int, Signature]]) -> None:
        """Add the signatures of blocks, by their position in the segment, ascending."""
        get = self._lists.get
        for hashed, places in self._collect(blocks).items():
            packed = _pack_one(places[0]) if len(places) == 1 else array(_POSTING, places).tobytes()
            self._lists[hashed] = get(hashed, b"") + packed

    def _collect(self, blocks: Sequence[tuple[int, Signature]]) -> dict[int, list[int]]:
        """Add all of these blocks except their posting lists, which are returned by stem."""
        lists: dict[int, list[int]] = defaultdict(list)
        get_list = lists.__getitem__
        for position, signature in blocks:
            self._add_numbers(position, signature)
            base = position * BLOCK_COUNT
            get_single = {1 << place: base + place for place in range(BLOCK_COUNT)}.get
            for places, mask in zip(map(get_list, signature.hashes.tolist()), signature.masks.tolist(), strict=True):
                if (single := get_single(mask)) is not None:
                    places.append(single)
                else:
                    places += [base + place for place in places_of(mask)]
        return lists

    def _add_numbers(self, position: int, signature: Signature) -> None:
        base = position * BLOCK_COUNT
        self.block_bytes.extend([-1] * (position - len(self.block_bytes)))
        self.block_bytes.append(signature.block_bytes)
        self.weights += bytes(base - len(self.weights))
        self.weights += bytes([_CLASSES[weight] for weight in signature.weights])
        for day, mask in signature.days:
            first, stop = base + (mask & -mask).bit_length() - 1, base + mask.bit_length()
            if self.days and self.days[-3] == day and self.days[-1] == first:
                self.days[-1] = stop
            else:
                self.days.extend((day, first, stop))

    def freeze(self) -> Segment:
        """Return the same segment in less memory, to which no block can be added."""
        frozen = Segment(self.first_seq)
        frozen.weights, frozen.block_bytes, frozen.days = self.weights, self.block_bytes, self.days
        frozen._freeze_lists({hashed: memoryview(packed).cast(_POSTING) for hashed, packed in self._lists.items()})
        return frozen

    def _freeze_lists(self, lists: Mapping[int, Sequence[int]]) -> None:
        hashes = sorted(lists)
        ordered = [lists[hashed] for hashed in hashes]
        self._hashes = array(_POSTING, hashes)
        self._starts = array("I", accumulate(map(len, ordered), initial=0))
        self._places = array(_POSTING, chain.from_iterable(ordered))
        self.is_frozen = True

    def find(self, stem_hash: int) -> Sequence[int]:
        """Return the places of the messages that contain a stem, ascending."""
        if not self.is_frozen:
            packed = self._lists.get(stem_hash)
            return () if packed is None else memoryview(packed).cast(_POSTING).tolist()
        hashes = self._hashes
        at = bisect_left(hashes, stem_hash)
        if at == len(hashes) or hashes[at] != stem_hash:
            return ()
        return self._places[self._starts[at] : self._starts[at + 1]]

    def lists(self, limit: int) -> Iterator[Sequence[int]]:
        """Yield the places of at most `limit` stems."""
        stems = list(self._lists)[:limit] or self._hashes[:limit]
        return map(self.find, stems)

    def on_days(self, matches: Callable[[int], bool]) -> list[range]:
        """Return the places on days that match, ascending. Some may have no message."""
        ranges: list[range] = []
        end = 0  # the runs of a block that grew in two parts overlap
        for day, first, stop in zip(*(iter(self.days),) * 3, strict=True):
            if matches(day) and stop > end:
                ranges.append(range(max(first, end), stop))
                end = stop
        return ranges


@lru_cache(maxsize=8_192)
def places_of(mask: int) -> tuple[int, ...]:
    """Return the positions of the bits that are set in the mask."""
    return tuple([place for place in range(BLOCK_COUNT) if mask >> place & 1])


@lru_cache(maxsize=SEGMENT_SEQS)
def _pack_one(place: int) -> bytes:
    """Pack a posting list of one message. Equal ones share one object, to save memory."""
    return array(_POSTING, [place]).tobytes()
