"""Concurrency for transports to several nodes: tasks for asyncio, threads for blocking callers.

All other code of these transports is shared by both.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from time import monotonic
from typing import Any, Protocol, TypeVar

from redismem.concurrency import forks
from redismem.concurrency.run_sync import run_without_loop
from redismem.protocol.call import Command
from redismem.protocol.server_errors import ConnectionLost, ServerError
from redismem.transport.base import Transport
from redismem.transport.lane.blocking import BlockingLane
from redismem.transport.lane.lane import Lane
from redismem.transport.url import Address

T = TypeVar("T")
Work = Callable[[], Coroutine[Any, Any, T]]
Failure = ServerError | ConnectionLost
_FAILURES = (ServerError, ConnectionLost)


class Side(Protocol):
    """Runs work on several nodes, with tasks or with threads."""

    @property
    def blocks(self) -> bool:
        """True if the methods block and never suspend."""

    def lane(self, address: Address) -> Transport:
        """Return a transport to one node, not connected yet."""

    def run_if_up(self, lane: Transport, commands: Sequence[Command], timeout_s: float) -> Awaitable[list[Any]]:
        """Run independent commands on a node, but only until an attempt to connect to it fails."""

    def drop(self, lane: Transport, *, may_wait: bool) -> bool:
        """Begin to close an unused lane. Return False if calls are pending and `may_wait` is set."""

    async def run_all(self, works: Sequence[Work[T]]) -> list[T | Failure]:
        """Run all works at once. Return the result or the error of each."""

    async def first_results(self, works: Sequence[Work[T]], grace_s: float = 0) -> list[T]:
        """Run all works at once. Return the first result, and all others that come within `grace_s` after it.

        Raises ServerError or ConnectionLost if all works fail.
        """

    async def run_shared(self, work: Work[None], timeout_s: float) -> None:
        """Run the work once for all concurrent callers. The work first checks if it is still needed."""

    def run_in_background(self, work: Work[None]) -> None:
        """Run the work in the background, unless some work runs there already."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""

    async def end(self) -> None:
        """Cancel the work in the background."""


