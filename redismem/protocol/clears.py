"""The note of a clear, by which Redis recognises it if it is resent. No I/O."""

from __future__ import annotations

from redismem.protocol.ids import nonce
from redismem.settings.settings import Settings

WHICHEVER = "*"
"""The life of what a clear with a note removes: whatever there is."""
_NOTED_MS = 60_000


def new_note(shard: bytes) -> bytes:
    """Return the key of the note of a new clear. All keys of its shard begin with `shard`."""
    return shard + b":cleared:" + nonce()


def noted_ms(settings: Settings) -> int:
    """Return the time for which Redis keeps the note: a minute beyond twice the deadline of a call."""
    return _NOTED_MS + int(2_000 * settings.deadline_s)
