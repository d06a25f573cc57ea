"""Workers for callers without an event loop. They run on a thread with a loop, over a memory of their own."""

from __future__ import annotations

from collections.abc import Callable

from redismem.blocking.loop_thread import LoopThread
from redismem.concurrency.forks import reset_after_fork
from redismem.context.results import Receipt
from redismem.memory.memory import Memory
from redismem.store.store import Store


class WorkerThread:
    """Keep a memory with workers open, from `start` to `stop`. Its methods block and never suspend.

    A forked process starts a thread of its own with the next call about a session, and the parent keeps its thread.
    """

    def __init__(self, store: Store, make: Callable[[], Memory]) -> None:
        """Create the thread. `make` returns a new memory with workers, and is called now and at each later start.

        `store` is that of the blocking memory.
        """
        self._store = store
        self._make = make
        self._memory = make()
        self._is_fresh = True
        self._thread = LoopThread("redismem-workers", self._fresh_memory)
        reset_after_fork(self)

    def reset(self) -> None:
        """Let the next call in a forked process start the workers."""
        self._store.agreement.has_begun = False

    def _fresh_memory(self) -> Memory:
        if not self._is_fresh:
            self._memory = self._make()
        self._is_fresh = False
        return self._memory

    async def start(self) -> None:
        """Start the workers. Raises any error of opening the memory."""
        self._thread.start()

    @property
    def holds(self) -> tuple[str, ...]:
        """The queues that these workers poll for all pods of the namespace."""
        return self._memory.health().holds if self._thread.is_running else ()

    async def stop(self) -> None:
        """Stop the workers, after they have finished the work in progress or released it."""
        self._thread.stop()

    def appended(self, session_id: str, receipt: Receipt) -> None:
        """Take note of an append of this process."""
        if (workers := self._memory.workers) is not None:
            self._thread.call_soon(workers.appended, session_id, receipt)
