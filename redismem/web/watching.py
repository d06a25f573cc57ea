"""Who watches sessions is told of their changes, whichever server changes them: one look a tick at all of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

from redismem.errors import RedismemError
from redismem.events import facts
from redismem.inspection.watching import Look, changes_of
from redismem.memory import Memory
from redismem.web.chat.answer import HEARTBEAT_S, frame

log = logging.getLogger("redismem")

TICK_S = 0.5
# Together in one trip: few enough that a turn in between does not wait for the decoding of all.
_TOGETHER_COUNT = 50


class _Watcher:
    """One stream. Only the newest look is kept: who reads slowly misses what was between."""

    __slots__ = ("changed", "look", "well")

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self.look: Look | None = None
        self.well = True

    def tell(self, look: Look | None, well: bool) -> None:
        if look is not self.look or well != self.well:
            self.look, self.well = look, well
            self.changed.set()


class Watch:
    """The watched sessions of one memory. It looks as long as somebody watches."""

    def __init__(self, memory: Memory, tick_s: float = TICK_S) -> None:
        self._memory = memory
        self._tick_s = tick_s
        self._watchers: dict[str, set[_Watcher]] = {}
        self._seen: dict[str, Look | None] = {}
        self._task: asyncio.Task[None] | None = None

    async def frames(self, session_id: str, stopping: asyncio.Event) -> AsyncIterator[bytes]:
        """The events of a session: `changed` with its numbers, at once and at each change; `degraded`; `end`."""
        watcher = self._join(session_id)
        telling = asyncio.create_task(stopping.wait())
        telling.add_done_callback(lambda _: watcher.changed.set())
        try:
            while True:
                try:
                    async with asyncio.timeout(HEARTBEAT_S):
                        await watcher.changed.wait()
                except TimeoutError:
                    yield b": still here\n\n"
                    continue
                watcher.changed.clear()
                if stopping.is_set():
                    yield frame("end", {"reason": "the server stopped"})
                    return
                yield _shown(watcher, session_id)
        finally:
            telling.cancel()
            self._leave(session_id, watcher)

    def _join(self, session_id: str) -> _Watcher:
        watcher = _Watcher()
        self._watchers.setdefault(session_id, set()).add(watcher)
        if (seen := self._seen.setdefault(session_id, None)) is not None:
            watcher.tell(seen, True)
        if self._task is None:
            self._task = asyncio.create_task(self._look())
        return watcher

    def _leave(self, session_id: str, watcher: _Watcher) -> None:
        left = self._watchers[session_id]
        left.discard(watcher)
        if not left:
            del self._watchers[session_id], self._seen[session_id]
        if not self._watchers and self._task is not None:
            self._task.cancel()
            self._task = None

    async def _look(self) -> None:
        well = True
        while True:
            try:
                await self._look_at_all()
                well = True
            except RedismemError as error:
                if well:
                    kind = type(error).__name__
                    log.warning("watched sessions cannot be looked at: %s", kind, extra=facts(op="watch", error=kind))
                well = False
            for session_id, watchers in list(self._watchers.items()):
                for watcher in watchers:
                    watcher.tell(self._seen[session_id], well)
            await asyncio.sleep(self._tick_s)

    async def _look_at_all(self) -> None:
        names = list(self._seen)
        for at in range(0, len(names), _TOGETHER_COUNT):
            together = names[at : at + _TOGETHER_COUNT]
            wanted = {name: self._seen[name] for name in together if name in self._seen}
            for name, look in (await changes_of(self._memory.store, wanted)).items():
                if name in self._seen:
                    self._seen[name] = look


def _shown(watcher: _Watcher, session_id: str) -> bytes:
    if not watcher.well:
        return frame("degraded", {"session_id": session_id, "text": "The memory cannot be reached just now."})
    numbers: dict[str, Any] = {} if watcher.look is None else watcher.look.document()
    return frame("changed", {"session_id": session_id} | numbers)
