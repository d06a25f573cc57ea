"""What differs between asyncio and blocking callers if there are several nodes: everything else is written once.

For asyncio things are done in tasks of the running event loop, for blocking callers in threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from time import monotonic
from typing import Any, Protocol, TypeVar

from redismem.concurrency.finished import finished
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
    """Where work of several nodes is done."""

    @property
    def blocks(self) -> bool:
        """Whether its methods block and never suspend."""

    def lane(self, address: Address) -> Transport:
        """A transport to one node, not connected yet."""

    def drop(self, lane: Transport, *, may_wait: bool) -> bool:
        """Begins to close a lane that nobody needs any more. False if calls are on their way, and may be waited for."""

    async def all(self, works: Sequence[Work[T]]) -> list[T | Failure]:
        """Does all at once: what each gave, or how it failed."""

    async def answers(self, works: Sequence[Work[T]], grace_s: float = 0) -> list[T]:
        """Does all at once: what the first gave, and others within `grace_s` of it. Raises if none gave anything."""

    async def shared(self, work: Work[None], timeout_s: float) -> None:
        """Does it for all who ask for it meanwhile; the work looks first whether it is done."""

    def later(self, work: Work[None]) -> None:
        """Does it in the background, unless something is done there already."""

    async def sleep(self, seconds: float) -> None:
        """Waits."""

    async def end(self) -> None:
        """Gives up what is done in the background."""


class LoopSide:
    """The side of asyncio: work is done in tasks of the running event loop."""

    blocks = False

    def __init__(self, stall_s: float) -> None:
        self._stall_s = stall_s
        self._task: asyncio.Task[None] | None = None
        self._shared: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[None]] = set()

    def lane(self, address: Address) -> Transport:
        """A transport to one node, not connected yet."""
        return Lane(address, stall_s=self._stall_s)

    def drop(self, lane: Transport, *, may_wait: bool) -> bool:
        """Begins to close a lane that nobody needs any more. False if calls are on their way, and may be waited for."""
        assert isinstance(lane, Lane)
        if may_wait and lane.calls_count:
            return False
        # Not in the task of whoever looks around: that may be given up in the middle of it.
        closing = asyncio.get_running_loop().create_task(lane.aclose())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
        return True

    async def all(self, works: Sequence[Work[T]]) -> list[T | Failure]:
        """Does all at once: what each gave, or how it failed."""
        found: list[T | Failure] = []
        for outcome in await asyncio.gather(*(work() for work in works), return_exceptions=True):
            if isinstance(outcome, BaseException) and not isinstance(outcome, _FAILURES):
                raise outcome
            found.append(outcome)
        return found

    async def answers(self, works: Sequence[Work[T]], grace_s: float = 0) -> list[T]:
        """Does all at once: what the first gave, and others within `grace_s` of it. Raises if none gave anything."""
        waiting = {asyncio.create_task(work()) for work in works}
        found: list[T] = []
        failure: BaseException | None = None
        until: float | None = None
        try:
            while waiting and (until is None or monotonic() < until):
                left_s = None if until is None else until - monotonic()
                done, waiting = await asyncio.wait(waiting, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    if (failed := task.exception()) is None:
                        found.append(task.result())
                    elif isinstance(failed, _FAILURES):
                        failure = failed
                    else:
                        raise failed
                if found and until is None:
                    until = monotonic() + grace_s
        finally:
            for task in waiting:
                task.cancel()
        if not found:
            raise failure or ConnectionLost("TimeoutError", sent=False)
        return found

    async def shared(self, work: Work[None], timeout_s: float) -> None:
        """Does it for all who ask for it meanwhile; the work looks first whether it is done."""
        task = self._shared
        limit_s: float | None = timeout_s
        if task is None or task.done() or task.get_loop() is not asyncio.get_running_loop():
            task = self._shared = asyncio.get_running_loop().create_task(work())
            task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # nobody may be left to see it
            limit_s = None  # the work keeps to the time of who began it, and says why it has failed
        try:
            async with asyncio.timeout(limit_s):
                await asyncio.shield(task)
        except TimeoutError:
            raise ConnectionLost("TimeoutError", sent=False) from None
        except asyncio.CancelledError:
            asked = asyncio.current_task()
            if not task.cancelled() or (asked is not None and asked.cancelling()):
                raise
            raise ConnectionLost("closed", sent=False) from None

    def later(self, work: Work[None]) -> None:
        """Does it in the background, unless something is done there already."""
        loop = asyncio.get_running_loop()
        if self._task is None or self._task.done() or self._task.get_loop() is not loop:
            self._task = loop.create_task(work())

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def end(self) -> None:
        """Gives up what is done in the background."""
        here = asyncio.get_running_loop()
        tasks = [task for task in (self._task, self._shared) if task is not None]
        self._task = self._shared = None
        for task in tasks:
            if task.get_loop() is here:
                task.cancel()
            else:
                with contextlib.suppress(RuntimeError):  # that loop is closed, and nothing is done there any more
                    task.get_loop().call_soon_threadsafe(task.cancel)
        ending = [task for task in (*tasks, *self._closing) if task.get_loop() is here]
        if ending:
            await asyncio.wait(ending)


class ThreadSide:
    """The side of blocking callers: threads. A process that was forked off has none of them, and begins its own."""

    blocks = True

    def __init__(self, max_connections: int) -> None:
        self._max_connections = max_connections
        self._thread: threading.Thread | None = None
        self._lock, self._pid = threading.Lock(), os.getpid()

    def lane(self, address: Address) -> Transport:
        """A transport to one node, not connected yet."""
        return BlockingLane(address, max_connections=self._max_connections)

    def drop(self, lane: Transport, *, may_wait: bool) -> bool:
        """Closes what is idle there, and the rest when its call is over: nobody has to wait for it."""
        del may_wait
        assert isinstance(lane, BlockingLane)
        lane.retire()
        return True

    async def all(self, works: Sequence[Work[T]]) -> list[T | Failure]:
        """Does all at once: what each gave, or how it failed."""
        outcomes = self._begun(works)
        found: dict[int, T | Failure] = {}
        while len(found) < len(works):
            at, outcome = outcomes.get()
            if isinstance(outcome, BaseException) and not isinstance(outcome, _FAILURES):
                raise outcome
            found[at] = outcome
        return [found[at] for at in range(len(works))]

    async def answers(self, works: Sequence[Work[T]], grace_s: float = 0) -> list[T]:
        """Does all at once: what the first gave, and others within `grace_s` of it. Raises if none gave anything."""
        outcomes = self._begun(works)
        found: list[T] = []
        failure: BaseException | None = None
        until: float | None = None
        for _ in works:
            left_s = None if until is None else max(0.0, until - monotonic())
            try:
                _, outcome = outcomes.get(timeout=left_s)
            except queue.Empty:
                break
            if not isinstance(outcome, BaseException):
                found.append(outcome)
                until = monotonic() + grace_s if until is None else until
            elif isinstance(outcome, _FAILURES):
                failure = outcome
            else:
                raise outcome
        if not found:
            raise failure or ConnectionLost("TimeoutError", sent=False)
        return found

    @staticmethod
    def _begun(works: Sequence[Work[Any]]) -> queue.SimpleQueue[tuple[int, Any]]:
        """Begins all of them; where each stands, and what it gave or raised, comes out as they end.

        One that the system has no thread for is done here.
        """
        outcomes: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()

        def one(at: int, work: Work[Any]) -> None:
            try:
                outcomes.put((at, finished(work())))
            except BaseException as failure:
                outcomes.put((at, failure))

        for at, work in enumerate(works):
            try:
                threading.Thread(target=one, args=(at, work), name="redismem-node", daemon=True).start()
            except RuntimeError:
                one(at, work)
        return outcomes

    async def shared(self, work: Work[None], timeout_s: float) -> None:
        """Does it for all who ask for it meanwhile; the work looks first whether it is done."""
        if self._pid != os.getpid():  # a thread of the parent may have been at it, which is not here to end
            self._lock, self._pid = threading.Lock(), os.getpid()
        lock = self._lock
        if not lock.acquire(timeout=timeout_s):
            raise ConnectionLost("TimeoutError", sent=False)
        try:
            await work()
        finally:
            lock.release()

    def later(self, work: Work[None]) -> None:
        """Does it in the background, unless something is done there already, or the system has no thread for it."""
        if self._thread is None or not self._thread.is_alive():
            thread = threading.Thread(target=lambda: finished(work()), name="redismem-nodes", daemon=True)
            with contextlib.suppress(RuntimeError):  # whoever asks next tries again
                thread.start()
                self._thread = thread

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 (there is no event loop)

    async def end(self) -> None:
        """Nothing: what is done in the background ends when it sees that all is closed."""
