"""Where each stem of a conversation stands: what its blocks' signatures say, for one question after another. No I/O.

A question looks up its own stems, so it costs what is found for it, not what was ever said.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from redismem.originals.blocks import BLOCK_COUNT
from redismem.originals.signatures import Signature

SEGMENT_COUNT = 256
"""Blocks that are forgotten together."""
PLACES = (1 << BLOCK_COUNT) - 1
"""The bits of the places in a block."""
_ENTRY: Final = "Q"
_ENTRY_BYTES = 8
# What a block, and a stem in a segment, take beside their entries, about.
_BLOCK_BYTES, _STEM_BYTES = 400, 104


class Known(NamedTuple):
    """What a signature says of its block beside the stems."""

    weights: Sequence[float]
    message_count: int
    block_bytes: int


class Postings:
    """The stems in the blocks of one session. A full block is taken up once, the one that is not full as it grows."""

    def __init__(self) -> None:
        self.count = 0
        """Messages that have words."""
        self.blocks: dict[int, Known] = {}
        """What the signature of each block says beside the stems, by the block's number."""
        self._segments: dict[int, dict[int, int | bytes]] = {}
        """By segment and stem, an entry for each block with the stem. One alone stays a number: most stems have one."""
        self._growing: tuple[int, Mapping[int, int]] | None = None
        self._entry_count = 0

    @property
    def size_bytes(self) -> int:
        stem_count = sum(map(len, self._segments.values())) + (0 if self._growing is None else len(self._growing[1]))
        return _STEM_BYTES * stem_count + _ENTRY_BYTES * self._entry_count + _BLOCK_BYTES * len(self.blocks)

    def add(self, signatures: Sequence[tuple[int, Signature]]) -> None:
        """Takes up blocks by their numbers, each for the first time but for one that grew before."""
        for number, signature in signatures:
            self._note(number, signature)
            segment = self._segments.setdefault(number // SEGMENT_COUNT, {})
            known, above = segment.get, number << BLOCK_COUNT
            for hashed, mask in zip(signature.hashes, signature.masks, strict=True):
                entry, before = above | mask, known(hashed)
                segment[hashed] = entry if before is None else _encoded(before) + _encoded(entry)
            self._entry_count += len(signature.hashes)

    def grow(self, number: int, signature: Signature | None) -> None:
        """The block that is not full yet, if there is one."""
        if self._growing is not None:
            self._forget(self._growing[0])
        if signature is not None:
            self._note(number, signature)
            self._growing = number, signature.places()

    def drop_before(self, number: int) -> None:
        """Whole segments of blocks before this one are forgotten."""
        first = number // SEGMENT_COUNT
        for at in [at for at in self._segments if at < first]:
            gone = self._segments.pop(at)
            self._entry_count -= sum(len(_encoded(each)) for each in gone.values()) // _ENTRY_BYTES
            for each in [each for each in self.blocks if each // SEGMENT_COUNT == at]:
                self._forget(each)

    def _note(self, number: int, signature: Signature) -> None:
        self._forget(number)
        self.blocks[number] = Known(signature.weights, signature.count, signature.block_bytes)
        self.count += signature.count

    def _forget(self, number: int) -> None:
        gone = self.blocks.pop(number, None)
        self.count -= 0 if gone is None else gone.message_count
        if self._growing is not None and self._growing[0] == number:
            self._growing = None

    def of(self, stem_hash: int) -> list[int]:
        """Where a stem stands: of each block that has it one integer, its number before 16 bits: a place in it each."""
        found: list[int] = []
        growing = self._growing
        for segment in list(self._segments.values()):
            if (known := segment.get(stem_hash)) is not None:
                if isinstance(known, int):
                    found.append(known)
                else:
                    found += memoryview(known).cast(_ENTRY)
        if growing is not None and (mask := growing[1].get(stem_hash)):
            found.append(growing[0] << BLOCK_COUNT | mask)
        return found


def _encoded(entry: int | bytes) -> bytes:
    return entry if isinstance(entry, bytes) else entry.to_bytes(_ENTRY_BYTES, sys.byteorder)
