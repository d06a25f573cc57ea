"""Refuse calls of an overloaded process, and bound its retries. No I/O.

An overloaded server whose clients repeat what it answers late gets several times the load, and stays overloaded after
the cause is gone. So retries of calls that were late, while Redis answered others, have a budget, like Finagle's
(https://finagle.github.io/blog/2016/02/08/retry-budgets). Lost connections have none: each lane opens one new
connection at a time, with pauses, and its calls wait for that.
"""

from __future__ import annotations

import math
from collections import Counter
from time import monotonic
from typing import Any

from redismem.errors import Overloaded, RedismemError
from redismem.transport.admission import CALM_S, Reason, behind, reason_to_refuse, retry_after_s

LATE_REQUEST = Reason.BUSY
"""The reason for which a server refuses a request."""
RETRIES_SHARE = 0.1
RETRIES_COUNT = 500


class Refusals:
    """The calls and requests that this process has refused."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        """The number of calls and requests, by reason."""
        self.last_s = -math.inf
        """The time of the last one."""

    def note(self, reason: str) -> None:
        """Count one."""
        self.counts[reason] += 1
        self.last_s = monotonic()


refusals = Refusals()
_MEANINGS = {
    Reason.BUSY: "this process has more calls to make than it can make in time, so this one was not made",
    Reason.SLOW: "Redis answers, but later than this process makes calls, so this one was not made",
}


def is_overloaded() -> bool:
    """True if this process refuses calls or requests, or is about to."""
    return bool(behind) or monotonic() - refusals.last_s < CALM_S


def refusal(patience: int, place: str, session_id: str | None) -> Overloaded | None:
    """Return the error of a call that this process cannot make in time; `None` if it can, or if `patience` is 0."""
    reason = reason_to_refuse(place, patience) if patience else ""
    return overloaded(_MEANINGS[reason], session_id, reason) if reason else None


def overloaded(text: str, session_id: str | None, reason: str) -> Overloaded:
    """Return the error of a call that was refused, and count it."""
    refusals.note(reason)
    return Overloaded(text, session_id, reason, retry_after_s=retry_after_s())


async def fail(error: RedismemError) -> Any:
    """Raise an error once it is awaited, like a call that fails."""
    raise error


class RetryBudget:
    """The retries of late calls: at most a tenth of all calls that succeed, and a reserve of 500."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left: float = RETRIES_COUNT

    def earn(self) -> None:
        """Note a call that succeeded. Called only while the budget is not full."""
        self.left += RETRIES_SHARE

    def take(self) -> bool:
        """Take a retry. False means that there is none left."""
        if self.left < 1:
            return False
        self.left -= 1
        return True
