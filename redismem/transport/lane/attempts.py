"""The attempts of a lane to connect: the pause before each, its timeout, and the reason of the last failure. No I/O."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from redismem.protocol.server_errors import ConnectionLost
from redismem.transport.resp import Pending

_FIRST_PAUSE_S = 0.01
_LONGEST_PAUSE_S = 1.0


class Attempts:
    """Decides about the attempts of one lane to connect.

    The first attempt may take `first_s`, and each further one twice as long as the one before, up to `longest_s`.
    """

    def __init__(self, first_s: float, longest_s: float) -> None:
        self._first_s, self._longest_s = first_s, longest_s
        self._impatient: list[asyncio.Future[list[Any]]] = []
        self.succeed()

    def succeed(self) -> None:
        """Note that the lane is connected."""
        self._pause_s, self._limit_s = 0.0, self._first_s
        self.reason = self.text = ""
        self.is_failing = False
        self._impatient.clear()

    def note_lost(self, reason: str) -> None:
        """Note that a connection was lost. `reason` explains why later calls time out; "" does not."""
        # With jitter, because processes that lost the same server must not all reconnect at once.
        self._pause_s = _FIRST_PAUSE_S
        self.reason, self.text = reason, ""

    def begin(self) -> tuple[float, float]:
        """Return the seconds to wait before the next attempt, and the seconds that it may take."""
        pause_s, limit_s = random.uniform(0, self._pause_s), self._limit_s
        self._pause_s = min(_LONGEST_PAUSE_S, max(_FIRST_PAUSE_S, self._pause_s * 2))
        self._limit_s = min(self._longest_s, 2 * limit_s)
        return pause_s, limit_s

    def fail(self, reason: str, text: str = "") -> None:
        """Note that an attempt has failed, and end the calls that wait for no other."""
        self.reason, self.text, self.is_failing = reason, text, True
        for reply in self._impatient:
            Pending(reply).end(self.failure())
        self._impatient.clear()

    def failure(self) -> ConnectionLost:
        """Return the error for a call that waits for no further attempt."""
        return ConnectionLost(self.reason, sent=False, text=self.text)

    def end_if_failed(self, reply: asyncio.Future[list[Any]]) -> None:
        """Let the next failed attempt end this call."""
        self._impatient.append(reply)
