"""Large messages compressed where they stand: the second form of an element. No I/O.

    [version = 2, tokens, frame, nil, stored_ms]

`frame` is a zstd frame (RFC 8878) of what stands in its place in the first form: payload and beside.
"""

from __future__ import annotations

from typing import Any

import msgspec
import zstandard

from redismem.messages.message import COMPRESSED_VERSION, FORMAT_VERSION
from redismem.messages.values import Undecodable, encode_plain

_LEVEL = 1
_MOST_BYTES = 1 << 27
"""No message is unpacked to more: twice the largest that the settings allow."""
_HEAD = b"\x95" + FORMAT_VERSION.to_bytes(1, "big")
_COMPRESSED_HEAD = b"\x95" + COMPRESSED_VERSION.to_bytes(1, "big")
_NIL = encode_plain(None)
_INTEGER_BYTES = {0xCC: 2, 0xCD: 3, 0xCE: 5}
_parts = msgspec.msgpack.Decoder(tuple[msgspec.Raw, msgspec.Raw, bytes, None, msgspec.Raw]).decode
_two = msgspec.msgpack.Decoder(tuple[dict[str, Any] | bytes, dict[str, Any] | bytes | None]).decode


def compressed(element: bytes) -> bytes:
    """An element of the first form, without its stamp, in the second form, if that is shorter."""
    start = len(_HEAD) + _INTEGER_BYTES.get(element[len(_HEAD)], 1)
    frame = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).compress(element[start:])
    made = b"".join((_COMPRESSED_HEAD, element[len(_HEAD) : start], encode_plain(frame), _NIL))
    return made if len(made) < len(element) else element


def expanded(element: bytes) -> bytes:
    """A whole element in the first form. Raises Undecodable for one of the second that cannot be unpacked."""
    if not element.startswith(_COMPRESSED_HEAD):
        return element
    try:
        _, tokens, frame, _, stamp = _parts(element)
    except (msgspec.MsgspecError, ValueError):
        raise Undecodable("a compressed message cannot be unpacked") from None
    return b"".join((_HEAD, tokens, _content(frame), stamp))


def expanded_bytes(element: bytes) -> int:
    """How many bytes a whole element has in the first form, or says so. Nothing is unpacked for it."""
    if not element.startswith(_COMPRESSED_HEAD):
        return len(element)
    try:
        return max(len(element), zstandard.get_frame_parameters(_parts(element)[2]).content_size)
    except (msgspec.MsgspecError, ValueError, zstandard.ZstdError):
        return len(element)


def payload_and_beside(frame: object) -> tuple[dict[str, Any] | bytes, dict[str, Any] | bytes | None]:
    """What stands in the frame of a compressed message. Raises Undecodable, and what msgspec raises."""
    if type(frame) is not bytes:
        raise Undecodable("a compressed message has no frame")
    return _two(b"\x92" + _content(frame))


def _content(frame: bytes) -> bytes:
    try:
        if not 0 <= zstandard.get_frame_parameters(frame).content_size <= _MOST_BYTES:
            raise Undecodable("a compressed message says that it is larger than any may be")
        content: bytes = zstandard.ZstdDecompressor().decompress(frame, allow_extra_data=False)
    except (zstandard.ZstdError, ValueError, MemoryError):
        raise Undecodable("a compressed message cannot be unpacked") from None
    return content
