"""Run work beside the event loop: in a thread, or two coroutines at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
U = TypeVar("U")
LARGE_BYTES = 65_536
"""What has more bytes unpacked is decoded in a thread. Lists in lists take much less, compressed."""


class Blocks(Protocol):
    """A transport, as far as this module knows it."""

    @property
    def blocks(self) -> bool:
        """True if calls block the thread and never suspend: there is no event loop to leave free."""


async def apart(transport: Blocks, work: Callable[[], T], *, is_much: bool = True) -> T:
    """What the work gives. Much runs in a thread, so that others get their turn; here, if the transport blocks."""
    return await asyncio.to_thread(work) if is_much and not transport.blocks else work()


async def together(transport: Blocks, one: Coroutine[Any, Any, T], other: Coroutine[Any, Any, U]) -> tuple[T, U]:
    """What both give: at the same time, or one after the other if the transport blocks. A failed one ends both."""
    if transport.blocks:
        try:
            return await one, await other
        finally:
            other.close()
    task = asyncio.create_task(other)
    try:
        return await one, await task
    finally:
        task.cancel()
