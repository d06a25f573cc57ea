"""Workers for callers without an event loop: a thread that has a loop, and a memory with connections of its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future

from redismem.context import Receipt
from redismem.events import facts, unquoted
from redismem.memory import Memory

log = logging.getLogger("redismem.worker")


class WorkerThread:
    """Keeps a memory with workers open, from `start` to `stop`. Its methods block and never suspend.

    A process that was forked off has no such thread: the workers of the one that it came from go on.
    """

    def __init__(self, make: Callable[[], Memory]) -> None:
        """`make` gives a memory with workers that nobody else uses: now, and again if that one could not be opened."""
        self._make = make
        self._inside = _Inside(make())
        self._thread: threading.Thread | None = None
        self._pid = 0

    async def start(self) -> None:
        """Begins to work. Raises what opening the memory raises."""
        if self._thread is not None:
            self._inside.end()
            self._inside = _Inside(self._make())
        begun: Future[None] = Future()
        self._thread = threading.Thread(target=self._inside.run, args=(begun,), name="redismem-workers", daemon=True)
        self._pid = os.getpid()
        # Nobody is left to close it: the thread must not go on for ever.
        weakref.finalize(self, self._inside.end)
        try:
            self._thread.start()
        except RuntimeError:  # the system has no thread to give
            self._thread = None
            raise
        begun.result()

    @property
    def holds(self) -> tuple[str, ...]:
        """What these workers look after for all pods of the namespace."""
        return self._inside.holds

    async def stop(self) -> None:
        """Ends what is in hand, or gives it back."""
        if self._thread is None or self._pid != os.getpid():
            return
        self._inside.end()
        self._thread.join()
        self._thread = None

    def appended(self, session_id: str, receipt: Receipt) -> None:
        """Told of each append of this process."""
        if self._pid == os.getpid():
            self._inside.appended(session_id, receipt)


class _Inside:
    """What the thread has; it knows nothing of who started it."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended = asyncio.Event()
        self._is_ending = False
        """Told to end, perhaps before it had begun."""

    def run(self, begun: Future[None]) -> None:
        try:
            asyncio.run(self._work(begun))
        except BaseException as error:
            if begun.done():
                log.error("the workers' thread ended", exc_info=unquoted(error), extra=facts(op="workers"))
            else:
                begun.set_exception(error)

    async def _work(self, begun: Future[None]) -> None:
        async with self._memory:
            self._loop = asyncio.get_running_loop()
            begun.set_result(None)
            try:
                if not self._is_ending:
                    await self._ended.wait()
            finally:
                self._loop = None

    @property
    def holds(self) -> tuple[str, ...]:
        return self._memory.health().holds

    def end(self) -> None:
        self._is_ending = True
        self._soon(self._ended.set)

    def appended(self, session_id: str, receipt: Receipt) -> None:
        if (workers := self._memory.workers) is not None:
            self._soon(workers.appended, session_id, receipt)

    def _soon(self, call: Callable[..., object], *given: object) -> None:
        """Has the loop do it, if it is still there: who appends does not fail with the workers."""
        if (loop := self._loop) is not None:
            with contextlib.suppress(RuntimeError):  # it has ended meanwhile
                loop.call_soon_threadsafe(call, *given)
