"""Notice the end of an event loop, and work on a loop that runs in another thread."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
_LOOK_S = 0.1


def at_loop_end(call: Callable[[], Awaitable[None] | None]) -> Callable[[], None]:
    """Call a function, which may be async, when the running event loop shuts down, as at the end of `asyncio.run`.

    At that time the loop has cancelled all tasks, and still runs callbacks. A loop that is closed without
    `shutdown_asyncgens` does not call. Return a function that ends the wait; it may be called in any thread. Keep it:
    when it is collected, the function is called soon, as at the end of the loop.
    """
    is_waiting = True

    async def wait() -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            if is_waiting and (ending := call()) is not None:
                await ending

    def cancel() -> None:
        nonlocal is_waiting
        if is_waiting:
            is_waiting = False
            with contextlib.suppress(RuntimeError):  # the loop is ending the wait at this moment
                _step(waiting.aclose())

    waiting = wait()
    _step(waiting.__anext__())  # from now on the loop knows the generator, and ends it when it shuts down
    return cancel


def _step(awaitable: Awaitable[None]) -> None:
    """Run an awaitable that does not suspend."""
    with contextlib.suppress(StopIteration):
        awaitable.__await__().send(None)


async def run_on(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T | None:
    """Run a coroutine on an event loop of another thread and return its result; `None` if the loop ends first."""
    try:
        submitted = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))
    except RuntimeError:  # the loop is closed
        work.close()
        return None
    while not submitted.done() and loop.is_running():
        await asyncio.wait([submitted], timeout=_LOOK_S)
    if not submitted.done() or submitted.cancelled():
        return None
    return submitted.result()


def call_on(loop: asyncio.AbstractEventLoop, call: Callable[..., object], *arguments: object) -> None:
    """Call a function at once if this event loop runs in this thread; otherwise soon, in its thread.

    A loop that is closed does not call it.
    """
    if asyncio._get_running_loop() is loop:
        call(*arguments)
    else:
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(call, *arguments)
