"""Background work, one piece at a time: in a task of the event loop, or in a thread for blocking callers."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Protocol

from redismem.concurrency.loops import call_on

Work = Callable[[], Coroutine[Any, Any, object]]
_CONCURRENCY = 16


class Background(Protocol):
    """The interface of the two classes below. The fallback's probes of Redis and its replay run in the background."""

    def start(self, work: Work) -> None:
        """Start the work. Any earlier work has ended or is about to. Raises RuntimeError if no thread can start."""

    def is_running(self) -> bool:
        """False if the work was ended from outside, as by the end of its event loop, perhaps before its first step."""

    async def pause(self, seconds: float) -> None:
        """Wait for this time, or until `wake`. Only the work itself calls it."""

    def wake(self) -> None:
        """End a pause now."""

    async def run_all(self, works: Sequence[Work]) -> None:
        """Run all works, concurrently if possible."""

    async def end(self, timeout_s: float) -> None:
        """Wait up to this time for the work to end, then abandon it."""


class LoopBackground:
    """Work in a task of the running event loop."""

    def __init__(self) -> None:
        self._task: asyncio.Task[object] | None = None
        self._awake = asyncio.Event()

    def start(self, work: Work) -> None:
        """Start the work as a task. Any earlier work has ended or is about to."""
        self._awake = asyncio.Event()  # an event belongs to one event loop
        self._task = asyncio.get_running_loop().create_task(work())

    def is_running(self) -> bool:
        """False if the task was cancelled, or its event loop is closed."""
        return self._task is None or not (self._task.done() or self._task.get_loop().is_closed())

    async def pause(self, seconds: float) -> None:
        """Wait for this time, or until `wake`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._awake.wait()
        self._awake.clear()

    def wake(self) -> None:
        """End a pause now. The task may run in the event loop of another thread."""
        if self._task is not None and self.is_running():  # a closed event loop can wake no task
            call_on(self._task.get_loop(), self._awake.set)

    async def run_all(self, works: Sequence[Work]) -> None:
        """Run all works, up to 16 at a time."""
        room = asyncio.Semaphore(_CONCURRENCY)

        async def one(work: Work) -> None:
            async with room:
                await work()

        await asyncio.gather(*map(one, works))

    async def end(self, timeout_s: float) -> None:
        """Wait up to this time for the task to end, then cancel it."""
        task, self._task = self._task, None
        if task is None or task.get_loop() is not asyncio.get_running_loop():
            return
        await asyncio.wait([task], timeout=timeout_s)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class ThreadBackground:
    """Work in a thread of its own, over a transport that blocks and never suspends."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._awake = threading.Event()

    def start(self, work: Work) -> None:
        """Start the work in a thread. Any earlier work has ended or is about to."""
        thread = threading.Thread(target=_run, args=(work,), name="redismem-replay", daemon=True)
        thread.start()
        self._thread = thread

    def is_running(self) -> bool:
        """True: a thread cannot be ended from outside."""
        return True

    async def pause(self, seconds: float) -> None:
        """Wait for this time, or until `wake`."""
        self._awake.wait(seconds)
        self._awake.clear()

    def wake(self) -> None:
        """End a pause now."""
        self._awake.set()

    async def run_all(self, works: Sequence[Work]) -> None:
        """Run all works, one after the other."""
        for work in works:
            await work()

    async def end(self, timeout_s: float) -> None:
        """Wait up to this time for the thread to end."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(timeout_s)


def _run(work: Work) -> None:
    with contextlib.suppress(StopIteration):
        work().send(None)


class Ongoing:
    """Work that `start` runs unless it is running already."""

    def __init__(self, background: Background, work: Work) -> None:
        self._background = background
        self._work = work
        self._lock = threading.Lock()
        self._begun: object | None = None
        self.is_cut_off = False
        """True if the previous run was ended from outside, for example because its event loop served only one call.

        The work sets it back to False once it makes progress again."""

    def start(self) -> None:
        """Start the work unless it is running. Raises RuntimeError if no thread can start."""
        with self._lock:
            if self._begun is not None and self._background.is_running():
                return
            self.is_cut_off = self.is_cut_off or self._begun is not None
            begun = self._begun = object()
        try:
            self._background.start(partial(self._run, begun))
        except BaseException:
            self._begun = None
            raise

    def end_if(self, is_done: Callable[[], bool]) -> bool:
        """Return `is_done()`; if it is True, the work counts as ended from now on. Only the work itself calls this."""
        with self._lock:
            if is_done():
                self._begun = None
                return True
            return False

    async def _run(self, begun: object) -> None:
        try:
            await self._work()
        except BaseException:
            self.is_cut_off = True
            raise
        finally:
            if self._begun is begun:  # otherwise `end_if` ended it, or another run replaced it
                self._begun = None
