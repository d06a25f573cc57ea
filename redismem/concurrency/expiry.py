"""Drop old entries of a cache now and then, also in a process that does not use the cache any more."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable


class Expiry:
    """Calls a method of a cache in a thread, a while after each `start`. Does not keep the cache alive.

    The cache calls every method here while it holds its lock. So no entry comes between the last call and its end.
    """

    def __init__(self, drop_old: Callable[[], object], after_s: float) -> None:
        """Prepare the calls.

        Args:
            drop_old: A method, which calls `start_again` if it leaves an entry, else `stop`.
            after_s: The seconds from a start until the call.
        """
        self._drop_old = weakref.WeakMethod(drop_old)
        self._after_s = after_s
        self._timer: threading.Timer | None = None

    def start(self) -> None:
        """Let the method be called, unless it is about to be."""
        if self._timer is None or not self._timer.is_alive():  # a forked process has no timer's thread
            timer = threading.Timer(self._after_s, self._run)
            timer.name, timer.daemon = "redismem-expiry", True
            with contextlib.suppress(RuntimeError):  # no thread can start: a later call tries again
                timer.start()
                self._timer = timer

    def start_again(self) -> None:
        """Let the method be called once more."""
        self.stop()
        self.start()

    def stop(self) -> None:
        """End the calls, because the cache is empty."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _run(self) -> None:
        drop_old = self._drop_old()
        if drop_old is not None:
            drop_old()
