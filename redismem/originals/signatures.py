"""Signatures: the full-text index of one block, in a few hundred bytes. No I/O.

A signature maps each stem of the block, hashed to 16 bits, to a mask of the block's 16 messages. Hash collisions cause
false positives, never misses. Question words are stop words. A user's message that may tell a standing rule also has
the stem RULE_MARK. Its layout, sizes in bytes:

    crc (2), count of stems (2), size of the marks (2), size of the block (4), lengths of the messages (8),
    count of days (1), for each: its first place (1) and its ordinal (3),
    low bytes of the deltas between sorted hashes, marks (their high bytes in unary),
    a bit per stem: in one message only; a bit per other stem: in two messages only,
    the places of both (4 bits each), the masks of all other stems (2 each)

The field `s<n>` of the originals of a single block has a byte 1 and its signature; that of a merged block a byte 5, and

    crc (2), for each of the four blocks: its size, lengths and days as above; then all stems (`merged_stems`)

An earlier form of the latter has a byte 4, the size of each signature (3 each), and the signatures of the four blocks.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import NamedTuple
from zlib import crc32

from redismem.messages.values import Undecodable
from redismem.originals.blocks import BLOCK_COUNT, MERGED_BLOCKS, head_of
from redismem.originals.merged_stems import decode_stems, encode_stems
from redismem.text.stems import QUESTION_STEMS, stems

STEMS_LIMIT = 512
"""The most distinct stems of one message that are indexed, which bounds the size of a signature."""
TEXT_CHARS = 32_768
"""The number of characters of a message's text that are indexed."""

# Parameters of BM25. The average length is a constant instead of a statistic, so that weights never change.
_K1, _B, _USUAL_COUNT = 1.2, 0.5, 24
# Lengths are rounded down to one of these numbers, because the weight needs no better precision.
_LENGTHS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192)
WEIGHTS = (0.0, *((_K1 + 1) / (1 + _K1 * (1 - _B + _B * length / _USUAL_COUNT)) for length in _LENGTHS[1:]))
_CRC_BYTES = 2
_HEAD_BYTES, _STATS_BYTES = 6, 13
_DAY_BYTES = 4
_SIZE_BYTES = 3
_ONE, _FOUR, _MERGED = 1, MERGED_BLOCKS, 5
# Two bytes after the first two say that a signature is a part of those of a merged block: no block has as many stems.
_PART_MARK, _PART_BYTES = b"\xff\xff", 4
_LENGTH_OF = {weight: length for length, weight in enumerate(WEIGHTS)}
_EPOCH, _LAST_DAY = date(1970, 1, 1).toordinal(), date.max.toordinal()
_DIGITS = "0123456789abcdef"
_WEIGHT_OF = dict(zip(_DIGITS, WEIGHTS, strict=True))
_PLACE_OF = {digit: 1 << place for place, digit in enumerate(_DIGITS)}
RULE_MARK = "rule0mark"
"""The text that marks the message of a standing rule. It is a stem, and no word of any language."""


@dataclass(frozen=True, slots=True)
class Signature:
    """The index of one block: its stems, and the messages that contain them."""

    weights: tuple[float, ...]
    """The weight of a stem for each position in the block, higher for short messages; 0 without a message or words."""
    count: int
    """The number of messages with words."""
    block_bytes: int
    """The decompressed size of the block."""
    hashes: array[int]
    """The hashes of the block's stems, ascending."""
    masks: array[int]
    """For each hash, a bit mask of the positions whose messages contain the stem."""
    days: tuple[tuple[int, int], ...] = ()
    """The days since 1970 of the messages, each with a bit mask of its positions. A day may occur twice."""

    def places(self) -> dict[int, int]:
        """Return the masks by stem hash."""
        return dict(zip(self.hashes, self.masks, strict=True))


@lru_cache(maxsize=16_384)
def stem_hash(stem: str) -> int:
    """Hash a stem to 16 bits."""
    return crc32(stem.encode("utf-8", "surrogatepass")) & 0xFFFF


