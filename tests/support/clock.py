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
    """A memory's `clock` that returns `now_ms`."""

    def __init__(self, now_ms: int = T0) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms

    async def run_at(self, now_ms: int, work: Coroutine[Any, Any, T]) -> T:
        """Set the time, and return the result of the work."""
        self.now_ms = now_ms
        return await work


BEGIN = datetime(2100, 1, 1, tzinfo=UTC)
"""The first time of the clock. It is in the future, as a server would expire keys of the past at once."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ProjectClock:
    """A memory's `clock` with a datetime, which only `tick` moves."""

    def __init__(self) -> None:
        self.now = BEGIN

    def __call__(self) -> int:
        return (self.now - _EPOCH) // timedelta(milliseconds=1)

    def tick(self, seconds: float = 1) -> datetime:
        """Advance the clock, and return the new time."""
        self.now += timedelta(seconds=seconds)
        return self.now

    def set_in(self, memory: Memory) -> Memory:
        """Set this clock in a memory, none of whose sessions was used yet, and return the memory."""
        memory.store.clock = self
        return memory
