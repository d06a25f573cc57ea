"""Choose the calls of a lane that go over its second connection, so that small calls need not wait behind them.

These are calls of more than 32 KiB, and reads of whole windows whose last read had a reply of that size. The calls of a
session never overtake each other: while a session has calls on one connection, its next calls go over the same one.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence

from redismem.protocol.call import Command
from redismem.transport.lane.connection import LARGE_BYTES, PendingCall

_WINDOWS_LIMIT = 1_000
_FIRST_KEY = 3  # index in EVALSHA


def _key_of(commands: Sequence[Command]) -> object:
    """Return the key of the session's messages: the first key of a script, or the list that a transaction reads."""
    if not commands:
        return None
    first, last = commands[0], commands[-1]
    if first[0] == "EVALSHA":
        return first[_FIRST_KEY] if len(first) > _FIRST_KEY else None
    return last[1] if last[0] == "LRANGE" else None


def _reads_window(commands: Sequence[Command]) -> bool:
    last = commands[-1]
    return last[0] == "LRANGE" and last[2] == 0


class LargeCalls:
    """The sessions with large windows, and those that have calls on the second connection of one lane."""

    def __init__(self) -> None:
        self.keys: dict[object, None] = {}
        """The sessions whose last read of the whole window had a large reply. The oldest are forgotten."""
        self.pending: dict[object, weakref.ref[PendingCall]] = {}
        """The last call on the second connection, for each session that has one there."""

    def note_reply(self, call: PendingCall) -> None:
        """Remember the session of a call whose reply was large, if it read a window."""
        if call.commands and _reads_window(call.commands):
            self.keys[_key_of(call.commands)] = None
            if len(self.keys) > _WINDOWS_LIMIT:
                self.keys.pop(next(iter(self.keys)))

    def take(self, call: PendingCall, others: Iterable[PendingCall]) -> bool:
        """Return True if the call goes over the second connection. `others` are the calls on the first one."""
        key = _key_of(call.commands)
        if key is None:
            return False
        if key not in self.pending:
            is_large_read = key in self.keys and _reads_window(call.commands)
            if not is_large_read and len(call.content) <= LARGE_BYTES:
                return False
            if any(_key_of(other.commands) == key for other in others):
                return False
            self.keys.pop(key, None)  # its reply tells whether it is still large
        self._note_sent(key, call)
        return True

    def _note_sent(self, key: object, call: PendingCall) -> None:
        """Let the session's next calls follow this one, as long as it waits to be sent or for its reply."""
        pending = self.pending

        def end(reference: weakref.ref[PendingCall]) -> None:
            if pending.get(key) is reference:
                del pending[key]

        pending[key] = weakref.ref(call, end)
