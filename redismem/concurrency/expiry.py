"""Drop old entries of caches now and then, also in a process that does not use a cache any more.

One thread makes the calls of all caches of a process. It ends when no cache has an entry.
"""

from __future__ import annotations

import contextlib
import heapq
import threading
import time
import weakref
from collections.abc import Callable
from itertools import count

from redismem.concurrency import forks

_numbers = count()
_Entry = tuple[float, int, "weakref.ref[Expiry]"]


class _Calls:
    """The calls to come, soonest first, and the thread that makes them."""

    def __init__(self) -> None:
        self.reset()
        forks.reset_after_fork(self)

    def reset(self) -> None:
        """Start without a call: a forked process has no thread of its parent."""
        self._condition = threading.Condition()
        self._entries: list[_Entry] = []
        self._thread: threading.Thread | None = None

    @property
    def is_running(self) -> bool:
        return self._thread is not None

    def add(self, after_s: float, expiry: Expiry) -> _Entry:
        entry = time.monotonic() + after_s, next(_numbers), weakref.ref(expiry)
        with self._condition:
            heapq.heappush(self._entries, entry)
            self._condition.notify()
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="redismem-expiry", daemon=True)
                with contextlib.suppress(RuntimeError):  # no thread can start: a later call tries again
                    thread.start()
                    self._thread = thread
        return entry

    def _run(self) -> None:
        while (entry := self._take()) is not None:
            if (expiry := entry[2]()) is not None:
                expiry.call(entry)
            del expiry  # this thread keeps no cache alive

    def _take(self) -> _Entry | None:
        """Wait for the next call, and return it; `None` if there is none."""
        with self._condition:
            while self._entries and (wait_s := self._entries[0][0] - time.monotonic()) > 0:
                self._condition.wait(wait_s)
            if self._entries:
                return heapq.heappop(self._entries)
            self._thread = None
            return None


_calls = _Calls()


class Expiry:
    """Calls a method of a cache a while after each `start`. Does not keep the cache alive.

    The cache calls every method but `call` while it holds its lock, so no entry comes between a call and its `stop`.
    In a forked process, the cache makes a new one.
    """

    def __init__(self, drop_old: Callable[[], object], after_s: float) -> None:
        """Prepare the calls.

        Args:
            drop_old: A method, which calls `start_again` if it leaves an entry, else `stop`.
            after_s: The seconds from a start until the call.
        """
        self._drop_old = weakref.WeakMethod(drop_old)
        self._after_s = after_s
        self._entry: _Entry | None = None

    def start(self) -> None:
        """Let the method be called, unless it is about to be."""
        if self._entry is None or not _calls.is_running:
            self._entry = _calls.add(self._after_s, self)

    def start_again(self) -> None:
        """Let the method be called once more."""
        self.stop()
        self.start()

    def stop(self) -> None:
        """End the calls, because the cache is empty."""
        self._entry = None

    def call(self, entry: _Entry) -> None:
        """Call the method, unless the calls have ended or begun again since."""
        drop_old = self._drop_old()
        if drop_old is not None and self._entry is entry:
            drop_old()
