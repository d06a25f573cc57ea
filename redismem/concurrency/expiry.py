"""Drop old entries of caches now and then, also in a process that does not use a cache any more.

One thread makes the calls of all caches of a process. It ends when no cache has an entry. A call that is not needed any
more, as its cache is empty or gone, is dropped at its time, or once there are too many of them.
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

_FIRST_DROP_COUNT = 64
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
        self._next_drop_count = _FIRST_DROP_COUNT
        self._thread: threading.Thread | None = None

    @property
    def is_running(self) -> bool:
        return self._thread is not None

    def add(self, after_s: float, expiry: Expiry) -> None:
        """Set the entry of `expiry`, and call its method after this time."""
        entry = time.monotonic() + after_s, next(_numbers), weakref.ref(expiry)
        with self._condition:
            expiry.entry = entry
            heapq.heappush(self._entries, entry)
            if len(self._entries) > self._next_drop_count:
                self._drop_unneeded()
            self._condition.notify()
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="redismem-expiry", daemon=True)
                with contextlib.suppress(RuntimeError):  # no thread can start: a later call tries again
                    thread.start()
                    self._thread = thread

    def _drop_unneeded(self) -> None:
        """Drop the calls of caches that are gone, are empty, or have a later call."""
        self._entries = [each for each in self._entries if (expiry := each[2]()) is not None and expiry.entry is each]
        heapq.heapify(self._entries)
        self._next_drop_count = max(_FIRST_DROP_COUNT, 2 * len(self._entries))

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
        self.entry: _Entry | None = None
        """The call to come; `None` if there is none."""

    def start(self) -> None:
        """Let the method be called, unless it is about to be."""
        if self.entry is None or not _calls.is_running:
            _calls.add(self._after_s, self)

    def start_again(self) -> None:
        """Let the method be called once more."""
        self.stop()
        self.start()

    def stop(self) -> None:
        """End the calls, because the cache is empty."""
        self.entry = None

    def call(self, entry: _Entry) -> None:
        """Call the method, unless the calls have ended or begun again since."""
        drop_old = self._drop_old()
        if drop_old is not None and self.entry is entry:
            drop_old()
