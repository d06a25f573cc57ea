"""What a block of messages is about, in a few hundred bytes: enough to find what a question is about. No I/O.

A signature has each stem of the block as a hash of 16 bits, and in which of its 16 messages it stands. Two stems may
share a hash: then a message is found that has the other, no message is missed for it.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from zlib import crc32

from redismem.blocks import BLOCK_COUNT, packed, unpacked
from redismem.values import Undecodable
from redismem.words import stems

STEMS_LIMIT = 512
"""Stems of one message that are taken up, each counted once: what a block's signature costs has a bound."""
TEXT_CHARS = 32_768
"""What of a message's text is looked at."""

_LENGTHS = BLOCK_COUNT
# As in BM25; a message of the usual length counts as much in every conversation, so that its weight is found once.
_K1, _B, _USUAL_COUNT = 1.2, 0.5, 24
_WEIGHTS = (
    0.0,
    *((_K1 + 1) / (1 + _K1 * (1 - _B + _B * length / _USUAL_COUNT)) for length in range(1, 256)),
)
_HEAD_BYTES = 8


@dataclass(frozen=True, slots=True)
class Signature:
    """Of one block."""

    weights: tuple[float, ...]
    """Of each place, what a stem that stands there counts: more in a short message. 0: no message, or without words."""
    count: int
    """Messages that have words."""
    block_bytes: int
    """What the block has unpacked."""
    hashes: array[int]
    """Of its stems, in order."""
    masks: array[int]
    """Of each, the places where it stands: a bit each."""

    def places(self, stem_hash: int) -> int:
        """The places of messages that have the stem: a bit each."""
        at = bisect_left(self.hashes, stem_hash)
        return self.masks[at] if at < len(self.hashes) and self.hashes[at] == stem_hash else 0


def stem_hash(stem: str) -> int:
    """16 bits of a stem."""
    return crc32(stem.encode("utf-8", "surrogatepass")) & 0xFFFF


def distinct_stems(texts: Iterable[str]) -> tuple[set[str], int]:
    """The stems of one message, STEMS_LIMIT at most, and how many words it has, as far as they were looked at."""
    found: set[str] = set()
    count, left = 0, TEXT_CHARS
    for text in texts:
        for stem in stems(text[:left]):
            count += 1
            found.add(stem)
            if len(found) >= STEMS_LIMIT:
                return found, count
        left -= len(text)
        if left <= 0:
            break
    return found, count


def encode_signature(place: int, messages: Sequence[Iterable[str]], block_bytes: int) -> bytes:
    """The signature of a block whose messages, from this place on, have these texts."""
    masks: dict[int, int] = {}
    lengths = bytearray(_LENGTHS)
    for at, texts in enumerate(messages, place):
        found, count = distinct_stems(texts)
        lengths[at] = min(count, 255)
        for stem in found:
            hashed = stem_hash(stem)
            masks[hashed] = masks.get(hashed, 0) | 1 << at
    hashes = sorted(masks)
    steps = [after - before for before, after in zip([0, *hashes], hashes, strict=False)]
    # The low bytes of the steps are as good as random. The high ones are small: so many zeros, and a one behind each.
    marks = int("1" + "".join("0" * (step >> 8) + "1" for step in steps), 2)
    marks_bytes = (marks.bit_length() + 7) // 8
    lows = bytes(step & 0xFF for step in steps)
    places = b"".join(masks[hashed].to_bytes(2, "big") for hashed in hashes)
    head = len(hashes).to_bytes(2, "big") + marks_bytes.to_bytes(2, "big") + block_bytes.to_bytes(4, "big")
    # High and low bytes apart: so most of them are alike, and pack better.
    return head + lows + marks.to_bytes(marks_bytes, "big") + packed(bytes(lengths) + places[::2] + places[1::2])


def decode_signature(encoded: bytes) -> Signature:
    """Raises Undecodable."""
    count, marks_bytes, block_bytes = (int.from_bytes(encoded[at:to], "big") for at, to in ((0, 2), (2, 4), (4, 8)))
    end = _HEAD_BYTES + count + marks_bytes
    steps = "{:b}".format(int.from_bytes(encoded[_HEAD_BYTES + count : end], "big"))[1:].split("1")
    try:
        content = unpacked(encoded[end:], most_bytes=_LENGTHS + 2 * BLOCK_COUNT * STEMS_LIMIT)
        if len(steps) != count + 1 or len(content) != _LENGTHS + 2 * count:
            raise Undecodable("a signature is none")
        lows = encoded[_HEAD_BYTES : _HEAD_BYTES + count]
        hashes = array("H", accumulate(len(step) << 8 | low for step, low in zip(steps, lows, strict=False)))
    except OverflowError:
        raise Undecodable("a signature is none") from None
    masks = _numbers(content[_LENGTHS:], count)
    lengths = content[:_LENGTHS]
    weights = tuple([_WEIGHTS[length] for length in lengths])
    return Signature(weights, _LENGTHS - lengths.count(0), block_bytes, hashes, masks)


def _numbers(apart: bytes, count: int) -> array[int]:
    together = bytearray(2 * count)
    together[1::2], together[::2] = apart[:count], apart[count:]
    numbers = array("H", bytes(together))
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
