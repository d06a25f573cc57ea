"""A thread with an event loop, for callers that have none."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import weakref
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from redismem.concurrency.forks import reset_after_fork
from redismem.events import facts, unquoted

log = logging.getLogger("redismem.worker")
T = TypeVar("T")

# A coroutine may ignore that it is cancelled: stopping waits no longer for it.
_ENDS_WITHIN_S = 1.0


class LoopThread:
    """A daemon thread with an event loop, and a resource that is open while the loop runs.

    The thread starts on first use; a forked process starts its own. It ends with `stop`, or when this object is
    garbage-collected.
    """

    def __init__(
        self, name: str, make: Callable[[], AbstractAsyncContextManager[object]] = contextlib.nullcontext
    ) -> None:
        """Do not start the thread yet. `make` returns the resource, and is called whenever the thread starts."""
        self._name = name
        self._make = make
        self.reset()
        reset_after_fork(self)

    def reset(self) -> None:
        """Forget the parent's thread after a fork, because the forked process does not have it."""
        self._lock = threading.Lock()
        self._loop: _Loop | None = None

    def start(self) -> None:
        """Start the thread if it does not run. Raises any error of opening the resource."""
        with self._lock:
            self._started()

    @property
    def is_running(self) -> bool:
        """True if this process has the thread, and it runs."""
        return self._loop is not None and self._loop.thread.is_alive()

    def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run a coroutine on the loop and wait for it. Raises RuntimeError if `stop` cancels it."""
        with self._lock:
            future = self._started().submit(work())
        try:
            return future.result()
        except CancelledError:  # only `stop` cancels it
            raise RuntimeError("this memory is closed") from None

    def call_soon(self, call: Callable[..., object], *arguments: object) -> None:
        """Schedule a function on the loop. Does nothing if the loop does not run."""
        if (loop := self._loop) is not None:
            loop.call_soon(call, *arguments)

    def stop(self, timeout_s: float | None = None) -> None:
        """Cancel the coroutines of `run`, close the resource and wait for the thread to end."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None:
            loop.end()
            loop.thread.join(timeout_s)

    def _started(self) -> _Loop:
        if self._loop is None or not self._loop.thread.is_alive():
            loop = _Loop(self._name, self._make())
            try:
                loop.thread.start()
                loop.opened.result()
            except BaseException:
                loop.end()
                raise
            self._loop = loop
            # At exit the thread dies with the process.
            weakref.finalize(self, loop.end).atexit = False
        return self._loop


class _Loop:
    """The part that the thread uses. It does not reference its LoopThread, which can thus be garbage-collected."""

    def __init__(self, name: str, resource: AbstractAsyncContextManager[object]) -> None:
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.opened: Future[asyncio.AbstractEventLoop] = Future()
        self._resource = resource
        self._ended = asyncio.Event()
        self._is_ending = False
        self._submitted: set[asyncio.Task[Any]] = set()

    def end(self) -> None:
        self._is_ending = True
        self.call_soon(self._ended.set)

    def call_soon(self, call: Callable[..., object], *arguments: object) -> None:
        if self.opened.done() and not self.opened.exception():
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self.opened.result().call_soon_threadsafe(call, *arguments)

    def submit(self, work: Awaitable[T]) -> Future[T]:
        async def tracked() -> T:
            task = asyncio.current_task()
            assert task is not None
            self._submitted.add(task)
            task.add_done_callback(self._submitted.discard)
            return await work

        return asyncio.run_coroutine_threadsafe(tracked(), self.opened.result())

    def _run(self) -> None:
        try:
            asyncio.run(self._work())
        except BaseException as error:
            if not self.opened.done():
                self.opened.set_exception(error)
                return
            log.error("thread ended: %s", self.thread.name, exc_info=unquoted(error), extra=facts(op="workers"))

    async def _work(self) -> None:
        async with self._resource:
            self.opened.set_result(asyncio.get_running_loop())
            if not self._is_ending:
                await self._ended.wait()
            for task in self._submitted:
                task.cancel()
            if self._submitted:
                await asyncio.wait(self._submitted, timeout=_ENDS_WITHIN_S)
