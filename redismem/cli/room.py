"""The memory that a command may take from a Redis which others use."""

from __future__ import annotations

import json
from typing import Any

from redismem.cli.terminal import Stop
from redismem.inspection.servers import free_bytes
from redismem.store.store import Store

_UNLIMITED_BYTES = 1_000_000_000
"""The most that is taken from a Redis without `maxmemory`."""
_STORED_SHARE, _MESSAGE_BYTES, _SESSION_BYTES = 1.5, 250, 10_000
"""More than what Redis needs for a byte of a message, besides for each message, and for a session with its summary."""


def json_bytes(message: dict[str, Any]) -> int:
    """Return the length of a message as JSON."""
    return len(json.dumps(message, ensure_ascii=False).encode("utf-8", "surrogatepass"))


def bytes_in_redis(count: int, text_bytes: int) -> int:
    """Return more than the bytes in Redis of a session with so many messages, and so many bytes of JSON."""
    return round(_STORED_SHARE * text_bytes + _MESSAGE_BYTES * count) + _SESSION_BYTES


async def check_room(store: Store, place: str, needed_bytes: int, advice: str) -> int:
    """Return the bytes that may be written: half of what is left of `maxmemory`. The rest stays for others.

    Raises:
        Stop: if more is needed; `advice` says how to need less. Nothing is written.
    """
    left = await free_bytes(store)
    room = _UNLIMITED_BYTES if left is None else max(0, left // 2)
    if needed_bytes > room:
        whose = "1 GB" if left is None else f"half of the {left / 1e6:,.1f} MB that are left of its maxmemory"
        raise Stop(f"{place}: this may need {needed_bytes / 1e6:,.1f} MB, more than {whose}. {advice}", 2)
    return room
