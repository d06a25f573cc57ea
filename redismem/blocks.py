"""Summarised messages in compressed blocks: which block a message belongs to, and what stands in one. No I/O.

Block `n` has the places of 16 seqs, from `16 n + 1` on. It is written whole each time something comes to it, so writing
it twice does no harm.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from types import MappingProxyType

import zstandard

from redismem.dictionaries import LEVEL, Dictionaries, Dictionary, DictionaryMissing
from redismem.elements import parted
from redismem.messages import encode_message
from redismem.values import Undecodable

BLOCK_COUNT = 16
"""Messages in a full block."""
MOST_BYTES = 1 << 30
"""No block is unpacked to more: 16 messages of the largest size that a message may have."""

NONE_KNOWN: Dictionaries = MappingProxyType({})

_VERSION, _VERSION_WITH_DICTIONARY = 1, 2
_HEAD_BYTES = 3


# What zstd may refer back to before the first byte of a block: how messages are stored, and words of every day. It is a
# part of the form: another text is another version.
_KNOWN = zstandard.ZstdCompressionDict(
    (
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
    + b"".join(
        encode_message(message)[0] + b"\xcf\x00\x00\x01\x9b"
        for message in (
            {"role": "tool", "tool_call_id": "call_", "name": "get_", "content": '{"'},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "call_", "type": "function", "function": {"name": "get_", "arguments": '{"'}},
                ],
            },
            {"role": "user", "content": "Yes, please. " + "x" * 40},
            {"role": "assistant", "content": "I " + "y" * 300},
            {"role": "user", "content": "Hi! I" + "x" * 40},
            {"role": "assistant", "content": "Thank you " + "y" * 40},
        )
    ),
    dict_type=zstandard.DICT_TYPE_RAWCONTENT,
)


class _Own(threading.local):
    """A thread's own: an unpacker takes longer to make than a block to unpack, and serves one thread at a time."""

    def __init__(self) -> None:
        self._used = _KNOWN
        self._unpacker = zstandard.ZstdDecompressor(dict_data=_KNOWN)

    def unpacker(self, used: zstandard.ZstdCompressionDict) -> zstandard.ZstdDecompressor:
        """The last one again, if it is for this dictionary."""
        if used is not self._used:
            self._unpacker, self._used = zstandard.ZstdDecompressor(dict_data=used), used
        return self._unpacker


_own = _Own()


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
    """The block of these elements, which follow each other: version of the form, place of the first, count; with a
    dictionary the version of that; then a zstd frame.
    """
    place = first_seq - first_seq_of(number_of(first_seq))
    assert 0 < len(elements) <= BLOCK_COUNT - place
    content = b"".join(elements)
    if dictionary is None:
        return bytes((_VERSION, place, len(elements))) + packed(content)
    return bytes((_VERSION_WITH_DICTIONARY, place, len(elements), dictionary.version)) + packed(content, dictionary)


def decode_block(number: int, block: bytes, known: Dictionaries = NONE_KNOWN) -> tuple[int, list[bytes]]:
    """The first seq in a block, and its elements. Raises Undecodable; of its kinds DictionaryMissing."""
    version = dictionary_of(block)
    if len(block) <= _HEAD_BYTES or (block[0] != _VERSION and version is None):
        raise Undecodable("a block of originals is none")
    place, count = block[1], block[2]
    if not 0 < count <= BLOCK_COUNT - place:
        raise Undecodable("a block of originals has places that it cannot have")
    if version is None:
        return first_seq_of(number) + place, parted(unpacked(block[_HEAD_BYTES:]), count)
    content = unpacked(block[_HEAD_BYTES + 1 :], dictionary=_named(version, block, known))
    return first_seq_of(number) + place, parted(content, count)


def dictionary_of(block: bytes) -> int | None:
    """The version of the dictionary that a block needs; None if it needs none."""
    has_one = len(block) > _HEAD_BYTES and block[0] == _VERSION_WITH_DICTIONARY
    return block[_HEAD_BYTES] if has_one else None


def _named(version: int, block: bytes, known: Dictionaries) -> Dictionary:
    dictionary = known.get(version)
    if dictionary is None:
        raise DictionaryMissing(f"a block of originals needs dictionary {version}, which is not there")
    try:
        wanted = zstandard.get_frame_parameters(block[_HEAD_BYTES + 1 :]).dict_id
    except zstandard.ZstdError:
        raise Undecodable("a frame cannot be unpacked") from None
    if wanted != dictionary.used.dict_id():
        raise DictionaryMissing(f"a block of originals needs dictionary {version}, and another has its number")
    return dictionary


def packed(content: bytes, dictionary: Dictionary | None = None) -> bytes:
    """The bytes as a zstd frame with a checksum."""
    used = _KNOWN if dictionary is None else dictionary.for_writing
    return zstandard.ZstdCompressor(level=LEVEL, write_checksum=True, dict_data=used).compress(content)


def unpacked(frame: bytes, most_bytes: int = MOST_BYTES, dictionary: Dictionary | None = None) -> bytes:
    """The bytes in a zstd frame. Raises Undecodable."""
    used = _KNOWN if dictionary is None else dictionary.used
    try:
        head = zstandard.get_frame_parameters(frame)
        if not 0 <= head.content_size <= most_bytes:
            raise Undecodable("a frame says that it holds more than anything may")
        content: bytes = _own.unpacker(used).decompress(frame, allow_extra_data=False)
    except (zstandard.ZstdError, ValueError, MemoryError):
        raise Undecodable("a frame cannot be unpacked") from None
    return content
