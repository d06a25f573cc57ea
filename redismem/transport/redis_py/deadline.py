"""The deadline of a call over a redis-py client."""

from __future__ import annotations

import asyncio
from types import TracebackType

_AGAIN_S = 0.05


class Deadline:
    """A context manager that cancels its block after `timeout_s`, until the block ends, and then raises TimeoutError.

    `asyncio.timeout` cancels once. Before Python 3.12, `asyncio.wait_for` drops a cancellation that comes as its work
    is done, and redis-py writes with it: on a busy event loop a call would last as long as the client's own timeouts.
    """

    __slots__ = ("_cancelling", "_is_expired", "_loop", "_task", "_timeout_s", "_timer")

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._is_expired = False

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task, self._cancelling = task, task.cancelling()
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(self._timeout_s, self._expire)

    def _expire(self) -> None:
        if self._is_expired:
            self._task.uncancel()  # the cancellation that was dropped still counts
        self._is_expired = True
        self._task.cancel()
        self._timer = self._loop.call_later(_AGAIN_S, self._expire)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        # Like asyncio.timeout: a cancellation by other code stays a cancellation.
        if self._is_expired and self._task.uncancel() <= self._cancelling and isinstance(error, asyncio.CancelledError):
            raise TimeoutError from error
