"""Calls that remove a whole session. No I/O."""

from __future__ import annotations

from redismem.events import Op
from redismem.protocol.call import Call, script_call
from redismem.protocol.clears import WHICHEVER, new_note, noted_ms
from redismem.protocol.keys import SessionKeys
from redismem.settings.settings import Settings


def clear(keys: SessionKeys, settings: Settings) -> Call[bool]:
    """Build a call that removes a session.

    Decoding raises:
        OwnerMismatch: the session has another owner than the keys name, or none.
    """
    note = new_note(keys.shard.active.removesuffix(b":active"))
    named = {"cleared": note, "epoch": WHICHEVER, "noted_ms": noted_ms(settings)}
    return script_call(Op.CLEAR, keys, bool, named)


def clear_life(keys: SessionKeys, epoch: str) -> Call[bool]:
    """Build a call that removes a session if it is still in this epoch; "" means that there was none."""
    named = {"cleared": None, "epoch": epoch or None, "noted_ms": 0, "owner": None}
    return script_call(Op.CLEAR, keys, bool, named)
