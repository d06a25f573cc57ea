"""The requests that a server has read and not begun.

An event loop that begins all that it has read comes back to its sockets late, so a stop or a probe waits behind
thousands of appends. Here each iteration begins a few requests, and the others wait in line. A line knows how long a
request would wait at its end. Once that is too long, requests are refused: at once, and while that is cheap.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from enum import Enum
from time import monotonic
from typing import Any

BATCH_COUNT = 32
"""The requests that an iteration of the event loop begins."""
NEW_WORK_COUNT = 8
"""The requests of an iteration that are kept for new work while replies wait."""
LONGEST_S = 0.6
"""The wait from which a request is refused: with what follows, it is still answered within a second."""
STANDING_S = 0.1
"""The seconds for which a line must be too long before requests are refused: a pause of the process is no overload."""
ARRIVED_S = "redismem.arrived_s"
"""The key in a request's ASGI scope of its arrival by `time.monotonic`; absent if the request has not waited."""

Answer = tuple[int, bytes, bytes]
"""The status of an answer, its header lines and its body."""


class Priority(Enum):
    """The priority of a request."""

    AT_ONCE = 0
    """It never waits and is never refused."""
    REPLY = 1
    """It goes before new work."""
    NEW_WORK = 2


class Line:
    """The requests of one kind that wait, in the order of their arrival."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Callable[[], None], float, int]] = deque()
        self._too_long_since_s = math.inf

    def __len__(self) -> int:
        return len(self._waiting)

    def wait_s(self) -> float:
        """Return how long one more request would wait, at the pace of those that the first has waited for."""
        if not self._waiting:
            return 0.0
        _, arrived_s, ahead_count = self._waiting[0]
        return len(self._waiting) * (monotonic() - arrived_s) / max(ahead_count, BATCH_COUNT)

    def is_full(self) -> bool:
        """True if one more request would wait for too long, as others would have for a while."""
        wait_s, now_s = self.wait_s(), monotonic()
        if wait_s > LONGEST_S:
            self._too_long_since_s = min(self._too_long_since_s, now_s)
        elif wait_s < LONGEST_S / 2:
            self._too_long_since_s = math.inf
        return wait_s > LONGEST_S and now_s - self._too_long_since_s >= STANDING_S

    def add(self, scope: Any, begin: Callable[[], None]) -> None:
        scope[ARRIVED_S] = now_s = monotonic()
        self._waiting.append((begin, now_s, len(self._waiting)))

    def begin(self, most_count: int) -> int:
        """Begin the first requests, and return their number."""
        count = min(most_count, len(self._waiting))
        for _ in range(count):
            self._waiting.popleft()[0]()
        return count


class RequestQueue:
    """The requests of one server, which are begun by their priority, and then in the order of their arrival."""

    def __init__(self, priority_of: Callable[[Any], Priority], refuse: Callable[[Any], Answer]) -> None:
        """Create an empty queue. Both functions take the ASGI scope of a request; `refuse` returns the answer to it."""
        self.priority_of = priority_of
        self.refuse = refuse
        self._replies, self._new_work = Line(), Line()
        self._left_count = BATCH_COUNT
        self._is_counting = False

    def is_full(self, priority: Priority) -> bool:
        """True if a request must be refused."""
        return self._line(priority).is_full()

    def begin(self, loop: asyncio.AbstractEventLoop, priority: Priority, scope: Any, begin: Callable[[], None]) -> None:
        """Begin a request: now, or after those that go before it."""
        if not self._is_counting:
            self._is_counting = True
            loop.call_soon(self._begin_more, loop)
        if self._left_count:  # so none waits
            self._left_count -= 1
            begin()
        else:
            self._line(priority).add(scope, begin)

    def _line(self, priority: Priority) -> Line:
        return self._replies if priority is Priority.REPLY else self._new_work

    def _begin_more(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin the requests of an iteration."""
        left_count = BATCH_COUNT - self._replies.begin(BATCH_COUNT - min(NEW_WORK_COUNT, len(self._new_work)))
        left_count -= self._new_work.begin(left_count)
        self._left_count, self._is_counting = left_count, left_count < BATCH_COUNT
        if self._is_counting:
            loop.call_soon(self._begin_more, loop)
