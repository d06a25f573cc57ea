"""The alarm of a lane: one timer for the deadlines of all its calls."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

# Resolution of an event loop's clock.
_CLOCK_STEP_S = 0.001
# Bounds how often an overloaded lane scans its thousands of calls for late ones.
_STEP_S = 0.01
# An alarm this late was delayed by this process itself.
_BUSY_S = 0.1


class Alarm:
    """Calls a function when the earliest deadline has passed."""

    def __init__(self, ring: Callable[[float], float], patience_s: float) -> None:
        """Create an alarm that is not set. `ring` takes the loop's time, and returns when it must be called again."""
        self._ring = ring
        self._patience_s = patience_s
        self._timer: asyncio.TimerHandle | None = None
        self._is_late = False
        self.at = math.inf
        """The time for which the alarm is set."""

    def set(self, loop: asyncio.AbstractEventLoop, at: float) -> None:
        """Set the alarm for a time of the loop."""
        self.cancel()
        self.at, self._timer = at, loop.call_at(at, self._go_off, loop)

    def cancel(self) -> None:
        """Forget the time for which the alarm is set."""
        if self._timer is not None:
            self._timer.cancel()
        self.at, self._timer = math.inf, None

    def _go_off(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time() + _CLOCK_STEP_S
        busy_s, self._timer, self.at = now - self.at, None, math.inf
        if busy_s > _BUSY_S and not self._is_late:
            # This process was too busy to read its socket. Read the replies first, then look for late calls.
            self._is_late = True
            self.set(loop, now + min(busy_s, self._patience_s))
            return
        self._is_late = False
        if (at := self._ring(now)) < self.at:
            self.set(loop, max(at, now + _STEP_S))