def distinct_stems(texts: Iterable[str]) -> tuple[set[str], int]:
    """Return at most STEMS_LIMIT distinct stems of one message, and the number of words read for them."""
    distinct: set[str] = set()
    count, left = 0, TEXT_CHARS
    for text in texts:
        for stem in stems(text[:left]):
            count += 1
            if stem not in QUESTION_STEMS:
                distinct.add(stem)
            if len(distinct) >= STEMS_LIMIT:
                return distinct, count
        left -= len(text)
        if left <= 0:
            break
    return distinct, count


def encode_signature(
    place: int, messages: Sequence[Iterable[str]], block_bytes: int, days: Sequence[int] = ()
) -> bytes:
    """Encode the signature of a block.

    Args:
        messages: The texts of each message from position `place` on.
        days: The day of each of these messages, counted from 1970. Empty: the signature has no days.
    """
    return _encode_single(make_signature(place, messages, block_bytes, days))


def _encode_single(signature: Signature) -> bytes:
    hashes = signature.hashes
    steps = [after - before for before, after in zip([0, *hashes], hashes, strict=False)]
    # The low bytes of the deltas are nearly random. The high bytes are small, so their unary code (n zeros, then a one)
    # is short.
    marks = _pack_bits("".join("0" * (step >> 8) + "1" for step in steps))
    head = len(hashes).to_bytes(2, "big") + len(marks).to_bytes(2, "big")
    lows = bytes(step & 0xFF for step in steps)
    content = head + _encode_stats(signature) + lows + marks + _encode_masks(signature.masks)
    return _crc(content) + content


def make_signature(
    place: int, messages: Sequence[Iterable[str]], block_bytes: int, days: Sequence[int] = ()
) -> Signature:
    """Return what `decode_signature` makes of `encode_signature`, in half the time. Takes the same arguments."""
    masks, lengths = _index(place, messages)
    hashes = sorted(masks)
    return Signature(
        tuple([WEIGHTS[length] for length in lengths]),
        BLOCK_COUNT - lengths.count(0),
        block_bytes,
        array("H", hashes),
        array("H", [masks[hashed] for hashed in hashes]),
        _days_of(place, days),
    )


def _index(place: int, messages: Sequence[Iterable[str]]) -> tuple[dict[int, int], list[int]]:
    """Return the mask of each hash of a stem, and the length of the message at each position of the block."""
    masks: dict[int, int] = {}
    lengths = [0] * BLOCK_COUNT
    for at, texts in enumerate(messages, place):
        distinct, count = distinct_stems(texts)
        lengths[at] = bisect_right(_LENGTHS, count) - 1
        bit = 1 << at
        for stem in distinct:
            hashed = stem_hash(stem)
            masks[hashed] = masks.get(hashed, 0) | bit
    return masks, lengths


