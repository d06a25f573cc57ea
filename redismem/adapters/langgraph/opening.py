"""The memory behind a saver or a store: one of the caller's, or one that it opens for itself."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar, cast

from langchain_core.runnables.config import run_in_executor

from redismem import InvalidSettings, Memory, Settings, blocking
from redismem.adapters.sessions import check_memory
from redismem.concurrency.run_sync import run_without_loop

T = TypeVar("T")
EMBEDDED = "memory://"
_LONGEST_MINUTES = 10 * 365 * 1_440
_PATIENCE_S = 30.0
"""The time that a call from another thread waits for the event loop of an async memory to take it up."""
_INSTEAD = "use ainvoke() and the methods that begin with a, or give url= or a redismem.blocking.Memory instead"


class Opening:
    """The memory of a saver or a store. It runs the same coroutines for callers with and without an event loop.

    A blocking memory serves both: async methods then run in a thread. An async memory serves both too: it runs in the
    event loop that makes or uses the saver, and other threads, such as those of nodes without `await`, wait for that
    loop. For a URL, each kind connects when it is first needed; the embedded store has only the blocking one.
    """

    def __init__(self, memory: Memory | blocking.Memory | None, url: str | None) -> None:
        """Take the caller's memory, or open one later: with a URL, or without one at `REDISMEM_URL`.

        Raises:
            InvalidSettings: both are given, or the memory is of another type, or the URL cannot be used.
        """
        if memory is not None:
            check_memory(memory, Memory, blocking.Memory)
            if url is not None:
                raise InvalidSettings("give one of memory and url: only one of them would be used")
        self._memory = memory if isinstance(memory, Memory) else None
        self._blocking = memory if isinstance(memory, blocking.Memory) else None
        self._url, self._is_given, self._is_closed = url, memory is not None, False
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        with contextlib.suppress(RuntimeError):
            self._loop = asyncio.get_running_loop()
        if not self._is_given and not self._is_embedded():
            self._memory = Memory.connect(url)  # has no connection yet, and refuses a wrong URL here

    def run(self, make: Callable[[Memory], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine without an event loop, or in that of an async memory, if this is another thread.

        Raises:
            TypeError: the caller's memory is an async one, and this is the thread of its event loop, or no loop runs.
            RuntimeError: the saver or store is closed, or the event loop of the memory does not go on.
        """
        memory = self._memory if self._is_given else None
        if memory is None:
            return run_without_loop(make(self._awaited()))
        return self._run_in_loop(partial(make, memory))

    def _run_in_loop(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine in the event loop of the caller's async memory, from another thread."""
        loop = self._loop
        if loop is None or not loop.is_running():
            raise TypeError(f"the memory is an async one, and no event loop uses it: {_INSTEAD}")
        if asyncio._get_running_loop() is loop:
            raise TypeError(f"the memory is an async one, and its event loop would wait for itself: {_INSTEAD}")
        has_begun, decided = threading.Event(), threading.Lock()

        async def run() -> T:
            if not decided.acquire(blocking=False):
                raise asyncio.CancelledError  # the caller has given up
            has_begun.set()
            return await make()

        running = asyncio.run_coroutine_threadsafe(run(), loop)
        if not has_begun.wait(_PATIENCE_S) and decided.acquire(blocking=False):
            raise RuntimeError(f"the event loop of the memory has not gone on for {_PATIENCE_S:g} s: {_INSTEAD}")
        return running.result()

    async def arun(self, make: Callable[[Memory], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine in the caller's event loop, or in a thread if the memory is a blocking one.

        Raises:
            RuntimeError: the saver or store is closed.
        """
        memory = self._for_loop()
        if memory is None:
            return await run_in_executor(None, self.run, make)
        return await make(memory)

    def iterate(self, make: Callable[[Memory], AsyncIterator[T]]) -> Iterator[T]:
        """Iterate without an event loop, or in that of an async memory, as `run`."""
        memory = self._memory if self._is_given else None
        found = make(memory or self._awaited())
        with contextlib.suppress(StopAsyncIteration):
            while True:
                following = partial(_next, found)
                yield run_without_loop(following()) if memory is None else self._run_in_loop(following)

    async def aiterate(self, make: Callable[[Memory], AsyncIterator[T]]) -> AsyncIterator[T]:
        """Iterate in the caller's event loop, or in a thread, as `arun`."""
        memory = self._for_loop()
        if memory is None:
            found, end = self.iterate(make), object()
            while (item := await run_in_executor(None, next, found, end)) is not end:
                yield cast("T", item)
            return
        async for item in make(memory):
            yield item

    def for_loop(self) -> Memory:
        """Return the async memory.

        Raises:
            TypeError: there is only a blocking one.
            RuntimeError: the saver or store is closed.
        """
        memory = self._for_loop()
        if memory is None:
            raise TypeError("the memory is a blocking one: use turn(), or pass a redismem.Memory")
        return memory

    def close(self) -> None:
        """Close the blocking memory, if the saver or store opened it. The next call is refused."""
        if not self._is_given:
            self._is_closed = True
            if self._blocking is not None:
                self._blocking.close()
                self._blocking = None

    async def aclose(self) -> None:
        """Close what the saver or store opened."""
        self.close()
        if not self._is_given and self._memory is not None:
            await self._memory.aclose()
            self._memory = None

    def _for_loop(self) -> Memory | None:
        """Return the async memory; `None` if there is only a blocking one."""
        self._refuse_closed()
        if self._memory is not None and self._is_given:
            self._loop = asyncio.get_running_loop()
        return self._memory

    def _refuse_closed(self) -> None:
        if self._is_closed:
            raise RuntimeError("this saver or store is closed: its connections would stay open")

    def _is_embedded(self) -> bool:
        return (Settings.given(None).url if self._url is None else self._url) in (None, EMBEDDED)

    def _awaited(self) -> Memory:
        """Return the coroutines of the blocking memory. They never suspend."""
        return self.blocking()._twin

    def blocking(self) -> blocking.Memory:
        """Return the blocking memory. Raises TypeError or RuntimeError, as `run`."""
        self._refuse_closed()
        if self._is_given and self._blocking is None:
            raise TypeError(f"the memory is an async one: {_INSTEAD}")
        with self._lock:  # LangGraph calls from many threads
            if self._blocking is None:
                self._blocking = blocking.Memory.connect(self._url)
            return self._blocking


async def _next(found: AsyncIterator[T]) -> T:
    return await found.__anext__()


class Closes:
    """The end of a saver or a store: `with`, `async with`, `close` and `aclose`."""

    _opening: Opening

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def close(self) -> None:
        """Close the connections of the methods without `await`. A memory of the caller stays open."""
        self._opening.close()

    async def aclose(self) -> None:
        """Close all connections. A memory of the caller stays open."""
        await self._opening.aclose()


_TTL_KEYS = {"default_ttl", "refresh_on_read", "omit_expired", "sweep_interval_minutes"}


def check_ttl(ttl: Mapping[str, Any] | None) -> tuple[float | None, bool]:
    """Return the minutes of a TTL configuration, and whether a read renews them. Redis needs no sweep.

    Raises:
        InvalidSettings: it is of another type, has unknown keys, or minutes that are out of range.
    """
    if ttl is None:
        return None, True
    if not isinstance(ttl, Mapping) or not ttl.keys() <= _TTL_KEYS:
        raise InvalidSettings(f"ttl is a mapping with the keys {', '.join(sorted(_TTL_KEYS))}")
    minutes, renew = ttl.get("default_ttl"), ttl.get("refresh_on_read", True)
    if minutes is not None:
        check_minutes(minutes)
    if not isinstance(renew, bool):
        raise InvalidSettings("refresh_on_read of ttl is True or False")
    return minutes, renew


def check_minutes(minutes: object) -> float:
    """Return the minutes of a time to live.

    Raises:
        InvalidSettings: they are no number, or below 0.001, or above ten years.
    """
    is_number = isinstance(minutes, int | float) and not isinstance(minutes, bool)
    if not is_number or not 0.001 <= float(minutes) <= _LONGEST_MINUTES:  # type: ignore[arg-type]
        raise InvalidSettings(f"a ttl is a number of minutes, 0.001 to {_LONGEST_MINUTES}")
    return float(minutes)  # type: ignore[arg-type]
