"""An embedder for callers without an event loop. It runs on a thread with a loop, which the first question starts."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from functools import partial

from redismem.blocking.loop_thread import LoopThread
from redismem.concurrency.forks import reset_after_fork
from redismem.recall.embedder import Embedder

# An embedder may ignore that it is cancelled.
_ENDS_WITHIN_S = 2.0


class BlockingEmbedder(Embedder):
    """A thread-safe embedder whose methods block and never suspend. A forked process starts a thread of its own."""

    def __init__(self, make: Callable[[], Embedder]) -> None:
        """Create the embedder. `make` returns the embedder that the thread uses, and is called once per process."""
        self._make = make
        self.reset()
        self.name, self.mark = self._twin.name, self._twin.mark
        self._thread = LoopThread("redismem-embedder", lambda: aclosing(self._twin))
        reset_after_fork(self)

    def reset(self) -> None:
        """Make another embedder after a fork, because the old one's connections belong to the parent's event loop."""
        self._twin = self._make()

    @property
    def dimensions(self) -> int:  # type: ignore[override]
        """The dimensions of the newest vectors; 0 before the first vector."""
        return self._twin.dimensions

    async def question(self, text: str) -> bytes | None:
        """Return the row of a question; `None` if the embedder is paused. Raises ModelFailed."""
        return self._thread.run(partial(self._twin.question, text))

    async def aclose(self) -> None:
        """End the thread."""
        self._thread.stop(_ENDS_WITHIN_S)
