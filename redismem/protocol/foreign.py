"""Read keys of other programs: lists, and documents of RedisJSON. Never writes. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redismem.protocol import scanning
from redismem.protocol.call import Call, independent
from redismem.protocol.keys import plain
from redismem.protocol.scanning import ScanStep


def scan(beginning: str, ending: str, cursor: int, count: int) -> Call[ScanStep]:
    """Build one scan step over about `count` keys of the node. Beginning and ending are taken literally."""
    pattern = b"*".join(scanning.escape(plain(text).encode()) for text in (beginning, ending))
    return scanning.scan_keys(pattern, cursor, count)


def lists_among(keys: Sequence[bytes]) -> Call[list[bytes]]:
    """Build a call that returns those of the keys that are lists."""

    def decode(*types: Any) -> list[bytes]:
        return [key for key, kind in zip(keys, types, strict=True) if kind == b"list"]

    return independent(tuple(("TYPE", key) for key in keys), decode)


def list_page(key: bytes, start: int, count: int) -> Call[list[bytes]]:
    """Build a call that reads `count` entries of a list. A negative start counts from its end."""
    stop = start + count - 1
    return Call(None, (("LRANGE", key, start, stop),), list)


def documents(keys: Sequence[bytes]) -> Call[list[bytes | None]]:
    """Build a call that reads the JSON text of each document; `None` for a key that does not exist."""
    return independent(tuple(("JSON.GET", key) for key in keys), lambda *texts: list(texts))


def expires(key: bytes) -> Call[bool]:
    """Build a call that returns True if the key has a time to live."""
    return Call(None, (("PTTL", key),), lambda reply: int(reply) >= 0)
