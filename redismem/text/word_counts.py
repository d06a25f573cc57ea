"""A bounded sketch of a session's word counts, so that a rare word is rare in the whole session. No I/O."""

from __future__ import annotations

import asyncio
import math
import zlib
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain, islice

from redismem.messages.message import Message
from redismem.text.plain import pieces, shorten
from redismem.text.stems import LONGEST_WORD_CHARS, ascii_words, split_words, stems

MOST_WORDS = 768
"""The most words that a sketch counts. A word that is not in the sketch counts as rare."""
# A count is one byte, and the count of a word never exceeds the number of messages.
_MOST_MESSAGES = 255
_HEAD = b"\x01"
# A distance of this size or more takes two more bytes.
_WIDE = 255
_MESSAGE_WORDS = 256
_MESSAGE_BYTES = 16_000
# Bytes to read before other tasks get a turn: a fraction of a millisecond.
_PIECE_BYTES = 4_000


@lru_cache(maxsize=16_384)
def hash_of(stem: str) -> int:
    """Return the 16-bit hash of a word in sketches, equal in every process."""
    return zlib.crc32(stem.encode("utf-8", "surrogatepass")) & 0xFFFF


@lru_cache(maxsize=16_384)
def hash_of_word(word: str) -> int | None:
    """Return the hash of the stem of an ASCII word in lower case; `None` if the word has no stem."""
    stem = next(stems(word), None)
    return None if stem is None else hash_of(stem)


def hashes_of(word: str) -> tuple[int, ...]:
    """Return the hashes of a word in any script."""
    return _hashes_of(word) if len(word) <= LONGEST_WORD_CHARS else tuple(map(hash_of, stems(word)))


@lru_cache(maxsize=16_384)
def _hashes_of(word: str) -> tuple[int, ...]:
    return tuple(map(hash_of, stems(word)))


def hashes_in(text: str) -> set[int]:
    """Return the hashes of the words of a sentence."""
    if not text.isascii():
        return set(chain.from_iterable(map(hashes_of, split_words(text))))
    hashes = set(map(hash_of_word, ascii_words(text)))
    hashes.discard(None)
    return hashes  # type: ignore[return-value]  # None is gone


class Sketch:
    """The number of summarised messages that contain each word. Old counts fade.

    Above a limit of messages or words, all counts are halved; words with a count of 1 are then forgotten.
    """

    __slots__ = ("_counts", "_messages_count", "_rarity")

    def __init__(self, messages_count: int = 0, counts: dict[int, int] | None = None) -> None:
        self._messages_count = messages_count
        self._counts = counts or {}
        self._rarity: dict[int, float] = {}

    def add(self, hashes: Iterable[int]) -> None:
        """Count the words of one message."""
        self._messages_count += 1
        for word in dict.fromkeys(hashes):
            self._counts[word] = self._counts.get(word, 0) + 1
        if self._messages_count >= _MOST_MESSAGES or len(self._counts) > MOST_WORDS:
            self._messages_count //= 2
            self._counts = {word: count // 2 for word, count in self._counts.items() if count > 1}
        self._rarity.clear()

    def rarity(self, word: int) -> float:
        """Return the rarity of a word, from 0 (in every message) to 1 (in no counted message)."""
        return self._rarity_of(self._counts.get(word, 0))

    def _rarity_of(self, count: int) -> float:
        rarity = self._rarity.get(count)
        if rarity is None:
            whole = 2 * (self._messages_count + 1)
            rarity = self._rarity[count] = max(0.0, math.log(whole / (2 * count + 1)) / math.log(whole))
        return rarity

    def rarities(self, words: Iterable[int]) -> dict[int, float]:
        """Return the rarity of each of these words."""
        counts = {word: self._counts.get(word, 0) for word in words}
        by_count = {count: self._rarity_of(count) for count in {*counts.values()}}
        return {word: by_count[count] for word, count in counts.items()}

    def copy(self) -> Sketch:
        return Sketch(self._messages_count, dict(self._counts))

    def pack(self) -> bytes:
        """Return the stored form: the counts, then the distance of each word from the previous one, compressed."""
        words = sorted(self._counts)
        gaps = bytearray()
        for word, before in zip(words, [-1, *words], strict=False):
            gap = word - before - 1
            gaps += bytes((gap,)) if gap < _WIDE else bytes((_WIDE, gap >> 8, gap & 0xFF))
        counts = bytes(self._counts[word] for word in words)
        return _HEAD + bytes((self._messages_count,)) + zlib.compress(counts + bytes(1) + gaps, 9)

    @classmethod
    def unpack(cls, packed: bytes | None) -> Sketch:
        """Decode the output of `pack`. Other bytes give an empty sketch, because a sketch only weighs words."""
        if not packed or len(packed) < 2 or packed[:1] != _HEAD:
            return cls()
        try:
            counts, _, gaps = zlib.decompressobj().decompress(packed[2:], 4 * MOST_WORDS + 1).partition(b"\0")
            places = iter(gaps)
            by_word: dict[int, int] = {}
            word = -1
            for count in counts:
                gap = next(places)
                word += 1 + (gap if gap < _WIDE else next(places) * 256 + next(places))
                by_word[word] = count
        except (zlib.error, StopIteration):
            return cls()
        return cls(packed[1], by_word) if word <= 0xFFFF and next(places, None) is None else cls()


def words_of(text: str) -> list[int]:
    """Return the words of a message for a sketch. Of a long text only the first words count."""
    if text.isascii():
        known = map(hash_of_word, [word[:LONGEST_WORD_CHARS] for word in ascii_words(text)])
        hashes: Iterable[int] = (word for word in known if word is not None)
    else:
        hashes = map(hash_of, stems(text))
    return list(dict.fromkeys(islice(hashes, 4 * _MESSAGE_WORDS)))[:_MESSAGE_WORDS]


async def learn_messages(sketch: Sketch, messages: Sequence[Message], read_bytes: int = 400_000) -> Sketch:
    """Return a copy of the sketch that also counts these messages. Yields to other tasks after each small piece."""
    learned = sketch.copy()
    share = min(max(read_bytes // max(len(messages), 1), 200), _MESSAGE_BYTES)
    read = 0
    for message in messages:
        text = " ".join(shorten(text, share) for kind, text in pieces(message, share) if kind != "part")
        learned.add(words_of(text[:share]))
        read += len(text) + 100
        if read > _PIECE_BYTES:
            read = 0
            await asyncio.sleep(0)
    return learned
