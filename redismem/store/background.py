"""Work beside the calls: a task of the event loop, or a thread for blocking callers. One piece of work at a time."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

Work = Callable[[], Coroutine[Any, Any, None]]
_CONCURRENCY = 16


class Background(Protocol):
    """Where the search for Redis, and the replay, take place."""

    def start(self, work: Work) -> None:
        """Begins; the work before has ended, or is about to. Raises RuntimeError if there is no thread for it."""

    async def pause(self, seconds: float) -> None:
        """Waits for so many seconds, or until `wake`. Only the work itself calls it."""

    def wake(self) -> None:
        """Ends a pause now."""

    async def each(self, works: Sequence[Work]) -> None:
        """Does all of these, several at a time if that is possible. Only the work itself calls it."""

    async def end(self, timeout_s: float) -> None:
        """Waits so long for the work to end, and gives it up then."""


class LoopBackground:
    """Work in a task of the running event loop."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None
        self._awake = asyncio.Event()

    def start(self, work: Work) -> None:
        """Begins; the piece of work before has ended, or is about to."""
        self._awake = asyncio.Event()  # of this event loop
        self._task = asyncio.get_running_loop().create_task(work())

    async def pause(self, seconds: float) -> None:
        """Waits for so many seconds, or until `wake`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._awake.wait()
        self._awake.clear()

    def wake(self) -> None:
        """Ends a pause now."""
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
