"""The deadlines of requests. One timer looks after all of them: arming one for each costs as much as parsing it."""

from __future__ import annotations

import asyncio
from time import monotonic
from types import TracebackType
from typing import Any

_LOOKS_COUNT = 8


class Deadlines:
    """A time limit for operations: each may take this long, and up to an eighth more."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._running: set[Deadline] = set()
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, begun_s: float) -> Deadline:
        """The deadline of what began then (`time.monotonic`), for the block that is run `with` it."""
        return Deadline(self._running, self._look_later, begun_s + self._limit_s)

    def _look_later(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._limit_s / _LOOKS_COUNT, self.look)

    def look(self) -> None:
        """Ends what is due. The timer calls it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now_s = monotonic()
        for deadline in [each for each in self._running if each.due_s <= now_s]:
            deadline.pass_by()
        if self._running:
            self._look_later()


class Deadline:
    """`with` one: its block is cancelled when it takes too long, and TimeoutError is raised."""

    __slots__ = ("_cancelling", "_is_over", "_look_later", "_running", "_task", "due_s")

    def __init__(self, running: set[Deadline], look_later: Any, due_s: float) -> None:
        self._running = running
        self._look_later = look_later
        self._is_over = False
        self.due_s = due_s

    def __enter__(self) -> Deadline:
        task = asyncio.current_task()
        assert task is not None
        self._task, self._cancelling = task, task.cancelling()
        self._running.add(self)
        self._look_later()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.discard(self)
        # As asyncio.timeout: a cancellation by somebody else stays one.
        if self._is_over and self._task.uncancel() <= self._cancelling and isinstance(error, asyncio.CancelledError):
            raise TimeoutError from error

    def lift(self) -> None:
        """From here on it may take as long as it likes."""
        self._running.discard(self)

    def pass_by(self) -> None:
        """Cancels the block."""
        self._running.discard(self)
        self._is_over = True
        self._task.cancel()
