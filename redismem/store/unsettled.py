"""Remember the sessions and records of calls that ended while an attempt may still arrive.

The next call about such a session or record is sent as a resent one, which overtakes the attempt.
"""

from __future__ import annotations

from typing import Any, TypeVar

from redismem.protocol.call import Call
from redismem.protocol.sendings import fenced_keys

T = TypeVar("T")

_LIMIT = 10_000


class Unsettled:
    """The keys of such sessions and records, at most 10,000. Empty in most processes."""

    def __init__(self) -> None:
        self.keys: dict[bytes, None] = {}

    def note(self, call: Call[Any]) -> None:
        """Note that an attempt of this call may still arrive."""
        self.keys |= dict.fromkeys(fenced_keys(call))
        while len(self.keys) > _LIMIT:
            self.keys.pop(next(iter(self.keys)), None)

    def settle(self, call: Call[T], *, may_repeat: bool) -> Call[T]:
        """Return the call to send: one that overtakes the noted attempts about its session or records.

        `may_repeat` is True if the client may resend it by itself.
        """
        keys = [key for key in fenced_keys(call) if key in self.keys]
        for key in keys:
            self.keys.pop(key, None)
        return call.again(is_sent=bool(keys)) if keys or may_repeat else call
