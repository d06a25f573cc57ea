"""Streams of changes in sessions, made through any server. One poll per tick covers all watched sessions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from redismem.errors import RedismemError
from redismem.events import facts
from redismem.formats.streams.encoding import frame
from redismem.inspection.watching import Look, changes_of
from redismem.memory.memory import Memory

log = logging.getLogger("redismem")

TICK_S = 0.5
# Sessions and bytes per round trip: few enough that decoding them does not delay a turn.
_BATCH_COUNT = 50
_BATCH_BYTES = 1 << 20
_BYTES_PER_S = 4 << 20
"""The bytes that the polls of one namespace may read per second. If the sessions are large, polls are less frequent."""


class _Watcher:
    """One stream. It stores only the newest poll's result, so a slow client skips the results before it."""

    __slots__ = ("changed", "is_well", "look")

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self.look: Look | None = None
        self.is_well = True

    def tell(self, look: Look | None, is_well: bool) -> None:
        if look is not self.look or is_well != self.is_well:
            self.look, self.is_well = look, is_well
            self.changed.set()


class Watch:
    """The watched sessions of one memory. It polls the store while at least one stream is open."""

    def __init__(self, memory: Memory, tick_s: float = TICK_S) -> None:
        self._memory = memory
        self._tick_s = tick_s
        self._watchers: dict[str, set[_Watcher]] = {}
        self._looks: dict[str, Look | None] = {}
        self._task: asyncio.Task[None] | None = None

    async def frames(
        self, session_id: str, stopping: asyncio.Event, owner: str | None = None
    ) -> AsyncGenerator[bytes, None]:
        """Yield the events of a session: `changed` with its numbers, first at once; `degraded`; `end`.

        With an owner, the events end once the session belongs to another one, or to none.
        """
        watcher = self._join(session_id)
        stop_wait = asyncio.create_task(stopping.wait())
        stop_wait.add_done_callback(lambda _: watcher.changed.set())
        try:
            while True:
                await watcher.changed.wait()
                watcher.changed.clear()
                if stopping.is_set():
                    yield frame({"reason": "the server stopped"}, "end")
                    return
                info = None if watcher.look is None else watcher.look.info
                if owner is not None and info is not None and info.owner != owner:
                    yield frame({"reason": "the session has another owner"}, "end")
                    return
                yield _event_frame(watcher, session_id)
        finally:
            stop_wait.cancel()
            self._leave(session_id, watcher)

    def _join(self, session_id: str) -> _Watcher:
        watcher = _Watcher()
        self._watchers.setdefault(session_id, set()).add(watcher)
        if (look := self._looks.setdefault(session_id, None)) is not None:
            watcher.tell(look, True)
        if self._task is None:
            self._task = asyncio.create_task(self._poll())
        return watcher

    def _leave(self, session_id: str, watcher: _Watcher) -> None:
        watchers = self._watchers[session_id]
        watchers.discard(watcher)
        if not watchers:
            del self._watchers[session_id], self._looks[session_id]
        if not self._watchers and self._task is not None:
            self._task.cancel()
            self._task = None

    async def _poll(self) -> None:
        is_well = True
        while True:
            try:
                await self._look_at_all()
                is_well = True
            except Exception as error:  # a defect must not leave all streams silent for good
                if is_well:
                    kind = type(error).__name__
                    level = logging.WARNING if isinstance(error, RedismemError) else logging.ERROR
                    log.log(level, "cannot poll the watched sessions: %s", kind, extra=facts(op="watch", error=kind))
                is_well = False
            for session_id, watchers in list(self._watchers.items()):
                for watcher in watchers:
                    watcher.tell(self._looks[session_id], is_well)
            await asyncio.sleep(pause_s(self._looks, self._tick_s))

    async def _look_at_all(self) -> None:
        for batch in batches(self._looks):
            known_looks = {session_id: self._looks[session_id] for session_id in batch if session_id in self._looks}
            for session_id, look in (await changes_of(self._memory.store, known_looks)).items():
                if session_id in self._looks:
                    self._looks[session_id] = look


def batches(looks: Mapping[str, Look | None]) -> list[list[str]]:
    """Return the watched sessions in groups, each for one round trip."""
    groups: list[list[str]] = []
    left_bytes = 0
    for session_id, look in looks.items():
        if not groups or len(groups[-1]) == _BATCH_COUNT or left_bytes <= 0:
            groups.append([])
            left_bytes = _BATCH_BYTES
        groups[-1].append(session_id)
        left_bytes -= look.stored_bytes if look is not None else 0
    return groups


def pause_s(looks: Mapping[str, Look | None], tick_s: float) -> float:
    """Return the seconds until the next poll: at least `tick_s`."""
    return max(tick_s, sum(look.stored_bytes for look in looks.values() if look is not None) / _BYTES_PER_S)


def _event_frame(watcher: _Watcher, session_id: str) -> bytes:
    if not watcher.is_well:
        return frame({"session_id": session_id, "text": "The memory is unreachable right now."}, "degraded")
    numbers: dict[str, Any] = {} if watcher.look is None else watcher.look.document()
    return frame({"session_id": session_id} | numbers, "changed")