class LoopSide:
    """The side of asyncio: tasks of the running event loop. If several loops run at once, each has its own tasks."""

    blocks = False

    def __init__(self, stall_s: float, connect_s: float = 0) -> None:
        self._stall_s, self._connect_s = stall_s, connect_s
        self._background: dict[asyncio.AbstractEventLoop, asyncio.Task[None]] = {}
        self._shared: dict[asyncio.AbstractEventLoop, asyncio.Task[None]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        forks.reset_after_fork(self)

    def reset(self) -> None:
        """Forget the tasks of the parent in a forked process."""
        self._background, self._shared, self._closing = {}, {}, set()

    def lane(self, address: Address) -> Transport:
        """Return a transport to one node, not connected yet."""
        return Lane(address, stall_s=self._stall_s, connect_s=self._connect_s)

    def run_if_up(self, lane: Transport, commands: Sequence[Command], timeout_s: float) -> Awaitable[list[Any]]:
        """Run independent commands on a node, but only until an attempt to connect to it fails."""
        assert isinstance(lane, Lane)
        return lane.run_if_up(commands, timeout_s)

    def drop(self, lane: Transport, *, may_wait: bool) -> bool:
        """Begin to close an unused lane. Return False if calls are pending and `may_wait` is set."""
        assert isinstance(lane, Lane)
        if may_wait and lane.calls_count:
            return False
        # in its own task, because the caller's may be cancelled half way
        closing = asyncio.get_running_loop().create_task(lane.aclose())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
        return True

    async def run_all(self, works: Sequence[Work[T]]) -> list[T | Failure]:
        """Run all works at once. Return the result or the error of each."""
        results: list[T | Failure] = []
        for outcome in await asyncio.gather(*(work() for work in works), return_exceptions=True):
            if isinstance(outcome, BaseException) and not isinstance(outcome, _FAILURES):
                raise outcome
            results.append(outcome)
        return results

    async def first_results(self, works: Sequence[Work[T]], grace_s: float = 0) -> list[T]:
        """Run all works at once. Return the first result, and all others that come within `grace_s` after it.

        Raises ServerError or ConnectionLost if all works fail.
        """
        waiting = {asyncio.create_task(work()) for work in works}
        results: list[T] = []
        failure: BaseException | None = None
        until: float | None = None
        try:
            while waiting and (until is None or monotonic() < until):
                left_s = None if until is None else until - monotonic()
                done, waiting = await asyncio.wait(waiting, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    if (failed := task.exception()) is None:
                        results.append(task.result())
                    elif isinstance(failed, _FAILURES):
                        failure = failed
                    else:
                        raise failed
                if results and until is None:
                    until = monotonic() + grace_s
        finally:
            for task in waiting:
                task.cancel()
        if not results:
            raise failure or ConnectionLost("TimeoutError", sent=False)
        return results

    async def run_shared(self, work: Work[None], timeout_s: float) -> None:
        """Run the work once for all concurrent callers. The work first checks if it is still needed."""
        loop = asyncio.get_running_loop()
        task = self._shared.get(loop)
        limit_s: float | None = timeout_s
        if task is None or task.done():
            task = _start_in(self._shared, loop, work)
            # otherwise asyncio logs an error that is never retrieved
            task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
            limit_s = None  # the work has its own timeout, and its error says more
        try:
            async with asyncio.timeout(limit_s):
                await asyncio.shield(task)
        except TimeoutError:
            raise ConnectionLost("TimeoutError", sent=False) from None
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if not task.cancelled() or (caller is not None and caller.cancelling()):
                raise
            raise ConnectionLost("closed", sent=False) from None

    def run_in_background(self, work: Work[None]) -> None:
        """Run the work in the background, unless some work runs there already."""
        loop = asyncio.get_running_loop()
        task = self._background.get(loop)
        if task is None or task.done():
            _start_in(self._background, loop, work)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def end(self) -> None:
        """Cancel the work in the background."""
        here = asyncio.get_running_loop()
        tasks = [*self._background.values(), *self._shared.values()]
        for task in tasks:
            if task.get_loop() is here:
                task.cancel()
            else:
                with contextlib.suppress(RuntimeError):  # a closed loop runs nothing
                    task.get_loop().call_soon_threadsafe(task.cancel)
        ending = [task for task in (*tasks, *self._closing) if task.get_loop() is here]
        if ending:
            await asyncio.wait(ending)


def _start_in(
    tasks: dict[asyncio.AbstractEventLoop, asyncio.Task[None]], loop: asyncio.AbstractEventLoop, work: Work[None]
) -> asyncio.Task[None]:
    """Start the loop's task of this kind. When it is done, it leaves the dict."""
    for ended in [each for each in tuple(tasks) if each.is_closed()]:
        tasks.pop(ended, None)
    task = tasks[loop] = loop.create_task(work())

    def leave(done: asyncio.Task[None]) -> None:
        if tasks.get(loop) is done:
            del tasks[loop]

    task.add_done_callback(leave)
    return task


class ThreadSide:
    """The side of blocking callers: threads. A forked process starts its own."""

    blocks = True

    def __init__(self, max_connections: int) -> None:
        self._max_connections = max_connections
        self._thread: threading.Thread | None = None
        self._lock, self._pid = threading.Lock(), os.getpid()

    def lane(self, address: Address) -> Transport:
        """Return a transport to one node, not connected yet."""
        return BlockingLane(address, max_connections=self._max_connections)

    def run_if_up(self, lane: Transport, commands: Sequence[Command], timeout_s: float) -> Awaitable[list[Any]]:
        """Run independent commands on a node. A blocking lane attempts to connect only once."""
        return lane.run_independent(commands, timeout_s)

    def drop(self, lane: Transport, *, may_wait: bool) -> bool:
        """Close the lane's idle connections; others close after their call."""
        del may_wait
        assert isinstance(lane, BlockingLane)
        lane.retire()
        return True

    async def run_all(self, works: Sequence[Work[T]]) -> list[T | Failure]:
        """Run all works at once. Return the result or the error of each."""
        outcomes = self._start_threads(works)
        results: dict[int, T | Failure] = {}
        while len(results) < len(works):
            at, outcome = outcomes.get()
            if isinstance(outcome, BaseException) and not isinstance(outcome, _FAILURES):
                raise outcome
            results[at] = outcome
        return [results[at] for at in range(len(works))]

    async def first_results(self, works: Sequence[Work[T]], grace_s: float = 0) -> list[T]:
        """Run all works at once. Return the first result, and all others that come within `grace_s` after it.

        Raises ServerError or ConnectionLost if all works fail.
        """
        outcomes = self._start_threads(works)
        results: list[T] = []
        failure: BaseException | None = None
        until: float | None = None
        for _ in works:
            left_s = None if until is None else max(0.0, until - monotonic())
            try:
                _, outcome = outcomes.get(timeout=left_s)
            except queue.Empty:
                break
            if not isinstance(outcome, BaseException):
                results.append(outcome)
                until = monotonic() + grace_s if until is None else until
            elif isinstance(outcome, _FAILURES):
                failure = outcome
            else:
                raise outcome
        if not results:
            raise failure or ConnectionLost("TimeoutError", sent=False)
        return results

    @staticmethod
    def _start_threads(works: Sequence[Work[Any]]) -> queue.SimpleQueue[tuple[int, Any]]:
        """Start a thread per work. The queue yields the position and the result or error of each.

        If the system refuses another thread, the remaining works run in the caller's thread.
        """
        outcomes: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()

        def one(at: int, work: Work[Any]) -> None:
            try:
                outcomes.put((at, run_without_loop(work())))
            except BaseException as failure:
                outcomes.put((at, failure))

        for at, work in enumerate(works):
            try:
                threading.Thread(target=one, args=(at, work), name="redismem-node", daemon=True).start()
            except RuntimeError:
                one(at, work)
        return outcomes

    async def run_shared(self, work: Work[None], timeout_s: float) -> None:
        """Run the work once for all concurrent callers. The work first checks if it is still needed."""
        if self._pid != os.getpid():  # a thread of the parent, which does not exist here, may have locked it
            self._lock, self._pid = threading.Lock(), os.getpid()
        lock = self._lock
        if not lock.acquire(timeout=timeout_s):
            raise ConnectionLost("TimeoutError", sent=False)
        try:
            await work()
        finally:
            lock.release()

    def run_in_background(self, work: Work[None]) -> None:
        """Run the work in the background, unless some work runs there already or the system has no thread."""
        if self._thread is None or not self._thread.is_alive():
            thread = threading.Thread(target=lambda: run_without_loop(work()), name="redismem-nodes", daemon=True)
            with contextlib.suppress(RuntimeError):  # the next call tries again
                thread.start()
                self._thread = thread

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 (there is no event loop)

    async def end(self) -> None:
        """Do nothing: work in the background ends by itself after a close."""
