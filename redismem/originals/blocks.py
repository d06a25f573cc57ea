"""Summarised messages in compressed blocks: which block a message belongs to, and what stands in one. No I/O.

Block `n` has the places of 16 seqs, from `16 n + 1` on. It is written whole each time something comes to it, so writing
it twice does no harm.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import MappingProxyType
from typing import Any

import zstandard

from redismem.messages.encoding import encode_message
from redismem.messages.values import Undecodable
from redismem.originals.columns import STAMP, from_columns, in_columns
from redismem.originals.dictionaries import LEVEL, Dictionaries, Dictionary, DictionaryMissing, Known

BLOCK_COUNT = 16
"""Messages in a full block."""
MOST_BYTES = 1 << 30
"""No block is unpacked to more: 16 messages of the largest size that a message may have."""

NONE_KNOWN: Dictionaries = MappingProxyType({})

_FORM = 3
_HEAD_BYTES = 3
_COUNT_BITS = 4
_MAGIC = zstandard.FRAME_HEADER
# No head of a frame is longer, its magic number included.
_FRAME_HEAD_BYTES = 18


# What zstd may refer back to before the first byte of a block without a dictionary: words of every day, and behind them
# what messages are made of. It is a part of the form: another text is another version.
_WORDS = (
    b"Thank you for your help today. You're welcome! If you have any other questions, feel free to ask. Is "
    b"there anything else I can help you with? I would like to know whether you could please let me know "
    b"about the information that you have already been given. I think that we should have been able to do "
    b"this before, because there is still some time left for them. What do you want to do next? It was not "
    b"really what they said, but I don't know why. When did you get there, and how long will it take? Sure, I "
    b"can do that. I'm sorry for the inconvenience. Here are the details: would be the following: - 1. 2. 3. "
    b"However, their other which could make some people think about these things again. this is the with from "
    b"that have will your our and for are not but you all any can had her was one his how man new now old see "
    b"two way who its let say she too use monday tuesday wednesday thursday friday saturday sunday january "
    b"february march april june july august september october november december  2024-2025-2026-T00:00:00 "
    b"https://www. .com/ @gmail.com null, true, false, "
    b'"name": "id": "status": "type": "date": "price": "number": "user_id": "error": "message": "result": ['
)
_CALL = {"id": "call_", "type": "function", "function": {"name": "get_", "arguments": '{"'}}
_CALLS: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": [_CALL]}
_RESULT: dict[str, Any] = {"role": "tool", "tool_call_id": "call_", "name": "get_", "content": '{"'}


def _message(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}


_asked, _answered = _message("user", "Hi! I"), _message("assistant", "I ")
_SAMPLES = b"".join(
    in_columns([encode_message(message)[0] + STAMP for message in messages])
    for messages in (
        [_asked, _answered, *[_CALLS, _RESULT, _answered, _asked] * 3, _CALLS, _RESULT],
        [_asked, _answered] * (BLOCK_COUNT // 2),
    )
)
_KNOWN = Known(zstandard.ZstdCompressionDict(_WORDS + _SAMPLES, dict_type=zstandard.DICT_TYPE_RAWCONTENT))


def number_of(seq: int) -> int:
    """The number of the block that a seq belongs to."""
    return (seq - 1) // BLOCK_COUNT


def first_seq_of(number: int) -> int:
    """The seq that the first place of a block is for."""
    return number * BLOCK_COUNT + 1


def blocks_of(first_seq: int, elements: Sequence[bytes]) -> Iterator[tuple[int, int, Sequence[bytes]]]:
    """How elements that follow each other part into blocks: of each its number, its first seq, its elements."""
    at = 0
    while at < len(elements):
        seq = first_seq + at
        number = number_of(seq)
        taken = elements[at : at + first_seq_of(number + 1) - seq]
        yield number, seq, taken
        at += len(taken)


def encode_block(first_seq: int, elements: Sequence[bytes], dictionary: Dictionary | None = None) -> bytes:
    """The block of these elements, which follow each other: version of the form; place of the first and count; version
    of the dictionary, 0 without one; then a zstd frame without its magic number.
    """
    place = first_seq - first_seq_of(number_of(first_seq))
    assert 0 < len(elements) <= BLOCK_COUNT - place
    head = (_FORM, place << _COUNT_BITS | len(elements) - 1, 0 if dictionary is None else dictionary.version)
    return bytes(head) + packed(in_columns(elements), dictionary)[len(_MAGIC) :]


def decode_block(number: int, block: bytes, known: Dictionaries = NONE_KNOWN) -> tuple[int, list[bytes]]:
    """The first seq in a block, and its elements. Raises Undecodable; of its kinds DictionaryMissing."""
    if len(block) <= _HEAD_BYTES or block[0] != _FORM:
        raise Undecodable("a block of originals is none")
    version = dictionary_of(block)
    place, count, frame = block[1] >> _COUNT_BITS, block[1] % BLOCK_COUNT + 1, _MAGIC + block[_HEAD_BYTES:]
    if count > BLOCK_COUNT - place:
        raise Undecodable("a block of originals has places that it cannot have")
    dictionary = None if version is None else _named(version, frame, known)
    elements = from_columns(unpacked(frame, known=dictionary or _KNOWN), count)
    return first_seq_of(number) + place, elements


def dictionary_of(block: bytes) -> int | None:
    """The version of the dictionary that a block needs; None if it needs none."""
    if len(block) <= _HEAD_BYTES or block[0] != _FORM:
        return None
    return block[2] or None


def needs_another(block: bytes, known: Dictionaries) -> int | None:
    """The version of its dictionary, if another one is known by that version; None if not, or if it needs none."""
    version = dictionary_of(block)
    dictionary = None if version is None else known.get(version)
    if dictionary is None:
        return None
    try:
        wanted = _frame_head(block).dict_id
    except zstandard.ZstdError:
        return None
    return None if wanted == dictionary.used.dict_id() else version


def unpacked_bytes(block: bytes) -> int:
    """The size of a block once unpacked, as its head says; 0 if it does not. Unpacks nothing."""
    if block[:1] != bytes([_FORM]):
        return 0
    try:
        return _frame_head(block).content_size
    except zstandard.ZstdError:
        return 0


def _frame_head(block: bytes) -> zstandard.FrameParameters:
    """Raises ZstdError."""
    return zstandard.get_frame_parameters(_MAGIC + block[_HEAD_BYTES : _HEAD_BYTES + _FRAME_HEAD_BYTES])


def _named(version: int, frame: bytes, known: Dictionaries) -> Dictionary:
    dictionary = known.get(version)
    if dictionary is None:
        raise DictionaryMissing(f"a block of originals needs dictionary {version}, which is not there")
    try:
        wanted = zstandard.get_frame_parameters(frame).dict_id
    except zstandard.ZstdError:
        raise Undecodable("a frame cannot be unpacked") from None
    if wanted != dictionary.used.dict_id():
        raise DictionaryMissing(f"a block of originals needs dictionary {version}, and another has its number")
    return dictionary


def packed(content: bytes, dictionary: Dictionary | None = None) -> bytes:
    """The bytes as a zstd frame with a checksum."""
    used = _KNOWN.used if dictionary is None else dictionary.for_writing
    return zstandard.ZstdCompressor(level=LEVEL, write_checksum=True, dict_data=used).compress(content)


def unpacked(frame: bytes, most_bytes: int = MOST_BYTES, known: Known = _KNOWN) -> bytes:
    """The bytes in a zstd frame; `known`: what it may refer back to. Raises Undecodable."""
    try:
        head = zstandard.get_frame_parameters(frame)
        if not 0 <= head.content_size <= most_bytes:
            raise Undecodable("a frame says that it holds more than anything may")
        return known.decompressed(frame)
    except (zstandard.ZstdError, ValueError, MemoryError):
        raise Undecodable("a frame cannot be unpacked") from None
