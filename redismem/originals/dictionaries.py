"""Compression dictionaries for blocks: the content that a namespace's messages have in common. No I/O.

A block refers to its dictionary by version, and its zstd frame by a hash of the content.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from zlib import crc32

import zstandard

from redismem.messages.values import Undecodable

LEVEL = 15
LAST_VERSION = 255
"""The highest number of a dictionary: a block names its dictionary in one byte."""
SETTLED_MS = 60_000
"""The age from which a dictionary is used. A failover could lose a younger one, and the blocks would be unreadable."""

# zstd reserves the ids below 2^15 and from 2^31 on.
_FIRST_ID, _IDS_COUNT = 1 << 15, (1 << 31) - (1 << 15)


class DictionaryMissing(Undecodable):
    """The dictionary that a block was compressed with is missing, or another dictionary has its version."""


class ZstdDictionary:
    """A zstd dictionary with its pool of decompressors; thread-safe."""

    def __init__(self, content: bytes, dict_type: int = zstandard.DICT_TYPE_AUTO) -> None:
        self.content = content
        self._dict_type = dict_type
        self.zstd = zstandard.ZstdCompressionDict(content, dict_type=dict_type)
        # Creating a decompressor takes longer than decompressing a block, and threads cannot share one.
        self._idle: list[zstandard.ZstdDecompressor] = []

    def decompress(self, frame: bytes) -> bytes:
        """Decompress a frame. Raises ZstdError, ValueError, MemoryError."""
        try:
            decompressor = self._idle.pop()
        except IndexError:
            decompressor = zstandard.ZstdDecompressor(dict_data=self.zstd)
        content: bytes = decompressor.decompress(frame, allow_extra_data=False)
        self._idle.append(decompressor)
        return content

    @cached_property
    def for_writing(self) -> zstandard.ZstdCompressionDict:
        """The dictionary, precomputed for the compression level of blocks."""
        ready = zstandard.ZstdCompressionDict(self.content, dict_type=self._dict_type)
        ready.precompute_compress(level=LEVEL)
        return ready


class Dictionary(ZstdDictionary):
    """The trained dictionary of a namespace, used to compress its blocks."""

    def __init__(self, version: int, created_ms: int, content: bytes) -> None:
        """Load a dictionary. Raises Undecodable if its id does not match its content."""
        self.version = version
        self.created_ms = created_ms
        super().__init__(content)
        if self.zstd.dict_id() != _id_of(content):
            raise Undecodable("a dictionary cannot be decoded")


Dictionaries = Mapping[int, Dictionary]
"""The loaded dictionaries by version."""


def _id_of(content: bytes) -> int:
    """Return the id of a dictionary: a hash of its content after the id field (bytes 4 to 8)."""
    return _FIRST_ID + crc32(content[8:]) % _IDS_COUNT


def with_id(content: bytes) -> bytes:
    """Return the content of a new dictionary with the id that belongs to it."""
    return content[:4] + _id_of(content).to_bytes(4, "little") + content[8:]
