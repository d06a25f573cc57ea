"""An embedder for callers without an event loop: a thread that has a loop, begun with the first question."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError

from redismem.recall.embedder import Embedder

# An embedder may go on though it is cancelled: closing does not wait for it any longer.
_ENDS_WITHIN_S = 1.0


class BlockingEmbedder(Embedder):
    """The same, from any thread: its methods block and never suspend. A process that was forked off begins its own."""

    def __init__(self, make: Callable[[], Embedder]) -> None:
        """`make` gives the embedder that the thread has, and is called once a process."""
        self._make = make
        self._twin = twin = make()
        self.name, self.mark = twin.name, twin.mark
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = os.getpid()
        self._lock = threading.Lock()

    @property
    def dimensions(self) -> int:  # type: ignore[override]
        """The dimensions of the vectors it made last; 0 before the first."""
        return self._twin.dimensions

    async def question(self, text: str) -> bytes | None:
        """Return the vector of a question, or None if the embedder is paused. Raises ModelFailed."""
        try:
            return asyncio.run_coroutine_threadsafe(self._twin.question(text), self._begun()).result()
        except CancelledError:  # nobody else cancels it
            raise RuntimeError("this memory is closed") from None

    async def aclose(self) -> None:
        """Ends the thread."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None and self._pid == os.getpid():
            asyncio.run_coroutine_threadsafe(self._ended(), loop).result()
            loop.call_soon_threadsafe(loop.stop)

    async def _ended(self) -> None:
        """Cancels what other threads wait for: with the loop, it would never end."""
        pending = asyncio.all_tasks() - {asyncio.current_task()}
        for task in pending:
            task.cancel()
        if pending:
            await asyncio.wait(pending, timeout=_ENDS_WITHIN_S)
        await self._twin.aclose()

    def _begun(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._pid != os.getpid():
                self._twin, self._loop, self._pid = self._make(), None, os.getpid()
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=_run, args=(self._loop,), name="redismem-embedder", daemon=True).start()
            return self._loop


def _run(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()
