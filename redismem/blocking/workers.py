"""Workers for callers without an event loop: on a thread with a loop, over a memory with its own connections."""

from __future__ import annotations

from collections.abc import Callable

from redismem.blocking.loop_thread import LoopThread
from redismem.context import Receipt
from redismem.memory import Memory


class WorkerThread:
    """Keep a memory with workers open, from `start` to `stop`. Its methods block and never suspend.

    A forked process does not have the thread: the parent's workers go on.
    """

    def __init__(self, make: Callable[[], Memory]) -> None:
        """`make` returns a memory with workers that nothing else uses: now, and for each later start."""
        self._make = make
        self._memory = make()
        self._is_fresh = True
        self._thread = LoopThread("redismem-workers", self._fresh_memory)

    def _fresh_memory(self) -> Memory:
        if not self._is_fresh:
            self._memory = self._make()
        self._is_fresh = False
        return self._memory

    async def start(self) -> None:
        """Start the workers. Raises what opening the memory raises."""
        self._thread.start()

    @property
    def holds(self) -> tuple[str, ...]:
        """The duties that these workers hold for all pods of the namespace."""
        return self._memory.health().holds

    async def stop(self) -> None:
        """Finish the work in hand, or give it back."""
        self._thread.stop()

    def appended(self, session_id: str, receipt: Receipt) -> None:
        """Take note of an append of this process."""
        if (workers := self._memory.workers) is not None:
            self._thread.call_soon(workers.appended, session_id, receipt)
