"""Scan the keys of a node. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from redismem.events import Op
from redismem.protocol.call import Call

_SPECIAL = re.compile(rb"([\\*?\[\]^])")
_RECORD = re.compile(rb"rm:\{([^{}:]+)\}:namespace")
NAMESPACES = b"rm:{*}:namespace"
"""The MATCH pattern of the records of all namespaces."""


class ScanStep(NamedTuple):
    """One step of a key scan: the next cursor (0 ends the scan), and the matching keys."""

    cursor: int
    keys: Sequence[bytes]


def scan_keys(pattern: bytes, cursor: int, count: int, op: Op = Op.LOOK) -> Call[ScanStep]:
    """Build one scan step over about `count` keys of the node."""
    command = ("SCAN", cursor, "MATCH", pattern, "COUNT", count)
    return Call(None, (command,), lambda reply: ScanStep(int(reply[0]), reply[1]), op=op)


def escape(text: bytes) -> bytes:
    """Escape the wildcards of a MATCH pattern, so that it takes the text literally."""
    return _SPECIAL.sub(rb"\\\1", text)


def namespaces_of(records: Iterable[bytes]) -> set[str]:
    """Return the namespaces of these record keys."""
    return {match[1].decode() for match in map(_RECORD.fullmatch, records) if match}