def _days_of(place: int, days: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Return each day that differs from that of the message before, with the positions of its messages."""
    changes = [(at, day) for at, (before, day) in enumerate(zip((None, *days), days, strict=False)) if day != before]
    stops = [*(at for at, _ in changes[1:]), BLOCK_COUNT - place]
    return tuple(
        [
            (min(max(day + _EPOCH, 1), _LAST_DAY) - _EPOCH, (1 << stop) - (1 << at) << place)
            for (at, day), stop in zip(changes, stops, strict=False)
        ]
    )


def _encode_stats(signature: Signature) -> bytes:
    """Encode what a signature says besides its stems. Consecutive messages mostly share a day."""
    lengths = _pack_digits([_LENGTH_OF[weight] for weight in signature.weights])
    days = [bytes((_first_place(mask),)) + (day + _EPOCH).to_bytes(3, "big") for day, mask in signature.days]
    return signature.block_bytes.to_bytes(4, "big") + lengths + bytes((len(days),)) + b"".join(days)


def _first_place(mask: int) -> int:
    return (mask & -mask).bit_length() - 1


class _Stats(NamedTuple):
    """The fields of a signature besides its stems."""

    weights: tuple[float, ...]
    block_bytes: int
    days: tuple[tuple[int, int], ...]

    def signed(self, hashes: array[int], masks: array[int]) -> Signature:
        count = BLOCK_COUNT - self.weights.count(0.0)
        return Signature(self.weights, count, self.block_bytes, hashes, masks, self.days)


def _decode_stats(encoded: bytes, at: int) -> tuple[_Stats, int]:
    """Return the stats that begin at an offset, and the offset of their end. Raises IndexError."""
    start = at + _STATS_BYTES
    stop = start + _DAY_BYTES * encoded[start - 1]
    weights = tuple(map(_WEIGHT_OF.__getitem__, encoded[at + 4 : start - 1].hex()))
    return _Stats(weights, int.from_bytes(encoded[at : at + 4], "big"), _decode_days(encoded[start:stop])), stop


def _decode_days(encoded: bytes) -> tuple[tuple[int, int], ...]:
    places = [min(place, BLOCK_COUNT) for place in encoded[::_DAY_BYTES]]
    days = [
        int.from_bytes(encoded[at + 1 : at + _DAY_BYTES], "big") - _EPOCH for at in range(0, len(encoded), _DAY_BYTES)
    ]
    stops = [*places[1:], BLOCK_COUNT]
    masks = [(1 << stop) - (1 << place) for place, stop in zip(places, stops, strict=False)]
    return tuple([(day, mask) for day, mask in zip(days, masks, strict=False) if mask > 0])


def _encode_masks(masks: Sequence[int]) -> bytes:
    sizes = [mask.bit_count() for mask in masks]
    ones = _pack_bits("".join("1" if size == 1 else "0" for size in sizes))
    twos = _pack_bits("".join("1" if size == 2 else "0" for size in sizes if size != 1))
    few = [place for mask in masks if mask.bit_count() <= 2 for place in range(BLOCK_COUNT) if mask >> place & 1]
    return ones + twos + _pack_digits(few) + b"".join(mask.to_bytes(2, "big") for mask in masks if mask.bit_count() > 2)


def _pack_bits(bits: str) -> bytes:
    """Pack bits into bytes. A leading 1 marks the start of the bits."""
    return int("1" + bits, 2).to_bytes(len(bits) // 8 + 1, "big")


def _pack_digits(numbers: Sequence[int]) -> bytes:
    digits = "".join([_DIGITS[number] for number in numbers])
    return bytes.fromhex(digits + "0" * (len(digits) % 2))


def _crc(content: bytes) -> bytes:
    return (crc32(content) & 0xFFFF).to_bytes(_CRC_BYTES, "big")


def decode_signature(encoded: bytes) -> Signature:
    """Decode a signature. Raises Undecodable."""
    if encoded[_CRC_BYTES:_PART_BYTES] == _PART_MARK:
        return _decode_merged(encoded[_PART_BYTES:])[encoded[0] % MERGED_BLOCKS]
    if len(encoded) < _HEAD_BYTES + _STATS_BYTES or _crc(encoded[_CRC_BYTES:]) != encoded[:_CRC_BYTES]:
        raise Undecodable("a signature is none")
    count, marks_bytes = (int.from_bytes(encoded[at : at + 2], "big") for at in (2, 4))
    stats, start = _decode_stats(encoded, _HEAD_BYTES)
    lows = encoded[start : start + count]
    end = start + count + marks_bytes
    steps = "{:b}".format(int.from_bytes(encoded[start + count : end], "big"))[1:].split("1")
    try:
        hashes = array("H", accumulate([len(step) << 8 | low for step, low in zip(steps, lows, strict=False)]))
        masks = array("H", _decode_masks(encoded[end:], count))
    except (OverflowError, IndexError, StopIteration):
        raise Undecodable("a signature is none") from None
    if len(hashes) != count or len(masks) != count:
        raise Undecodable("a signature is none")
    return stats.signed(hashes, masks)


@lru_cache(maxsize=8)  # a search decodes the four signatures of a merged block one after the other
def _decode_merged(encoded: bytes) -> tuple[Signature, ...]:
    """Decode the signatures of a merged block. Raises Undecodable."""
    if len(encoded) < _CRC_BYTES + MERGED_BLOCKS * _STATS_BYTES or _crc(encoded[_CRC_BYTES:]) != encoded[:_CRC_BYTES]:
        raise Undecodable("signatures are none")
    every, at = list[_Stats](), _CRC_BYTES
    try:
        for _ in range(MERGED_BLOCKS):
            stats, at = _decode_stats(encoded, at)
            every.append(stats)
    except IndexError:
        raise Undecodable("signatures are none") from None
    stems_of_all = decode_stems(encoded[at:])
    return tuple([stats.signed(*its_stems) for stats, its_stems in zip(every, stems_of_all, strict=True)])


def _decode_masks(encoded: bytes, count: int) -> list[int]:
    ones, at = _unpack_bits(encoded, 0, count)
    others_count = ones.count("0")
    twos, at = _unpack_bits(encoded, at, others_count)
    few_count = count - others_count + 2 * twos.count("1")
    few_bytes = (few_count + 1) // 2
    few = map(_PLACE_OF.__getitem__, encoded[at : at + few_bytes].hex())
    many = encoded[at + few_bytes :]
    rest = iter([many[at] << 8 | many[at + 1] for at in range(0, len(many), 2)])
    kinds = iter(twos)
    return [next(few) if one == "1" else next(few) | next(few) if next(kinds) == "1" else next(rest) for one in ones]


def _unpack_bits(encoded: bytes, at: int, count: int) -> tuple[str, int]:
    """Return `count` bits starting at byte `at`, and the offset of the byte after them."""
    end = at + count // 8 + 1
    bits = "{:b}".format(int.from_bytes(encoded[at:end], "big"))[1:]
    if len(bits) != count:
        raise IndexError
    return bits, end


def join_signatures(signatures: Sequence[bytes]) -> bytes:
    """Return the field for the signatures of one block, or of the four blocks in a merged one. Raises Undecodable."""
    if len(signatures) == 1:
        is_part = signatures[0][_CRC_BYTES:_PART_BYTES] == _PART_MARK
        return bytes([_ONE]) + (_encode_single(decode_signature(signatures[0])) if is_part else signatures[0])
    decoded = [decode_signature(each) for each in signatures]
    content = b"".join(map(_encode_stats, decoded)) + encode_stems([each.places() for each in decoded])
    return bytes([_MERGED]) + _crc(content) + content


def split_signatures(field: bytes) -> list[bytes]:
    """Return the signatures in a field, of one block or of four. Raises Undecodable."""
    form = field[0] if field else 0
    if form == _ONE:
        return [field[1:]]
    if form == _MERGED:
        return [bytes([at, at]) + _PART_MARK + field[1:] for at in range(MERGED_BLOCKS)]
    start = 1 + MERGED_BLOCKS * _SIZE_BYTES
    sizes = [int.from_bytes(field[at : at + _SIZE_BYTES], "big") for at in range(1, start, _SIZE_BYTES)]
    stops = list(accumulate(sizes, initial=start))
    if form != _FOUR or stops[-1] != len(field):
        raise Undecodable("signatures are none")
    return [field[start:stop] for start, stop in pairwise(stops)]


def find_signatures(fields: Mapping[int, bytes | None], numbers: Iterable[int]) -> list[bytes | None]:
    """Return the signature of each of these blocks: None for a missing one, b"" for one in an unreadable field.

    `fields` has the fields `s<n>` of these blocks, and of the merged blocks that may contain them.
    """
    split: dict[int, list[bytes]] = {}
    for number, field in fields.items():
        if field is not None:
            try:
                split[number] = split_signatures(field)
            except Undecodable:
                split[number] = [b""]
    found: list[bytes | None] = []
    for number in numbers:
        merged = split.get(head_of(number), [])
        if len(merged) > 1:
            found.append(merged[number - head_of(number)])
        elif (own := split.get(number)) is not None:
            found.append(own[0])
        else:
            found.append(b"" if b"" in merged else None)
    return found


def is_signature(encoded: bytes) -> bool:
    """True if a signature can be decoded: it may be damaged, or of another build."""
    try:
        decode_signature(encoded)
    except Undecodable:
        return False
    return True
