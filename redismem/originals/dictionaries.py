"""Compression dictionaries for blocks: the content that a namespace's messages have in common. No I/O.

Words that fewer than three sessions contain are left out before a dictionary is trained, so a dictionary never contains
a word of a single person. A block refers to its dictionary by version, and its zstd frame by a hash of the content.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any
from zlib import crc32

import zstandard

from redismem.messages.decoding import decode_messages
from redismem.messages.encoding import encode_message
from redismem.messages.values import Undecodable
from redismem.originals.columns import STAMP, encode_columns

SESSIONS_COUNT = 3
"""A word enters a dictionary only if at least this many sessions contain it."""
LARGEST_BYTES = 160 * 1024
LEVEL = 15

# With fixed parameters, training takes a second; if zstd searches for the best ones, a minute.
_SEGMENT_BYTES, _DMER_BYTES = 1_000, 8
# zstd reserves the ids below 2^15 and from 2^31 on.
_FIRST_ID, _IDS_COUNT = 1 << 15, (1 << 31) - (1 << 15)
_CONTENT_SHARE = 0.5
_WITHOUT_SPACES = "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3"
_WORD = re.compile(f"[{_WITHOUT_SPACES}]{{1,2}}|[^\\W{_WITHOUT_SPACES}]+")


class DictionaryMissing(Undecodable):
    """The dictionary that a block was compressed with is missing, or another dictionary has its version."""


class ZstdDictionary:
    """A zstd dictionary with its pool of decompressors; thread-safe."""

    def __init__(self, zstd: zstandard.ZstdCompressionDict) -> None:
        self.zstd = zstd
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


class Dictionary(ZstdDictionary):
    """The trained dictionary of a namespace, used to compress its blocks."""

    def __init__(self, version: int, created_ms: int, content: bytes) -> None:
        """Load a dictionary. Raises Undecodable if its id does not match its content."""
        self.version = version
        self.created_ms = created_ms
        self.content = content
        super().__init__(zstandard.ZstdCompressionDict(content, dict_type=zstandard.DICT_TYPE_AUTO))
        if self.zstd.dict_id() != _id_of(content):
            raise Undecodable("a dictionary cannot be decoded")

    @cached_property
    def for_writing(self) -> zstandard.ZstdCompressionDict:
        """The dictionary, precomputed for the compression level of blocks."""
        ready = zstandard.ZstdCompressionDict(self.content, dict_type=zstandard.DICT_TYPE_AUTO)
        ready.precompute_compress(level=LEVEL)
        return ready


Dictionaries = Mapping[int, Dictionary]
"""The loaded dictionaries by version."""


def _id_of(content: bytes) -> int:
    """Return the id of a dictionary: a hash of its content after the id field (bytes 4 to 8)."""
    return _FIRST_ID + crc32(content[8:]) % _IDS_COUNT


def train_dictionary(samples: Sequence[bytes]) -> bytes | None:
    """Train a dictionary; return its content, or None if the samples have too little in common."""
    try:
        trained = zstandard.train_dictionary(LARGEST_BYTES, list(samples), k=_SEGMENT_BYTES, d=_DMER_BYTES, level=LEVEL)
    except (zstandard.ZstdError, ValueError, MemoryError):
        return None
    content = trained.as_bytes()
    return content[:4] + _id_of(content).to_bytes(4, "little") + content[8:]


def build_samples(blocks: Mapping[str, Sequence[Sequence[bytes]]]) -> list[bytes]:
    """Build the training samples: each block as columns, with only the words that SESSIONS_COUNT sessions share.

    Numbers, ids and metadata are left out.

    Args:
        blocks: for each session, the elements of some of its blocks.
    """
    payloads_of = {
        session: [[message.visible for message in decode_messages(elements, 1, "")] for elements in of_session]
        for session, of_session in blocks.items()
    }
    sessions: defaultdict[str, set[str]] = defaultdict(set)
    for session, of_session in payloads_of.items():
        for text in _texts(of_session):
            for word in _WORD.findall(text):
                sessions[word].add(session)
    words = {word for word, ids in sessions.items() if len(ids) >= SESSIONS_COUNT}

    def cut(text: str) -> str:
        return _WORD.sub(lambda match: match[0] if match[0] in words else "", text)

    return [
        encode_columns([encode_message(_cut(payload, cut))[0] + STAMP for payload in payloads])
        for of_session in payloads_of.values()
        for payloads in of_session
    ]


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield str(key)
            yield from _texts(item)


def _cut(value: Any, cut: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return cut(value)
    if isinstance(value, list):
        return [_cut(item, cut) for item in value]
    if isinstance(value, dict):
        return {cut(str(key)): _cut(item, cut) for key, item in value.items()}
    return value if value is None or isinstance(value, bool) else 0
