"""Messages of the window that an earlier release has compressed."""

from __future__ import annotations

from typing import Any

import zstandard

from redismem.messages.message import STAMP_BYTES
from redismem.messages.values import encode_plain
from redismem.protocol.keys import SessionKeys

_INTEGER_BYTES = {0xCC: 2, 0xCD: 3, 0xCE: 5}


def compress_element(element: bytes) -> bytes:
    """Compress an unstamped element of version 1."""
    start = 2 + _INTEGER_BYTES.get(element[2], 1)
    frame = zstandard.ZstdCompressor(level=1, write_checksum=True).compress(element[start:])
    return b"".join((b"\x95\x02", element[2:start], encode_plain(frame), encode_plain(None)))


async def compress_window(raw: Any, keys: SessionKeys, above_bytes: int = 300) -> None:
    """Compress each message of the window that has more bytes."""
    for at, element in enumerate(await raw.lrange(keys.messages, 0, -1)):
        if len(element) > above_bytes:
            compressed = compress_element(element[:-STAMP_BYTES]) + element[-STAMP_BYTES:]
            await raw.lset(keys.messages, at, compressed)
