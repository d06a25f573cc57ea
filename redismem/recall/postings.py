"""The inverted index of one session, built from the signatures of its blocks. No I/O.

A query looks up only its own stems, so its cost grows with the number of matches, not with the length of the session.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from redismem.originals.blocks import BLOCK_COUNT
from redismem.originals.signatures import Signature

SEGMENT_COUNT = 256
"""The number of blocks per segment. Old blocks are dropped a segment at a time."""
PLACES = (1 << BLOCK_COUNT) - 1
"""The mask of all positions in a block."""
_ENTRY: Final = "Q"
_ENTRY_BYTES = 8
# The approximate memory of a block, and of a stem in a segment, without their entries.
_BLOCK_BYTES, _STEM_BYTES = 400, 104


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
        self._segments: dict[int, dict[int, int | bytes]] = {}
        """The entries of each stem, by segment. Each block adds one; a stem's only entry is an int, to save memory."""
        self._growing: tuple[int, Mapping[int, int]] | None = None
        self._entry_count = 0

    @property
    def size_bytes(self) -> int:
        stem_count = sum(map(len, self._segments.values())) + (0 if self._growing is None else len(self._growing[1]))
        return _STEM_BYTES * stem_count + _ENTRY_BYTES * self._entry_count + _BLOCK_BYTES * len(self.blocks)

    def add(self, signatures: Sequence[tuple[int, Signature]]) -> None:
        """Add full blocks, each once. If `grow` has added one of them before, the full block replaces it."""
        for number, signature in signatures:
            self._set_stats(number, signature)
            segment = self._segments.setdefault(number // SEGMENT_COUNT, {})
            get_entries, high_bits = segment.get, number << BLOCK_COUNT
            for hashed, mask in zip(signature.hashes, signature.masks, strict=True):
                entry, before = high_bits | mask, get_entries(hashed)
                segment[hashed] = entry if before is None else _encoded(before) + _encoded(entry)
            self._entry_count += len(signature.hashes)

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
            segment = self._segments.pop(at)
            self._entry_count -= sum(len(_encoded(entries)) for entries in segment.values()) // _ENTRY_BYTES
            for block in [block for block in self.blocks if block // SEGMENT_COUNT == at]:
                self._remove_stats(block)

    def _set_stats(self, number: int, signature: Signature) -> None:
        self._remove_stats(number)
        self.blocks[number] = BlockStats(signature.weights, signature.count, signature.block_bytes, signature.days)
        self.count += signature.count

    def _remove_stats(self, number: int) -> None:
        removed = self.blocks.pop(number, None)
        self.count -= 0 if removed is None else removed.message_count
        if self._growing is not None and self._growing[0] == number:
            self._growing = None

    def of(self, stem_hash: int) -> list[int]:
        """Return the entries of a stem, one integer per block: the block's number, then one bit per position."""
        entries: list[int] = []
        growing = self._growing
        for segment in list(self._segments.values()):
            if (packed := segment.get(stem_hash)) is not None:
                if isinstance(packed, int):
                    entries.append(packed)
                else:
                    entries += memoryview(packed).cast(_ENTRY)
        if growing is not None and (mask := growing[1].get(stem_hash)):
            entries.append(growing[0] << BLOCK_COUNT | mask)
        return entries

    def on_days(self, matches: Callable[[int], bool]) -> list[int]:
        """Return the entries of the messages on days that match, one integer per block, as `of` does."""
        are_meant: dict[int, bool] = {}
        entries: list[int] = []
        for number, block in list(self.blocks.items()):
            mask = 0
            for day, places in block.days:
                if (is_meant := are_meant.get(day)) is None:
                    is_meant = are_meant[day] = matches(day)
                mask |= places if is_meant else 0
            if mask:
                entries.append(number << BLOCK_COUNT | mask)
        return entries


def _encoded(entry: int | bytes) -> bytes:
    return entry if isinstance(entry, bytes) else entry.to_bytes(_ENTRY_BYTES, sys.byteorder)
