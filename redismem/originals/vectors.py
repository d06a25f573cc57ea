"""What the messages of a block mean, as an embedder has it: a vector each, a byte a dimension. No I/O.

Beside block `n` stands the field `v` and `n`. Its parts, one behind the other:

    crc (4), mark of the model (8), dimensions (2), place of the first message (1), messages (1),
    a scale for each message (4, a float), then each message's dimensions (a signed byte each)

A message without a text has the scale 0. Each vector has the length 1 when its bytes are multiplied by its scale.

Once they are in the vector set of the session as well, the field is `w` and `n`, and the field `vectors` has who made
those of the set.
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
    """The vectors of messages that follow each other in one block."""

    dimensions: int
    place: int
    """The place of the first of these messages in the block."""
    scales: bytes
    """A scale for each of them: little-endian floats of 32 bits."""
    rows: bytes

    @property
    def stop(self) -> int:
        """The place behind the last of them."""
        return self.place + len(self.scales) // SCALE_BYTES

    @property
    def size_bytes(self) -> int:
        return len(self.scales) + len(self.rows)

    def each(self) -> list[bytes]:
        """Scale and vector of each of them."""
        return [self.row(place) or b"" for place in range(self.place, self.stop)]

    def row(self, place: int) -> bytes | None:
        """Scale and vector of the message at this place, to be put into others; None if there is none."""
        at = place - self.place
        if not self.place <= place < self.stop:
            return None
        scale = self.scales[at * SCALE_BYTES : (at + 1) * SCALE_BYTES]
        return scale + self.rows[at * self.dimensions : (at + 1) * self.dimensions]


def mark_of(model: str) -> bytes:
    """What tells the vectors of one model from those of others."""
    return blake2b(model.encode("utf-8", "surrogatepass"), digest_size=MARK_BYTES).digest()


def model_of(mark: bytes, dimensions: int | None = None) -> bytes:
    """Who made the vectors of a vector set, and their size: what the field `vectors` has. Of any size, it begins so."""
    return mark.hex().encode() + (b":" if dimensions is None else b":%d" % dimensions)


def encode_vectors(mark: bytes, dimensions: int, rows: Mapping[int, bytes], place: int, stop: int) -> bytes:
    """The field of the messages from this place to before that one; without a row they have no text.

    `rows`: by their places, as `Vectors.row` gives them.
    """
    empty = bytes(SCALE_BYTES + dimensions)
    each = [rows.get(at, empty) for at in range(place, stop)]
    scales = b"".join(row[:SCALE_BYTES] for row in each)
    content = _HEAD.pack(0, mark, dimensions, place, len(each)) + scales + b"".join(row[SCALE_BYTES:] for row in each)
    return crc32(content[_CRC_BYTES:]).to_bytes(_CRC_BYTES, "little") + content[_CRC_BYTES:]


def field_bytes(dimensions: int) -> int:
    """How long the field of a full block is."""
    return _HEAD.size + BLOCK_COUNT * (SCALE_BYTES + dimensions)


def decode_vectors(encoded: bytes, mark: bytes | None = None) -> Vectors | None:
    """The vectors; None if they are of another model than that of this mark. Raises Undecodable."""
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
    """An embedder, as the rooms below and beside `recall` know it: it makes vectors of texts."""

    name: str
    mark: bytes
    """What the vectors of this embedder begin with."""

    @property
    def dimensions(self) -> int:
        """The dimensions of the vectors it made last; 0 before the first."""

    @property
    def is_paused(self) -> bool:
        """True while it is not asked for the vectors of messages, because it has just failed."""

    async def question(self, text: str) -> bytes | None:
        """Return the vector of a question, or None if the embedder is paused. Raises ModelFailed."""

    async def rows(self, texts: Sequence[str]) -> tuple[int, list[bytes]]:
        """Return the dimensions, and one vector for each of these texts. Raises ModelFailed."""

    async def aclose(self) -> None:
        """Close the connections of a provider's model."""
