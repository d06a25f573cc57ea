"""Clocks that stand still until a test sets them."""

from __future__ import annotations

from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from redismem import Memory

T = TypeVar("T")

# Far enough ahead that nothing expires by the server's clock.
T0 = 4_000_000_000_000


class Clock:
    """Give it to a memory as its `clock`."""

    def __init__(self, now_ms: int = T0) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms

    async def at(self, now_ms: int, work: Coroutine[Any, Any, T]) -> T:
        """What the work gives that begins at this time."""
        self.now_ms = now_ms
        return await work


BEGIN = datetime(2100, 1, 1, tzinfo=UTC)
"""The first moment of the clock: in the future, or a server would drop keys at once."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ProjectClock:
    """Give it to a memory as its `clock`: it moves only when it is told to."""

    def __init__(self) -> None:
        self.now = BEGIN

    def __call__(self) -> int:
        return (self.now - _EPOCH) // timedelta(milliseconds=1)

    def tick(self, seconds: float = 1) -> datetime:
        """Moves on. Gives the time then."""
        self.now += timedelta(seconds=seconds)
        return self.now

    def of(self, memory: Memory) -> Memory:
        """The memory, which goes by this clock from now on. No session of it may have been used yet."""
        memory.store.clock = self
        return memory
