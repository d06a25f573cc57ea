"""Dictionaries that blocks are compressed with: what a namespace's messages have in common. No I/O.

One is trained on messages out of which every word was taken that fewer than three sessions have said, so none holds a
word of one person alone. A block names its dictionary by number, and zstd's frame names it by a hash of its content.
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
"""A word that fewer sessions have said is in no dictionary."""
LARGEST_BYTES = 160 * 1024
LEVEL = 15

# Trained without a search for the best of these: a second of work instead of a minute.
_SEGMENT_BYTES, _DMER_BYTES = 1_000, 8
# zstd keeps the ids below, and those from 2^31 on, for itself.
_FIRST_ID, _IDS_COUNT = 1 << 15, (1 << 31) - (1 << 15)
_CONTENT_SHARE = 0.5
_WITHOUT_SPACES = "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3"
_WORD = re.compile(f"[{_WITHOUT_SPACES}]{{1,2}}|[^\\W{_WITHOUT_SPACES}]+")


class DictionaryMissing(Undecodable):
    """A block was compressed with a dictionary that is not there, or that is another one by now."""


class ZstdDictionary:
    """What zstd may refer back to before the first byte of a frame. Fit for any number of threads."""

    def __init__(self, used: zstandard.ZstdCompressionDict) -> None:
        self.used = used
        # To make one takes longer than to unpack a block, and no two threads may use the same at a time.
        self._idle: list[zstandard.ZstdDecompressor] = []

    def decompressed(self, frame: bytes) -> bytes:
        """What is in the frame. Raises ZstdError, ValueError, MemoryError."""
        try:
            one = self._idle.pop()
        except IndexError:
            one = zstandard.ZstdDecompressor(dict_data=self.used)
        content: bytes = one.decompress(frame, allow_extra_data=False)
        self._idle.append(one)
        return content


class Dictionary(ZstdDictionary):
    """A dictionary of a namespace: what its messages have in common, for compressing blocks."""

    def __init__(self, version: int, created_ms: int, content: bytes) -> None:
        """Raises Undecodable for what is none."""
        self.version = version
        self.created_ms = created_ms
        self.content = content
        super().__init__(zstandard.ZstdCompressionDict(content, dict_type=zstandard.DICT_TYPE_AUTO))
        if self.used.dict_id() != _id_of(content):
            raise Undecodable("a dictionary is none")

    @cached_property
    def for_writing(self) -> zstandard.ZstdCompressionDict:
        """The same, made ready for the level that blocks are written at."""
        ready = zstandard.ZstdCompressionDict(self.content, dict_type=zstandard.DICT_TYPE_AUTO)
        ready.precompute_compress(level=LEVEL)
        return ready


Dictionaries = Mapping[int, Dictionary]
"""The dictionaries that are known, by version."""


def _id_of(content: bytes) -> int:
    """The id of a dictionary: a hash of all that stands behind the id itself, which are the bytes 4 to 8."""
    return _FIRST_ID + crc32(content[8:]) % _IDS_COUNT


def train_dictionary(samples: Sequence[bytes]) -> bytes | None:
    """The content of a dictionary for blocks like these; None if they have too little in common."""
    try:
        made = zstandard.train_dictionary(LARGEST_BYTES, list(samples), k=_SEGMENT_BYTES, d=_DMER_BYTES, level=LEVEL)
    except (zstandard.ZstdError, ValueError, MemoryError):
        return None
    content = made.as_bytes()
    return content[:4] + _id_of(content).to_bytes(4, "little") + content[8:]


def build_samples(blocks: Mapping[str, Sequence[Sequence[bytes]]]) -> list[bytes]:
    """What a dictionary is trained on: each of these blocks in columns, with nothing but the words that are common.

    `blocks`: the elements of some blocks of each session. A word is common if SESSIONS_COUNT of the sessions have it.
    Numbers, ids and metadata are left out.
    """
    told = {
        session: [[message.to_openai() for message in decode_messages(elements, 1, "")] for elements in of_session]
        for session, of_session in blocks.items()
    }
    sessions: defaultdict[str, set[str]] = defaultdict(set)
    for session, of_session in told.items():
        for text in _texts(of_session):
            for word in _WORD.findall(text):
                sessions[word].add(session)
    words = {word for word, seen in sessions.items() if len(seen) >= SESSIONS_COUNT}

    def cut(text: str) -> str:
        return _WORD.sub(lambda found: found[0] if found[0] in words else "", text)

    return [
        encode_columns([encode_message(_cut(payload, cut))[0] + STAMP for payload in payloads])
        for of_session in told.values()
        for payloads in of_session
    ]


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, dict):
        for key, each in value.items():
            yield str(key)
            yield from _texts(each)


def _cut(value: Any, cut: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return cut(value)
    if isinstance(value, list):
        return [_cut(each, cut) for each in value]
    if isinstance(value, dict):
        return {cut(str(key)): _cut(each, cut) for key, each in value.items()}
    return value if value is None or isinstance(value, bool) else 0
