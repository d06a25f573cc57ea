"""The codec of the stems in the signatures of a merged block: four blocks share the hash of a stem. No I/O.

Sizes in bytes:

    count of stems (2), size of the marks (2), size of the codes of masks (2), low bytes of the deltas between sorted
    hashes, marks, codes, a byte for each wide delta, two bytes for each mask whose code is `_ANY`

A mark has a byte per stem: the high byte of its delta (4 bits, 15 for a wide one), and the blocks that contain it (4
bits, less one). The codes have a byte for each stem of the first block, then for each of the second, and so on: they
stand for the masks with one or two bits. Marks and codes are frames of zstd without magic number, whose code tables are
built in, because a table of its own would take a tenth of the signature.
"""

from __future__ import annotations

from array import array
from base64 import b64decode
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import accumulate, compress
from sys import byteorder

import zstandard

from redismem.messages.values import Undecodable
from redismem.originals.blocks import BLOCK_COUNT, MERGED_BLOCKS, decompress_frame
from redismem.originals.dictionaries import LEVEL, ZstdDictionary

# zstd dictionaries that are only code tables, for the marks and codes of usual conversations: a part of the format.
_BLOCKS_TABLES = (
    "N6Qw7Ov1fVsxEMCSpg0zMAMzMAMzMAMzwObiGF0QxY9/jD8GsuiRPVvU3d0tbb1bTq7s7s2Vm3ZKAQMAAAAADBQQEJGUIJ4ABKBoZwAADAAF"
    "AAAAAAAAAAAAAAAQCgAAAAAKAAAAAAAAhGAcjh0AAACEyAKDYkNCAoLBeDQOCUcjkqAkkYRJKwEAAAABAAAABAAAAAgAAAA="
)
_MASKS_TABLES = (
    "N6Qw7EoywSNLEGiVVMwBAF88wBcP8MUDfPEAXzzAFw/wxQPG4McAoqoKOOozs5QizYw55xpcQ0laBb9ujJIJPF36kHEc9KEzy0EstLS0tLSJ"
    "lLYDAwBAMGCAYCQWCgqM7wAEoC7qEAAAAAQAAAAAAAAAAAAAEAAAAAAAAAAAAAYAxig2AAAAlIRDA+OCwuFhgiKigbFAMCiWxkPzVBGEDQAA"
    "AAEAAAAEAAAACAAAAA=="
)
_NO_CONTENT = bytes(range(248, 256))
_MAGIC = zstandard.FRAME_HEADER
_HEAD_BYTES = 6
_WIDE = 15
# No block has more distinct stems, because a hash has 16 bits.
_MOST_STEMS = 1 << 16

_FEW = [1 << place for place in range(BLOCK_COUNT)]
_FEW += [1 << one | 1 << other for one in range(BLOCK_COUNT) for other in range(one)]
_CODES = {mask: code for code, mask in enumerate(_FEW)}
_ANY = len(_FEW)
_PAD = bytes(256 - len(_FEW))
_LOW = bytes([mask & 0xFF for mask in _FEW]) + _PAD
_HIGH = bytes([mask >> 8 for mask in _FEW]) + _PAD
_DELTA = bytes([mark >> MERGED_BLOCKS for mark in range(256)])
_IS_IN = [bytes([(mark % 16 + 1) >> block & 1 for mark in range(256)]) for block in range(MERGED_BLOCKS)]

Stems = tuple["array[int]", "array[int]"]
"""The hashes of the stems of a block, ascending, and the mask of each."""


@cache
def _tables() -> tuple[ZstdDictionary, ZstdDictionary]:
    """Return the code tables of marks and of codes."""
    blocks, masks = (b64decode(each) + _NO_CONTENT for each in (_BLOCKS_TABLES, _MASKS_TABLES))
    return ZstdDictionary(blocks), ZstdDictionary(masks)


