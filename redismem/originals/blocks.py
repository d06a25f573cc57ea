"""The codec of compressed blocks of summarised messages, and the mapping from seqs to blocks. No I/O.

Block `n` contains the 16 seqs from `16 n + 1` on. Four full blocks, from a multiple of four on, are merged into one: it
has the number of the first one, and 64 messages. Every change rewrites the whole block, so writes are idempotent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import MappingProxyType

import zstandard

from redismem.messages.gaps import encode_gap, gap_count
from redismem.messages.message import STAMP_BYTES
from redismem.messages.values import Undecodable
from redismem.originals.built_in import EARLIER, built_in
from redismem.originals.columns import decode_columns, encode_columns
from redismem.originals.dictionaries import LEVEL, Dictionaries, Dictionary, DictionaryMissing, ZstdDictionary

BLOCK_COUNT = 16
"""Messages in a full block."""
MERGED_BLOCKS = 4
"""The blocks in a merged block."""
MERGED_COUNT = MERGED_BLOCKS * BLOCK_COUNT
"""Messages in a merged block."""
MOST_BYTES = 1 << 30
"""The largest block that is decompressed: 16 messages of the largest size. A merged block is much smaller."""

NO_DICTIONARIES: Dictionaries = MappingProxyType({})

# Blocks of format 3 and merged ones of format 4 have a trained dictionary or the earlier built-in one.
_FORMAT, _MERGED_FORMAT = 3, 4
_PLAIN_FORMAT, _PLAIN_MERGED_FORMAT = 5, 6
_FORMATS = (_FORMAT, _MERGED_FORMAT, _PLAIN_FORMAT, _PLAIN_MERGED_FORMAT)
_HEAD_BYTES = 3
_COUNT_BITS = 4
_MAGIC = zstandard.FRAME_HEADER
# The longest frame header of zstd, including the magic number.
_FRAME_HEAD_BYTES = 18


def block_number(seq: int) -> int:
    """Return the number of the block that contains a seq."""
    return (seq - 1) // BLOCK_COUNT


def first_seq_of(number: int) -> int:
    """Return the first seq of a block."""
    return number * BLOCK_COUNT + 1


def head_of(number: int) -> int:
    """Return the number of the merged block that may contain a block."""
    return number - number % MERGED_BLOCKS


def numbers_in(number: int, block: bytes) -> range:
    """Return the numbers of the blocks that a stored block contains: one, or four if it is merged or unreadable."""
    is_single = block[:1] in (bytes([_FORMAT]), bytes([_PLAIN_FORMAT])) or number != head_of(number)
    return range(number, number + (1 if is_single else MERGED_BLOCKS))


def is_merged(block: bytes) -> bool:
    """True if a stored block is a merged one."""
    return block[:1] in (bytes([_MERGED_FORMAT]), bytes([_PLAIN_MERGED_FORMAT]))


def split_into_blocks(first_seq: int, elements: Sequence[bytes]) -> Iterator[tuple[int, int, Sequence[bytes]]]:
    """Split consecutive elements at block boundaries; yield block number, first seq and elements of each part.

    A gap of several seqs becomes as many gaps of one. Parts of gaps alone are left out: no block is stored for them.
    """
    seq, part, has_messages = first_seq, list[bytes](), False
    for element in elements:
        gap = gap_count(element)
        stop, single = seq + (gap or 1), element if gap <= 1 else encode_gap(1) + element[-STAMP_BYTES:]
        while seq < stop:
            if gap and not part:
                seq = max(seq, min(stop, first_seq_of(block_number(stop))))
            count = min(stop, first_seq_of(block_number(seq) + 1)) - seq
            part += [single] * count
            has_messages = has_messages or (not gap and count > 0)
            seq += count
            if count and seq == first_seq_of(block_number(seq)):
                if has_messages:
                    yield block_number(seq - 1), seq - len(part), part
                part, has_messages = [], False
    if has_messages:
        yield block_number(seq - 1), seq - len(part), part


def encode_block(first_seq: int, elements: Sequence[bytes], dictionary: Dictionary | None = None) -> bytes:
    """Encode consecutive elements of one block; 64 elements are a merged block.

    The header has three bytes: format version; position of the first element, and their count (0 in a merged block);
    dictionary version, 0 if there is none. A zstd frame without its magic number follows.
    """
    place = first_seq - first_seq_of(block_number(first_seq))
    version = 0 if dictionary is None else dictionary.version
    if len(elements) == MERGED_COUNT:
        assert place == 0 == block_number(first_seq) % MERGED_BLOCKS
        head = (_MERGED_FORMAT if version else _PLAIN_MERGED_FORMAT, 0, version)
    else:
        assert 0 < len(elements) <= BLOCK_COUNT - place
        head = (_FORMAT if version else _PLAIN_FORMAT, place << _COUNT_BITS | len(elements) - 1, version)
    return bytes(head) + compress_frame(encode_columns(elements), dictionary)[len(_MAGIC) :]


def decode_block(number: int, block: bytes, known: Dictionaries = NO_DICTIONARIES) -> tuple[int, list[bytes]]:
    """Return the first seq in a block, and its elements. Raises Undecodable, or its subclass DictionaryMissing."""
    if len(block) <= _HEAD_BYTES or block[0] not in _FORMATS:
        raise Undecodable("a block of originals has an unknown format")
    version = dictionary_of(block)
    place, count, frame = block[1] >> _COUNT_BITS, block[1] % BLOCK_COUNT + 1, _MAGIC + block[_HEAD_BYTES:]
    if is_merged(block):
        count = MERGED_COUNT
        is_valid = block[1] == 0 == number % MERGED_BLOCKS
    else:
        is_valid = count <= BLOCK_COUNT - place
    if not is_valid:
        raise Undecodable("a block of originals has an invalid place or count")
    if version is not None:
        used: ZstdDictionary = _find_dictionary(version, frame, known)
    else:
        used = built_in() if block[0] in (_PLAIN_FORMAT, _PLAIN_MERGED_FORMAT) else EARLIER
    elements = decode_columns(decompress_frame(frame, known=used), count)
    return first_seq_of(number) + place, elements


def decode_parts(
    number: int, block: bytes, known: Dictionaries = NO_DICTIONARIES
) -> dict[int, tuple[int, list[bytes]]]:
    """Return first seq and elements of each block in a stored block, by number. Raises as `decode_block`."""
    first_seq, elements = decode_block(number, block, known)
    parts = split_at_blocks(first_seq, elements)
    return {block_number(seq): (seq, part) for seq, part in parts}


def split_at_blocks(first_seq: int, elements: Sequence[bytes]) -> Iterator[tuple[int, list[bytes]]]:
    """Split elements of one seq each at block boundaries; yield the first seq and the elements of each part."""
    at = 0
    while at < len(elements):
        stop = first_seq_of(block_number(first_seq + at) + 1) - first_seq
        yield first_seq + at, list(elements[at:stop])
        at = stop


def dictionary_of(block: bytes) -> int | None:
    """Return the version of the dictionary that a block needs; None if it needs none."""
    if len(block) <= _HEAD_BYTES or block[0] not in _FORMATS:
        return None
    return block[2] or None


def mismatched_dictionary(block: bytes, known: Dictionaries) -> int | None:
    """Return a block's dictionary version if `known` has a different dictionary of this version, else None."""
    version = dictionary_of(block)
    dictionary = None if version is None else known.get(version)
    if dictionary is None:
        return None
    try:
        dict_id = _frame_head(block).dict_id
    except zstandard.ZstdError:
        return None
    return None if dict_id == dictionary.zstd.dict_id() else version


