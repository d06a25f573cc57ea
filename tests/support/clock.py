"""A clock that stands still until a test sets it."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

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
