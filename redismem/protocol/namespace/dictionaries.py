"""Calls about the dictionaries of a namespace: read, and added to. None is ever changed or removed. No I/O.

They have a slot of their own, so no script of a session may touch them: who writes a block has read its dictionary
before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redismem.events import Op
from redismem.messages.values import Undecodable
from redismem.originals.dictionaries import Dictionary
from redismem.protocol.call import Call
from redismem.protocol.keys import Keys

_TIME_BYTES = 8


def versions(keys: Keys) -> Call[list[int]]:
    """The versions of all dictionaries of the namespace, in ascending order."""

    def decode(found: Any) -> list[int]:
        return sorted(int(version) for version in found if version.isdigit())

    return Call(None, (("HKEYS", keys.dictionaries),), decode, op=Op.DICTIONARIES)


def read(keys: Keys, versions: Sequence[int]) -> Call[dict[int, Dictionary]]:
    """The dictionaries of these versions that are there and can be read, by version."""

    def decode(found: Sequence[bytes | None]) -> dict[int, Dictionary]:
        readable = ((version, _dictionary(version, value)) for version, value in zip(versions, found, strict=True))
        return {version: each for version, each in readable if each is not None}

    return Call(None, (("HMGET", keys.dictionaries, *versions),), decode, op=Op.DICTIONARIES)


def add(keys: Keys, dictionary: Dictionary) -> Call[bool]:
    """Adds one, unless there is one of its version. Sent again after a lost reply, it gives False."""
    value = dictionary.created_ms.to_bytes(_TIME_BYTES, "big") + dictionary.content
    return Call(None, (("HSETNX", keys.dictionaries, dictionary.version, value),), bool, op=Op.DICTIONARIES)


def _dictionary(version: int, value: bytes | None) -> Dictionary | None:
    if value is None:
        return None
    try:
        return Dictionary(version, int.from_bytes(value[:_TIME_BYTES], "big"), value[_TIME_BYTES:])
    except Undecodable:
        return None
