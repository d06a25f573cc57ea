"""Projects whose time a test sets: the one place that knows how their clock is put in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from redismem import Memory

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
