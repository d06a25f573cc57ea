"""Read messages of the window that releases before 0.1.0 have compressed: elements of format version 2. No I/O.

    [version = 2, tokens, frame, nil, stored_ms]

`frame` is a zstd frame (RFC 8878). It contains the payload and the beside of format version 1 (see `message`).
"""

from __future__ import annotations

from typing import Any

import msgspec
import zstandard

from redismem.messages.message import COMPRESSED_VERSION, FORMAT_VERSION
from redismem.messages.values import Undecodable

_MOST_BYTES = 1 << 27
"""The largest content that is decompressed: twice the largest message that the settings allow."""
_HEAD = b"\x95" + FORMAT_VERSION.to_bytes(1, "big")
_COMPRESSED_HEAD = b"\x95" + COMPRESSED_VERSION.to_bytes(1, "big")
_decode_compressed = msgspec.msgpack.Decoder(tuple[msgspec.Raw, msgspec.Raw, bytes, None, msgspec.Raw]).decode
_decode_content = msgspec.msgpack.Decoder(tuple[dict[str, Any] | bytes, dict[str, Any] | bytes | None]).decode


def expand_element(element: bytes) -> bytes:
    """Convert a stamped element to version 1. Raises Undecodable if the frame cannot be decompressed."""
    if not element.startswith(_COMPRESSED_HEAD):
        return element
    try:
        _, tokens, frame, _, stamp = _decode_compressed(element)
    except (msgspec.MsgspecError, ValueError):
        raise Undecodable("a compressed message cannot be decoded") from None
    return b"".join((_HEAD, tokens, _decompress(frame), stamp))


def expanded_bytes(element: bytes) -> int:
    """Return the size that a stamped element has in version 1, as its frame header claims, without decompressing it."""
    if not element.startswith(_COMPRESSED_HEAD):
        return len(element)
    try:
        return max(len(element), zstandard.get_frame_parameters(_decode_compressed(element)[2]).content_size)
    except (msgspec.MsgspecError, ValueError, zstandard.ZstdError):
        return len(element)


def decode_frame(frame: object) -> tuple[dict[str, Any] | bytes, dict[str, Any] | bytes | None]:
    """Return payload and beside of a compressed message. Raises Undecodable, msgspec.MsgspecError or ValueError."""
    if type(frame) is not bytes:
        raise Undecodable("a compressed message has no frame")
    return _decode_content(b"\x92" + _decompress(frame))


def _decompress(frame: bytes) -> bytes:
    try:
        if not 0 <= zstandard.get_frame_parameters(frame).content_size <= _MOST_BYTES:
            raise Undecodable("a compressed message claims a size over the limit")
        content: bytes = zstandard.ZstdDecompressor().decompress(frame, allow_extra_data=False)
    except (zstandard.ZstdError, ValueError, MemoryError):
        raise Undecodable("a compressed message cannot be decompressed") from None
    return content