def unpacked_bytes(block: bytes) -> int:
    """Return the decompressed size that a block's header claims, 0 if it has none, without decompressing it."""
    if not block or block[0] not in _FORMATS:
        return 0
    try:
        return _frame_head(block).content_size
    except zstandard.ZstdError:
        return 0


def _frame_head(block: bytes) -> zstandard.FrameParameters:
    """Parse the frame header of a block. Raises ZstdError."""
    return zstandard.get_frame_parameters(_MAGIC + block[_HEAD_BYTES : _HEAD_BYTES + _FRAME_HEAD_BYTES])


def _find_dictionary(version: int, frame: bytes, known: Dictionaries) -> Dictionary:
    dictionary = known.get(version)
    if dictionary is None:
        raise DictionaryMissing(f"a block of originals needs dictionary {version}, which is missing")
    try:
        dict_id = zstandard.get_frame_parameters(frame).dict_id
    except zstandard.ZstdError:
        raise Undecodable("a frame cannot be decompressed") from None
    if dict_id != dictionary.zstd.dict_id():
        raise DictionaryMissing(f"a block of originals needs dictionary {version}, but another one has its number")
    return dictionary


def compress_frame(content: bytes, dictionary: Dictionary | None = None) -> bytes:
    """Compress bytes to a zstd frame with a checksum."""
    dict_data = (dictionary or built_in()).for_writing
    return zstandard.ZstdCompressor(level=LEVEL, write_checksum=True, dict_data=dict_data).compress(content)


def decompress_frame(frame: bytes, most_bytes: int = MOST_BYTES, known: ZstdDictionary | None = None) -> bytes:
    """Decompress a zstd frame of at most `most_bytes`, with the built-in dictionary unless another one is given.

    Raises Undecodable.
    """
    try:
        head = zstandard.get_frame_parameters(frame)
        if not 0 <= head.content_size <= most_bytes:
            raise Undecodable("a frame claims a size over the limit")
        return (known or built_in()).decompress(frame)
    except (zstandard.ZstdError, ValueError, MemoryError):
        raise Undecodable("a frame cannot be decompressed") from None
