"""Refuse calls that this process could not answer in time, at once and before they are encoded or sent.

A process with more calls than it can make has a standing queue: each call waits for those before it, until all are
late. So a queue is judged by how long it has stood, not by its length: a burst empties by itself. Once a queue has
stood, an iteration of the event loop begins only so much new work, and the rest is refused.

The rule is that of CoDel (https://queue.acm.org/detail.cfm?id=2209336), as servers use it
(https://queue.acm.org/detail.cfm?id=2839461). The queue stays first in, first out: calls of a session keep their order.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections import deque
from time import monotonic
from typing import Any, Protocol

LATE_S = 0.2
"""An iteration of the event loop that takes as long as this is late."""
STANDING_S = 0.3
"""The seconds for which iterations or replies must stay late, after the first late one, before calls are refused."""
LONG_S = 0.05
"""An iteration that takes longer is long while calls are refused: a turn takes several of them."""
TAKEN_S, MOST_TAKEN_S = 0.01, 0.25
"""The seconds of an iteration that begin new work while calls are refused: the fewest, and the most.

A long iteration halves them, and each short one adds a fifth: refusals and other work take their time too.
"""
CALM_S = 0.5
"""The seconds without a refusal after which the overload counts as over."""
FORGOTTEN_S = 1.0
"""The seconds after which a measurement says nothing about the present."""
FEW_COUNT = 16
"""With fewer calls under way none is refused: they are not what keeps the process busy."""
_RETRY_S = (1.0, 3.0)


class Reason:
    """The reasons for which a call is refused, as `Overloaded.reason`."""

    BUSY = "BusyProcess"
    """The event loop is behind: calls wait in this process."""
    SLOW = "SlowReplies"
    """Redis is behind: it answers, but late."""
    CROWD = "TooManyCalls"
    """The line of calls that wait to be sent is full."""
    LATE = "TimeoutError"
    """The call waited to be sent, and the process has used up its retries."""


class Queue(Protocol):
    """A connection, as far as admission reads it."""

    sent: deque[Any]
    """The calls without a reply, in order."""
    answered_at: float
    """The loop's time of the last reply."""


class Admission:
    """The admission of calls to one lane, by the event loop that uses it."""

    def __init__(self, place: str, stall_s: float) -> None:
        """Create it for the lane to `place`, whose connection is closed after `stall_s` without a reply."""
        self.place = place
        self._slow_s = stall_s / 4
        self.loop: asyncio.AbstractEventLoop | None = None
        self.is_marked = False
        """True while an iteration is being measured."""
        self._queue: Queue | None = None
        self._taken_s = TAKEN_S
        self._marked_s = self._measured_s = self._refused_s = -math.inf
        self._late_since_s = math.inf

    def mark(self, loop: asyncio.AbstractEventLoop, queue: Queue) -> None:
        """Begin to measure an iteration of the event loop in which several calls are under way."""
        # uvloop's own time stands still during an iteration
        self.loop, self._queue, self._marked_s, self.is_marked = loop, queue, monotonic(), True
        loop.call_soon(self._measure)

    def end(self) -> None:
        """Refuse nothing more: the lane is closed."""
        behind.discard(self)

    def _measure(self) -> None:
        """Note how long the iteration took. Runs at its end."""
        now_s, self.is_marked = monotonic(), False
        if self._marked_s - self._measured_s > FORGOTTEN_S:
            self._late_since_s = math.inf
        self._measured_s = now_s
        if now_s - self._marked_s > LONG_S:
            self._taken_s = max(TAKEN_S, self._taken_s / 2)
        elif self in behind:
            self._taken_s = min(MOST_TAKEN_S, self._taken_s * 1.2)
        if now_s - self._marked_s >= LATE_S or self._wait_s() >= self._slow_s:
            # from its end: a pause of the process is one long iteration, and the next is short
            self._late_since_s = min(self._late_since_s, now_s)
            behind.add(self)
        else:
            self._late_since_s = math.inf
            if now_s - self._refused_s > CALM_S:
                behind.discard(self)

    def _wait_s(self) -> float:
        """Return how long the oldest call has waited for a server that answers others; 0 if the server is silent."""
        queue = self._queue
        if queue is None or self.loop is None or not queue.sent:
            return 0.0
        now, oldest_at = self.loop.time(), queue.sent[0].begun_at
        is_answering = queue.answered_at > oldest_at and now - queue.answered_at < self._slow_s
        return now - oldest_at if is_answering else 0.0

    def reason_to_refuse(self, place: str, patience: float) -> str:
        """Return why a call to this place cannot be made in time now; "" if it can."""
        now_s = monotonic()
        if now_s - self._late_since_s <= STANDING_S and now_s - self._refused_s > CALM_S:
            return ""  # perhaps a burst
        if not self.is_marked and now_s - self._measured_s > FORGOTTEN_S:
            behind.discard(self)
            return ""
        reason = ""
        if self._queue is not None and len(self._queue.sent) >= FEW_COUNT:
            if self.is_marked and now_s - self._marked_s > self._taken_s * patience:
                reason = Reason.BUSY
            elif place == self.place and self._wait_s() > self._slow_s * patience:
                reason = Reason.SLOW
        if reason:
            self._refused_s = now_s
        return reason


behind: set[Admission] = set()
"""The lanes of this process that refuse calls now; empty unless the process is overloaded."""


def reason_to_refuse(place: str, patience: float) -> str:
    """Return why this process cannot make a call to this place in time now; "" if it can.

    `patience` is how many times as late as new work the call may be.
    """
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:  # a blocking caller: its threads are its limit
        return ""
    for each in tuple(behind):
        if each.loop is loop and (reason := each.reason_to_refuse(place, patience)):
            return reason
    return ""


def retry_after_s() -> float:
    """Return the seconds after which a refused caller may try again, with jitter: not all must return at once."""
    return random.uniform(*_RETRY_S)
