"""Limit the appends of a session that are under way, so that Redis still recognises each of them if it is resent.

A session remembers its last 16 appends, changes of state and edits; all are called appends here. If more of them came
between an append and its resend, Redis would make it twice. So a memory has at most 12 appends of a session under way,
counted from the oldest one without an outcome; four are left for others. While one is being resent, new ones wait
until all that are under way have ended.

A clear begins once the appends before it have ended, and those after it wait for its end: it forgets their ids, so an
append that is resent after it would be a new one.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import deque

from redismem.concurrency import forks
from redismem.concurrency.loops import call_on

_LIMIT = 12
_ALONE = -1


class _Waiting:
    """An append or clear that waits to begin. `number` is 0 until it begins."""

    def __init__(self, *, blocks: bool, is_alone: bool) -> None:
        self.number = 0
        self.is_alone = is_alone
        self._event = threading.Event() if blocks else None
        self._future = None if blocks else asyncio.get_running_loop().create_future()

    def begin(self, number: int) -> None:
        self.number = number
        if self._event is not None:
            self._event.set()
        elif self._future is not None:
            call_on(self._future.get_loop(), self._future.set_result, None)

    async def wait(self, timeout_s: float) -> None:
        """Wait until the append begins, for at most `timeout_s`."""
        if self._event is not None:
            self._event.wait(timeout_s)
        elif self._future is not None:
            await asyncio.wait([self._future], timeout=timeout_s)


class Gate:
    """The appends of one memory that are under way, by session. Waiting appends begin in their order. Thread-safe."""

    def __init__(self, *, blocks: bool) -> None:
        """Create a gate. `blocks` is True if a call blocks its thread."""
        self._blocks = blocks
        self.reset()
        forks.reset_after_fork(self)

    def reset(self) -> None:
        """Start without appends in a forked process: those under way belong to its parent."""
        self._lock = threading.Lock()  # several event loops may use the gate, each in its thread
        self._numbers = itertools.count(1)
        self._begun: dict[str | None, list[int] | None] = {}
        """The numbers of the appends under way, oldest first; 0 is one that has ended before an older one.

        `None` stands for one append, whose number is _ALONE.
        """
        self._resent: set[str | None] = set()
        self.waiting: dict[str | None, deque[_Waiting]] = {}
        """The appends and clears that wait to begin, by session. Other calls of such a session wait behind them."""

    def begin(self, session_id: str | None) -> int:
        """Begin an append, and return its number, which `end` takes. 0 means that it must `wait` to begin."""
        if self._blocks or session_id in self._begun:
            with self._lock:
                return 0 if session_id in self.waiting else self._begin_next(session_id)
        self._begun[session_id] = None  # almost every append, at a tenth of a microsecond
        return _ALONE

    def end(self, session_id: str | None, number: int) -> None:
        """End an append, so that others may begin."""
        if not (self._blocks or self.waiting or self._resent) and self._begun.get(session_id, ()) is None:
            self._begun.pop(session_id, None)
            return
        with self._lock:
            begun = self._begun.get(session_id, []) or [_ALONE]
            if number in begun:
                begun[begun.index(number)] = 0
            while begun and not begun[0]:
                del begun[0]
            if not begun:
                self._begun.pop(session_id, None)
                self._resent.discard(session_id)
            self._begin_waiting(session_id)

    def resend(self, session_id: str | None) -> None:
        """Let new appends wait until all that are under way have ended, because a call of the session is resent."""
        with self._lock:
            if session_id in self._begun:
                self._resent.add(session_id)

    def begin_alone(self, session_id: str | None) -> int:
        """Begin a clear, and return its number, which `end` takes. 0 means that it must `wait` to begin."""
        with self._lock:
            return 0 if session_id in self.waiting else self._begin_next(session_id, is_alone=True)

    async def wait(self, session_id: str | None, timeout_s: float, *, is_alone: bool = False) -> int:
        """Wait until an append or a clear begins, and return its number.

        0 means that it could not begin within `timeout_s`. `is_alone` is True for a clear.
        """
        waiting = _Waiting(blocks=self._blocks, is_alone=is_alone)
        with self._lock:
            self.waiting.setdefault(session_id, deque()).append(waiting)
            self._begin_waiting(session_id)
        try:
            await waiting.wait(timeout_s)
        except BaseException:
            if number := self._leave(session_id, waiting):
                self.end(session_id, number)
            raise
        return self._leave(session_id, waiting)

    def _leave(self, session_id: str | None, waiting: _Waiting) -> int:
        """Return the number of an append that has begun; otherwise stop waiting, and return 0."""
        with self._lock:
            if not waiting.number and waiting in (line := self.waiting.get(session_id, deque())):
                line.remove(waiting)
                if not line:
                    del self.waiting[session_id]
            return waiting.number

    def _begin_waiting(self, session_id: str | None) -> None:
        line = self.waiting.get(session_id)
        while line and (number := self._begin_next(session_id, is_alone=line[0].is_alone)):
            line.popleft().begin(number)
        if line is not None and not line:
            del self.waiting[session_id]

    def _begin_next(self, session_id: str | None, *, is_alone: bool = False) -> int:
        """Begin an append if there is room, or a clear if none is under way, and return its number; otherwise 0."""
        begun = self._begun.setdefault(session_id, [])
        if begun is None:
            begun = self._begun[session_id] = [_ALONE]
        if len(begun) >= (1 if is_alone else _LIMIT) or session_id in self._resent:
            return 0
        if is_alone:
            self._resent.add(session_id)  # those behind it wait
        begun.append(number := next(self._numbers))
        return number