def encode_stems(blocks: Sequence[Mapping[int, int]]) -> bytes:
    """Encode the stems of four blocks: for each, the mask of each hash."""
    containing: dict[int, int] = {}
    for at, masks_of in enumerate(blocks):
        for hashed in masks_of:
            containing[hashed] = containing.get(hashed, 0) | 1 << at
    hashes = sorted(containing)
    deltas = [after - before for before, after in zip([0, *hashes], hashes, strict=False)]
    marks = [
        min(delta >> 8, _WIDE) << MERGED_BLOCKS | containing[hashed] - 1
        for hashed, delta in zip(hashes, deltas, strict=True)
    ]
    wide = bytes([delta >> 8 for delta in deltas if delta >> 8 >= _WIDE])
    masks = [each[hashed] for each in blocks for hashed in sorted(each)]
    codes = bytes([_CODES.get(mask, _ANY) for mask in masks])
    rest = b"".join([mask.to_bytes(2, "big") for mask in masks if mask not in _CODES])
    marks_frame, codes_frame = map(_pack, (bytes(marks), codes), _tables())
    sizes = [len(hashes), len(marks_frame), len(codes_frame)]
    head = b"".join([size.to_bytes(2, "big") for size in sizes])
    return b"".join((head, bytes([delta & 0xFF for delta in deltas]), marks_frame, codes_frame, wide, rest))


def _pack(content: bytes, tables: ZstdDictionary) -> bytes:
    compressor = zstandard.ZstdCompressor(level=LEVEL, dict_data=tables.for_writing, write_dict_id=False)
    return compressor.compress(content)[len(_MAGIC) :]


def decode_stems(encoded: bytes) -> list[Stems]:
    """Decode the output of `encode_stems`. Raises Undecodable."""
    count, marks_bytes, codes_bytes = (int.from_bytes(encoded[at : at + 2], "big") for at in (0, 2, 4))
    lows_stop = _HEAD_BYTES + count
    marks_stop = lows_stop + marks_bytes
    codes_stop = marks_stop + codes_bytes
    frames = encoded[lows_stop:marks_stop], encoded[marks_stop:codes_stop]
    most = _MOST_STEMS, MERGED_BLOCKS * _MOST_STEMS
    marks, codes = (
        decompress_frame(_MAGIC + frame, most_bytes, tables)
        for frame, most_bytes, tables in zip(frames, most, _tables(), strict=True)
    )
    highs = marks.translate(_DELTA)
    rest = codes_stop
    if _WIDE in highs:
        rest += highs.count(_WIDE)
        wide = iter(encoded[codes_stop:rest])
        highs = bytes([next(wide, 0) if high == _WIDE else high for high in highs])
    if len(marks) != count or len(encoded) != rest + 2 * codes.count(_ANY):
        raise Undecodable("a signature is none")
    try:
        hashes = array("H", accumulate(_pairs(encoded[_HEAD_BYTES:lows_stop], highs)))
    except OverflowError:
        raise Undecodable("a signature is none") from None
    masks = _pairs(codes.translate(_LOW), codes.translate(_HIGH))
    at = codes.find(_ANY)
    while at >= 0:
        masks[at] = encoded[rest] << 8 | encoded[rest + 1]
        rest, at = rest + 2, codes.find(_ANY, at + 1)
    own = [array("H", compress(hashes, marks.translate(is_in))) for is_in in _IS_IN]
    stops = list(accumulate(map(len, own)))
    if stops[-1] != len(codes):
        raise Undecodable("a signature is none")
    return [(each, masks[stop - len(each) : stop]) for each, stop in zip(own, stops, strict=True)]


def _pairs(lows: bytes, highs: bytes) -> array[int]:
    """Return the numbers of 16 bits with these low and high bytes."""
    both = bytearray(2 * len(lows))
    both[0::2], both[1::2] = lows, highs
    numbers = array("H")
    numbers.frombytes(bytes(both))
    if byteorder == "big":
        numbers.byteswap()
    return numbers
