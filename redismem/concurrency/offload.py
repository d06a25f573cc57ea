"""Run work beside the event loop: in a thread, or two coroutines at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
U = TypeVar("U")
LARGE_BYTES = 65_536
"""Above this unpacked size, stored bytes are decoded in a thread. The compressed size says too little."""


class Blocks(Protocol):
    """The part of a transport that this module uses."""

    @property
    def blocks(self) -> bool:
        """True if calls block the thread and never suspend, so there is no event loop to keep free."""


async def run_apart(transport: Blocks, work: Callable[[], T], *, is_much: bool = True) -> T:
    """Run the work in a thread to keep the event loop free; run it here if it is small or the transport blocks."""
    return await asyncio.to_thread(work) if is_much and not transport.blocks else work()


async def run_both(transport: Blocks, one: Coroutine[Any, Any, T], other: Coroutine[Any, Any, U]) -> tuple[T, U]:
    """Run both coroutines concurrently, or in turn if the transport blocks. An error in one also ends the other."""
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


async def run_to_end(transport: Blocks, work: Coroutine[Any, Any, T]) -> T:
    """Run work to its end and return its result. If the caller is cancelled, the work is cancelled once.

    A cancel scope of anyio cancels each `await` of its tasks: work that they await could never close anything.
    """
    if transport.blocks:
        return await work
    task = asyncio.create_task(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            if cancelled is None:
                task.cancel()
            cancelled = error
    if cancelled is not None and (task.cancelled() or task.exception() is None):
        raise cancelled
    return task.result()
