"""How code of the caller's own is awaited: strategies, models, embedders, an `on_evict`.

Whatever it raises is an Exception to those who await it here, so that it is a failure of that code and of nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from redismem.events import unquoted

T = TypeVar("T")

ENDING = (KeyboardInterrupt, SystemExit, GeneratorExit)
"""What is raised to end more than the work in hand."""


async def awaited(call: Callable[[], Awaitable[T]]) -> T:
    """What it gives. Raises Exceptions, those that are ENDING, and CancelledError if this task is cancelled.

    Another BaseException, such as a panic of a library in Rust, is raised as an Exception of that name without its
    words. So is the CancelledError of a task or a future that others share, which is no wish to end this task.
    """
    try:
        return await call()
    except (Exception, *ENDING):
        raise
    except BaseException as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise
        raise unquoted(error) from None


async def awaited_within(timeout_s: float, late: Exception, call: Callable[[], Awaitable[T]]) -> T:
    """The same within this time. After it the work is cancelled, and `late` is raised: nobody waits for its end."""
    try:
        async with asyncio.timeout(timeout_s) as limit:
            return await awaited(partial(_left_behind, call))
    except TimeoutError:
        if limit.expired():
            raise late from None
        raise


async def _left_behind(call: Callable[[], Awaitable[T]]) -> T:
    """What it gives, for calls that nobody may wait for any longer than he wants to.

    Who is cancelled here cancels the work and goes: it may go on, as what retries after whatever it catches does, or
    what closes its connection to somebody who does not answer. What it raises then is nobody's, and asyncio does not
    log it.
    """
    work = asyncio.ensure_future(call())
    work.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    try:
        await asyncio.wait([work])
        return work.result()
    finally:
        work.cancel()
