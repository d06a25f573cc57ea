"""Work beside the calls: a task of the event loop, or a thread for blocking callers. One piece of work at a time."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Protocol

Work = Callable[[], Coroutine[Any, Any, object]]
_CONCURRENCY = 16


class Background(Protocol):
    """Where the search for Redis, and the replay, take place."""

    def start(self, work: Work) -> None:
        """Begins; the work before has ended, or is about to. Raises RuntimeError if there is no thread for it."""

    def goes_on(self) -> bool:
        """False if the work was ended from outside, perhaps before its first step: with an event loop all tasks end."""

    async def pause(self, seconds: float) -> None:
        """Waits for so many seconds, or until `wake`. Only the work itself calls it."""

    def wake(self) -> None:
        """Ends a pause now."""

    async def each(self, works: Sequence[Work]) -> None:
        """Does all of these, several at a time if that is possible."""

    async def end(self, timeout_s: float) -> None:
        """Waits so long for the work to end, and gives it up then."""


class LoopBackground:
    """Work in a task of the running event loop."""

    def __init__(self) -> None:
        self._task: asyncio.Task[object] | None = None
        self._awake = asyncio.Event()

    def start(self, work: Work) -> None:
        """Begins; the piece of work before has ended, or is about to."""
        self._awake = asyncio.Event()  # of this event loop
        self._task = asyncio.get_running_loop().create_task(work())

    def goes_on(self) -> bool:
        """False if the task was cancelled, or its event loop is closed."""
        return self._task is None or not (self._task.done() or self._task.get_loop().is_closed())

    async def pause(self, seconds: float) -> None:
        """Waits for so many seconds, or until `wake`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._awake.wait()
        self._awake.clear()

    def wake(self) -> None:
        """Ends a pause now."""
        if self._task is not None and self.goes_on():  # on an event loop that is closed, nobody can be woken
            self._awake.set()

    async def each(self, works: Sequence[Work]) -> None:
        """Does all of them, several at a time."""
        room = asyncio.Semaphore(_CONCURRENCY)

        async def one(work: Work) -> None:
            async with room:
                await work()

        await asyncio.gather(*map(one, works))

    async def end(self, timeout_s: float) -> None:
        """Waits so long for the work to end, and gives it up then."""
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
        """Begins; the piece of work before has ended, or is about to."""
        thread = threading.Thread(target=_run, args=(work,), name="redismem-replay", daemon=True)
        thread.start()
        self._thread = thread

    def goes_on(self) -> bool:
        """True: nobody ends a thread."""
        return True

    async def pause(self, seconds: float) -> None:
        """Waits for so many seconds, or until `wake`."""
        self._awake.wait(seconds)
        self._awake.clear()

    def wake(self) -> None:
        """Ends a pause now."""
        self._awake.set()

    async def each(self, works: Sequence[Work]) -> None:
        """Does all of them, one after the other."""
        for work in works:
            await work()

    async def end(self, timeout_s: float) -> None:
        """Waits so long for the work to end."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(timeout_s)


def _run(work: Work) -> None:
    with contextlib.suppress(StopIteration):
        work().send(None)


class Ongoing:
    """A piece of work that is begun whenever it is wanted and not under way."""

    def __init__(self, background: Background, work: Work) -> None:
        self._background = background
        self._work = work
        self._lock = threading.Lock()
        self._begun: object | None = None
        self.is_cut_off = False
        """Whether it was ended from outside when it was begun last, as by an event loop that serves one call. Whoever
        finds that it goes on again says so."""

    def start(self) -> None:
        """Begins, if it is not under way. Raises RuntimeError if there is no thread for it."""
        with self._lock:
            if self._begun is not None and self._background.goes_on():
                return
            self.is_cut_off = self.is_cut_off or self._begun is not None
            begun = self._begun = object()
        try:
            self._background.start(partial(self._run, begun))
        except BaseException:
            self._begun = None
            raise

    def is_over(self, is_done: Callable[[], bool]) -> bool:
        """Asked by the work: whether it ends. Nobody finds it under way from then on."""
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
            if self._begun is begun:  # else it has said that it ends, or another has begun as its event loop had ended
                self._begun = None
