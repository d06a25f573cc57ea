"""Embedding vectors of the messages of a block, quantised to one byte per dimension. No I/O.

The field `v<n>` of the originals contains the vectors of block `n`. Its layout, sizes in bytes:

    crc (4), mark of the model (8), dimensions (2), place of the first message (1), message count (1),
    one scale per message (4, a float), then one signed byte per dimension of each message

A message without text has scale 0. The bytes of a vector times its scale form a vector of length 1.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple, Protocol
from zlib import crc32

from redismem.messages.values import Undecodable
from redismem.originals.blocks import BLOCK_COUNT

MARK_BYTES = 8
DIMENSIONS_LIMIT = 4_096
_HEAD = struct.Struct(f"<I{MARK_BYTES}sHBB")
_CRC_BYTES, SCALE_BYTES = 4, 4


class Vectors(NamedTuple):
    """The vectors of consecutive messages in one block."""

    dimensions: int
    place: int
    """The position of the first message in the block."""
    scales: bytes
    """One scale per message: little-endian floats of 32 bits."""
    rows: bytes

    @property
    def stop(self) -> int:
        """The position after the last message."""
        return self.place + len(self.scales) // SCALE_BYTES

    @property
    def size_bytes(self) -> int:
        return len(self.scales) + len(self.rows)

    def row(self, place: int) -> bytes | None:
        """Return scale and vector of the message at a position, for `encode_vectors`; None if there is none."""
        at = place - self.place
        if not self.place <= place < self.stop:
            return None
        scale = self.scales[at * SCALE_BYTES : (at + 1) * SCALE_BYTES]
        return scale + self.rows[at * self.dimensions : (at + 1) * self.dimensions]


def mark_of(model: str) -> bytes:
    """Return the mark that identifies the vectors of a model."""
    return blake2b(model.encode("utf-8", "surrogatepass"), digest_size=MARK_BYTES).digest()


def encode_vectors(mark: bytes, dimensions: int, rows: Mapping[int, bytes], place: int, stop: int) -> bytes:
    """Encode the vectors of the messages at the positions from `place` up to `stop`, exclusive.

    Args:
        rows: results of `Vectors.row`, by position. A message without a row has no text.
    """
    empty = bytes(SCALE_BYTES + dimensions)
    filled = [rows.get(at, empty) for at in range(place, stop)]
    scales = b"".join(row[:SCALE_BYTES] for row in filled)
    head = _HEAD.pack(0, mark, dimensions, place, len(filled))
    content = head + scales + b"".join(row[SCALE_BYTES:] for row in filled)
    return crc32(content[_CRC_BYTES:]).to_bytes(_CRC_BYTES, "little") + content[_CRC_BYTES:]


def field_bytes(dimensions: int) -> int:
    """Return the size of the field of a full block."""
    return _HEAD.size + BLOCK_COUNT * (SCALE_BYTES + dimensions)


def decode_vectors(encoded: bytes, mark: bytes | None = None) -> Vectors | None:
    """Decode vectors; return None if their model is not that of `mark`. Raises Undecodable."""
    if len(encoded) < _HEAD.size:
        raise Undecodable("vectors are none")
    crc, made_by, dimensions, place, count = _HEAD.unpack_from(encoded)
    scales_stop = _HEAD.size + count * SCALE_BYTES
    is_whole = len(encoded) == scales_stop + count * dimensions and crc32(encoded[_CRC_BYTES:]) == crc
    if not is_whole or not dimensions or place + count > BLOCK_COUNT:
        raise Undecodable("vectors are none")
    if mark not in (None, made_by):
        return None
    return Vectors(dimensions, place, encoded[_HEAD.size : scales_stop], encoded[scales_stop:])


class Embeds(Protocol):
    """The interface of an embedder for the folders that may not import `recall`."""

    name: str
    mark: bytes
    """The mark of this embedder's vectors."""

    @property
    def dimensions(self) -> int:
        """The dimensions of the newest vectors; 0 before the first vector."""

    @property
    def is_paused(self) -> bool:
        """True while messages are not embedded because the embedder has just failed."""

    async def question(self, text: str) -> bytes | None:
        """Return the vector of a question, or None if the embedder is paused. Raises ModelFailed."""

    async def rows(self, texts: Sequence[str]) -> tuple[int, list[bytes]]:
        """Embed texts. Return the dimensions and one vector per text. Raises ModelFailed."""

    async def aclose(self) -> None:
        """Close the connections of a provider's model."""
