"""Calls that read and add dictionaries of a namespace. A dictionary is never changed or removed. No I/O.

Scripts about sessions cannot access dictionaries, which have their own slot. A worker reads the dictionary before it
writes a block.
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
    """Build a call that reads the dictionaries' versions, ascending."""

    def decode(fields: Any) -> list[int]:
        return sorted(int(version) for version in fields if version.isdigit())

    return Call(None, (("HKEYS", keys.dictionaries),), decode, op=Op.DICTIONARIES)


def read(keys: Keys, versions: Sequence[int]) -> Call[dict[int, Dictionary]]:
    """Build a call that reads dictionaries by version. Missing and unreadable ones are left out."""

    def decode(values: Sequence[bytes | None]) -> dict[int, Dictionary]:
        decoded = (_decode(version, value) for version, value in zip(versions, values, strict=True))
        return {dictionary.version: dictionary for dictionary in decoded if dictionary is not None}

    return Call(None, (("HMGET", keys.dictionaries, *versions),), decode, op=Op.DICTIONARIES)


def add(keys: Keys, dictionary: Dictionary) -> Call[bool]:
    """Build a call that adds a dictionary.

    False means that its version exists, perhaps because the first attempt of this call added it.
    """
    value = dictionary.created_ms.to_bytes(_TIME_BYTES, "big") + dictionary.content
    return Call(None, (("HSETNX", keys.dictionaries, dictionary.version, value),), bool, op=Op.DICTIONARIES)


def _decode(version: int, value: bytes | None) -> Dictionary | None:
    if value is None:
        return None
    try:
        return Dictionary(version, int.from_bytes(value[:_TIME_BYTES], "big"), value[_TIME_BYTES:])
    except Undecodable:
        return None
