"""Keep a memory's workers running: make new ones when the event loop or the process of the previous ones has ended."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Protocol

from redismem.concurrency.forks import reset_after_fork
from redismem.concurrency.loops import at_loop_end, run_on
from redismem.context.results import Receipt
from redismem.errors import InvalidSettings
from redismem.events import facts
from redismem.store.store import Store
from redismem.workers.failures import log_failure

log = logging.getLogger("redismem.worker")


class Workers(Protocol):
    """Background workers that start and stop with a memory, such as `redismem.workers.scheduler.Scheduler`."""

    async def start(self) -> None:
        """Start to work. Called before the first call about a session; a second call has no effect."""

    async def stop(self) -> None:
        """Stop, after finishing the current work or releasing it."""

    def appended(self, session_id: str, receipt: Receipt) -> None:
        """Take note of an append; called after each append of this process."""


class Keeper:
    """The workers of a memory whose calls may come from several event loops, one after the other or at once.

    The workers run in the loop of the first call about a session. When that loop has ended, or in a forked process, the
    next call starts new workers in its own loop. After the end of a loop they start only once the next loop has lived
    for a tick, because a loop that serves one call gives them no time.
    """

    def __init__(self, store: Store, make: Callable[[], Workers]) -> None:
        """Make the workers, without starting them. Raises InvalidSettings."""
        self._store = store
        self._make = make
        self.current = self._make_workers()
        self._was_started = self._has_warned = False
        self._forget_end: Callable[[], None] = lambda: None
        self.reset()
        reset_after_fork(self)

    def _make_workers(self) -> Workers:
        workers = self._make()
        if workers is None:  # a forgotten `return`, without which nothing is summarised or evicted
            raise InvalidSettings("the callable for workers returned None instead of workers")
        return workers

    def reset(self) -> None:
        """Let the next call in a forked process start new workers. The old ones continue in the parent."""
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_started = self._was_lost = False
        self._starting: asyncio.Task[None] | None = None
        self._forget_end()
        self._store.agreement.has_begun = False

    @property
    def holds(self) -> tuple[str, ...]:
        """The queues that the workers poll for all pods of the namespace; none while their event loop does not run."""
        is_running = self._is_started and self._loop is not None and self._loop.is_running()
        return getattr(self.current, "holds", ()) if is_running else ()

    async def start(self) -> None:
        """Start the workers in the running event loop, unless they have one. Raises the errors of the start."""
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._loop is not None and not self._loop.is_closed():
                return
            self._loop, self._is_started = loop, False
        self._forget_end = at_loop_end(partial(self._lose, loop))
        if self._was_lost:
            self._warn()
            loop.call_later(self._store.settings.tick_s, self._start_later, loop)
        else:
            await self._start_here(loop)

    async def _start_here(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            if self._was_started:
                self.current = self._make_workers()
            await self.current.start()
            self._was_started = self._is_started = True
        except BaseException:
            self._lose(loop)
            raise

    def _start_later(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._loop is loop:
            self._starting = loop.create_task(self._start_logged(loop))

    async def _start_logged(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            await self._start_here(loop)
        except Exception as error:
            log_failure("the workers did not start, and the next call tries again", error, facts(op="workers"))

    def _warn(self) -> None:
        if not self._has_warned:
            self._has_warned = True
            log.warning(
                "the event loop that ran the workers has ended: they start again in the next one that lives for %g s. "
                "If each call has an event loop of its own, run `redismem worker`, or use redismem.blocking",
                self._store.settings.tick_s,
                extra=facts(op="workers", namespace=self._store.keys.namespace),
            )

    def _lose(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let the next call about a session start the workers, because this loop no longer runs them."""
        with self._lock:
            if self._loop is not loop:
                return
            self._loop, self._is_started, self._was_lost = None, False, self._was_started
        self._store.agreement.has_begun = False
        self._forget_end()

    async def stop(self) -> None:
        """Stop the workers in their own event loop, as they say; at once if that loop has ended."""
        with self._lock:
            loop, self._loop, self._is_started = self._loop, None, False
        self._forget_end()
        if loop is None or loop is asyncio.get_running_loop() or not loop.is_running():
            await self.current.stop()
        else:
            await run_on(loop, self.current.stop())

    def appended(self, session_id: str, receipt: Receipt) -> None:
        """Tell the workers of an append of this process."""
        if (loop := self._loop) is None:
            return
        if loop.is_closed():  # without a shutdown, which `at_loop_end` would have noticed
            self._lose(loop)
        elif self._is_started:
            self.current.appended(session_id, receipt)
