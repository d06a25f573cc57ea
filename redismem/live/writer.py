"""The writer of a store: sends what the running turns of this process say, and keeps their leases.

A write takes what was said so far by up to 64 turns. What is said while writes are under way goes with the next one, so
no timer delays a delta, and many deltas cost one call. A turn has at most one write under way.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from time import monotonic

from redismem.errors import RedismemError
from redismem.events import facts
from redismem.live.writing import Writing
from redismem.protocol.live.calls import write_turns
from redismem.store.store import Store

log = logging.getLogger("redismem")

_WRITES_COUNT = 4
_TURNS_COUNT = 64
_PAUSE_S = 0.25


class Writer:
    """The writes of one store and one event loop."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lease_s = store.settings.live_lease_s
        self._waiting: defaultdict[int, dict[Writing, None]] = defaultdict(dict)
        self._under_way: defaultdict[int, int] = defaultdict(int)
        self._tasks: set[asyncio.Task[None]] = set()
        self._sent_s: dict[Writing, float] = {}
        """The time of the last write of each turn."""
        self._beat: asyncio.TimerHandle | None = None
        self.beats_often = True
        """True if only the replies to writes tell of a stop."""

    def add(self, writing: Writing) -> None:
        """Keep the lease of this turn from now on."""
        self._sent_s[writing] = monotonic()
        if self._beat is None:
            self._schedule_beat()

    def remove(self, writing: Writing) -> None:
        """Write no more of this turn."""
        self._sent_s.pop(writing, None)
        self._waiting[self._group_of(writing)].pop(writing, None)
        if not self._sent_s and self._beat is not None:
            self._beat.cancel()
            self._beat = None

    def wake(self, writing: Writing) -> None:
        """Write what the turn has said as soon as possible."""
        if writing.is_in_flight or writing.is_held or writing not in self._sent_s or not writing.has_work:
            return
        group = self._group_of(writing)
        waiting = self._waiting[group]
        if not waiting and self._under_way[group] < _WRITES_COUNT:
            asyncio.get_running_loop().call_soon(self._start, group)  # after all that is said in this step of the loop
        waiting[writing] = None

    def beat_now(self) -> None:
        """Write of every turn now: its reply tells whether the turn was stopped or lost."""
        for writing in list(self._sent_s):
            writing.needs_beat = True
            self.wake(writing)

    async def flush(self, writing: Writing) -> None:
        """Wait until Redis has everything that the turn has said, a write fails, or the turn is lost."""
        while writing in self._sent_s and (
            writing.is_in_flight or (writing.unacknowledged_bytes > 0 and not writing.is_away)
        ):
            settled = writing.settled
            self.wake(writing)
            await settled.wait()

    async def aclose(self) -> None:
        """Cancel all writes."""
        if self._beat is not None:
            self._beat.cancel()
        self._sent_s.clear()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _group_of(self, writing: Writing) -> int:
        """Return the shard, because a script's keys must share one, except if a single server has all of them."""
        transport = self._store.transport
        if transport.nodes is None and not transport.repeats:
            return 0
        return self._store.keys.shard_of(writing.keys.session_id)

    def _start(self, group: int) -> None:
        waiting = self._waiting[group]
        while waiting and self._under_way[group] < _WRITES_COUNT:
            batch = [writing for writing, _ in zip(list(waiting), range(_TURNS_COUNT), strict=False)]
            for writing in batch:
                del waiting[writing]
                writing.is_in_flight = True
            self._under_way[group] += 1
            task = asyncio.get_running_loop().create_task(self._write(group, batch))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _write(self, group: int, batch: list[Writing]) -> None:
        is_away = False
        try:
            writes = [writing.next_write() for writing in batch]
            now_s = monotonic()
            for writing in batch:
                if writing in self._sent_s:
                    self._sent_s[writing] = now_s
            replies = await self._store.run(write_turns(self._store.settings, self._store.clock, writes))
            for writing, reply in zip(batch, replies, strict=True):
                writing.acknowledge(reply)
        except Exception as error:  # a defect must not silence the turns
            is_away = True
            self._note_failure(batch, error)
        finally:
            self._under_way[group] -= 1
            for writing in batch:
                writing.is_in_flight = False
        if is_away:
            await asyncio.sleep(_PAUSE_S)
        for writing in batch:
            self.wake(writing)
        self._start(group)

    def _note_failure(self, batch: list[Writing], error: Exception) -> None:
        if not all(writing.is_away for writing in batch):
            kind = type(error).__name__
            extra = facts(op="write_turns", error=kind, namespace=self._store.keys.namespace)
            level, reason = (logging.WARNING, error.text) if isinstance(error, RedismemError) else (logging.ERROR, kind)
            log.log(level, "Redis does not take the events of %d running turns: %s", len(batch), reason, extra=extra)
        for writing in batch:
            writing.needs_beat = True
            writing.note_away()

    def _schedule_beat(self) -> None:
        poll_s = self._store.settings.live_poll_s
        every_s = min(poll_s, self._lease_s / 4) if self.beats_often else self._lease_s / 4
        self._beat = asyncio.get_running_loop().call_later(every_s, self._beat_all, every_s)

    def _beat_all(self, every_s: float) -> None:
        before_s = monotonic() - every_s * 0.9
        for writing, sent_s in list(self._sent_s.items()):
            if sent_s <= before_s:
                writing.needs_beat = True
                self.wake(writing)
        self._schedule_beat()
