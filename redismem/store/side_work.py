"""Work that follows a call but delays no caller: a task of the event loop, or a thread for blocking callers."""

from __future__ import annotations

import contextlib
from functools import partial

from redismem.concurrency.background import Background, LoopBackground, ThreadBackground, Work
from redismem.concurrency.forks import reset_after_fork


class SideWork:
    """The side work of one store: at most one piece per session at a time."""

    def __init__(self, *, blocks: bool) -> None:
        self._kind: type[Background] = ThreadBackground if blocks else LoopBackground
        self.reset()
        reset_after_fork(self)

    def reset(self) -> None:
        """Forget all work: a forked process runs none of it."""
        self._running: dict[str, Background] = {}

    def start(self, session_id: str, work: Work) -> None:
        """Start the work, unless work for this session is running. The work must not raise."""
        running = self._running.get(session_id)
        if running is not None and running.is_running():
            return
        background = self._running[session_id] = self._kind()
        try:
            background.start(partial(self._run, session_id, background, work))
        except RuntimeError:  # no thread can start now; the work is asked for again
            self._running.pop(session_id, None)

    async def _run(self, session_id: str, background: Background, work: Work) -> None:
        try:
            await work()
        finally:
            if self._running.get(session_id) is background:
                del self._running[session_id]

    async def end(self, timeout_s: float) -> None:
        """Wait up to this time for each piece of work to end, then abandon it."""
        while self._running:
            with contextlib.suppress(KeyError):
                _, background = self._running.popitem()
                await background.end(timeout_s)
