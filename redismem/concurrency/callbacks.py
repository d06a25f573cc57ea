"""Run the caller's callbacks: strategies, models, embedders and `on_evict`.

Their errors are raised as an Exception, so a broken callback fails alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from redismem.events import unquoted

T = TypeVar("T")

ENDING = (KeyboardInterrupt, SystemExit, GeneratorExit)
"""Exceptions that end more than the current work."""


async def run_callback(call: Callable[[], Awaitable[T]]) -> T:
    """Await a callback and return its result.

    Raises Exception, ENDING, and CancelledError if this task is cancelled. Any other BaseException, such as a panic of
    a Rust library, is raised as an Exception of the same name without its text. A CancelledError from a task or future
    inside the callback is also raised as an Exception, because it does not ask this task to end.
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


async def run_callback_within(timeout_s: float, late: Exception, call: Callable[[], Awaitable[T]]) -> T:
    """Run a callback like `run_callback`. After `timeout_s`, cancel the callback and raise `late` at once."""
    try:
        async with asyncio.timeout(timeout_s) as limit:
            return await run_callback(partial(_run_detached, call))
    except TimeoutError:
        if limit.expired():
            raise late from None
        raise


async def _run_detached(call: Callable[[], Awaitable[T]]) -> T:
    """Run a callback in a task of its own, so that cancelling this task never has to wait for the callback.

    A cancelled callback may continue to run: it may catch the cancellation and retry, or close a connection to a server
    that does not answer. Its later errors are dropped, and asyncio does not log them.
    """
    work = asyncio.ensure_future(call())
    work.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    try:
        await asyncio.wait([work])
        return work.result()
    finally:
        work.cancel()
