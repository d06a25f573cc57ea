"""An embedder whose vectors hash the words of a text; synonyms count as one word."""

from __future__ import annotations

import asyncio
import math
from zlib import crc32

from redismem.text.stems import stems

SYNONYMS = {"puppy": "dog", "hound": "dog", "physician": "doctor", "automobile": "car", "resides": "lives"}
_KNOWN = {stem: next(iter(stems(word))) for said, word in SYNONYMS.items() for stem in stems(said)}


def vector(text: str, dimensions: int) -> list[float]:
    found = [0.0] * dimensions
    for stem in stems(text):
        hashed = crc32(_KNOWN.get(stem, stem).encode())
        found[hashed % dimensions] += 1.0 if hashed & 0x10000 else -1.0
    length = math.sqrt(sum(each * each for each in found)) or 1.0
    return [each / length for each in found]


class Words:
    """The embedder. It records its calls, and fails or hangs on demand."""

    def __init__(self, dimensions: int = 256, name: str = "words") -> None:
        self.name = name
        self.dimensions = dimensions
        self.asked: list[list[str]] = []
        self.failures: list[Exception] = []
        """Errors of the first calls, one per call."""
        self.is_down = False
        self.fault: BaseException = OSError("down")
        """The error of each call while `is_down`."""
        self.gate: asyncio.Event | None = None
        """Each call waits for this event, if it is set."""

    async def __call__(self, texts: list[str]) -> list[list[float]]:
        self.asked.append(texts)
        if self.gate is not None:
            await self.gate.wait()
        if self.failures:
            raise self.failures.pop(0)
        if self.is_down:
            raise self.fault
        return [vector(text, self.dimensions) for text in texts]
