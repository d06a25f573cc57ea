"""Calls that remove a whole session. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from redismem.events import Op
from redismem.protocol import layout, scripts
from redismem.protocol.call import Call, evalsha
from redismem.protocol.clears import WHICHEVER, new_note, noted_ms
from redismem.protocol.keys import SessionKeys
from redismem.settings.settings import Settings

T = TypeVar("T")


class OwnedLife(NamedTuple):
    """The field `owner` of a session that has an owner, and its epoch."""

    owner: bytes
    epoch: str


def clear(keys: SessionKeys, settings: Settings) -> Call[bool | OwnedLife]:
    """Build a call that removes a session. If it has an owner, it is left, and the call returns its life.

    Decoding raises:
        OwnerMismatch: the session has another owner than the keys name, or none.
    """

    def decode(reply: Any) -> bool | OwnedLife:
        if isinstance(reply, int):
            return bool(reply)
        owner, epoch = reply
        return OwnedLife(owner, epoch.decode("utf-8", "replace"))

    note = new_note(keys.shard.active.removesuffix(b":active"))
    return _clear(keys, [note], (WHICHEVER, noted_ms(settings), keys.owner or layout.NONE), decode)


def clear_life(keys: SessionKeys, epoch: str) -> Call[bool]:
    """Build a call that removes a session if it is still in this epoch; "" means that there was none."""
    return _clear(keys, (), (epoch or layout.NONE, 0, layout.NONE), bool)


def _clear(
    keys: SessionKeys, more: Sequence[bytes], life: tuple[str, int, bytes | str], decode: Callable[[Any], T]
) -> Call[T]:
    script = scripts.load("clear")
    names = (keys.messages, keys.state, keys.originals, keys.vectors, *keys.shard.all_indexes, *more)
    return Call(keys.session_id, (evalsha(script, names, (keys.session, *life)),), decode, script, op=Op.CLEAR)
