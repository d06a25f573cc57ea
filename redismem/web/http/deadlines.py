"""The deadlines of requests, watched by one timer for all of them.

`asyncio.timeout` arms and cancels a timer per request. On uvloop that took 7 % more of the service's CPU for an append
that reads, 6 % of the whole request with client and Redis (median of 130 interleaved rounds).
"""

from __future__ import annotations

import asyncio
from time import monotonic
from types import TracebackType
from typing import Any

_CHECKS_COUNT = 8


class Deadlines:
    """The deadlines of running blocks. A block is cancelled after `limit_s`, or up to an eighth of that time later."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._running: set[Deadline] = set()
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, begun_s: float) -> Deadline:
        """Return a context manager that is the deadline of a block, which began at `begun_s` by `time.monotonic`."""
        return Deadline(self._running, self._check_later, begun_s + self._limit_s)

    def _check_later(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._limit_s / _CHECKS_COUNT, self.check)

    def check(self) -> None:
        """Cancel the blocks that are overdue. The timer calls this."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now_s = monotonic()
        for deadline in [deadline for deadline in self._running if deadline.due_s <= now_s]:
            deadline.expire()
        if self._running:
            self._check_later()


class Deadline:
    """A context manager that cancels its block once it is overdue, and then raises TimeoutError."""

    __slots__ = ("_cancelling", "_check_later", "_is_expired", "_running", "_task", "due_s")

    def __init__(self, running: set[Deadline], look_later: Any, due_s: float) -> None:
        self._running = running
        self._check_later = look_later
        self._is_expired = False
        self.due_s = due_s

    def __enter__(self) -> Deadline:
        task = asyncio.current_task()
        assert task is not None
        self._task, self._cancelling = task, task.cancelling()
        self._running.add(self)
        self._check_later()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.discard(self)
        # Like asyncio.timeout: a cancellation by other code stays a cancellation.
        if self._is_expired and self._task.uncancel() <= self._cancelling and isinstance(error, asyncio.CancelledError):
            raise TimeoutError from error

    def lift(self) -> None:
        """Remove the deadline. From now on the block may take any time."""
        self._running.discard(self)

    def expire(self) -> None:
        """Cancel the block."""
        self._running.discard(self)
        self._is_expired = True
        self._task.cancel()
