"""At most `max_sessions`, and none past its timeout: choose the oldest, hand over their transcripts, remove them."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from redismem import queues
from redismem.context import Context, SessionEntry
from redismem.keys import session_hash
from redismem.memory import Memory
from redismem.queues import QueueCalls

log = logging.getLogger("redismem.worker")

OnEvict = Callable[[str, Context], Awaitable[None]]
"""Called with the session id and all that the session holds, before it is removed; again if a worker dies."""

_ROUND_COUNT = 1_000
_CHUNK_COUNT = 100


class Eviction:
    """Enforces the session limit and the timeout of a memory's namespace."""

    def __init__(self, memory: Memory, on_evict: OnEvict | None = None, *, concurrency: int = 32) -> None:
        self._memory = memory
        self._on_evict = on_evict
        self._slots = asyncio.Semaphore(concurrency)
        self._cursors: dict[int, int] = {}

    async def enforce(self, now_ms: int | None = None) -> int:
        """Chooses and evicts until the namespace holds its limit and nothing idle. Gives how many sessions went.

        Raises StoreUnavailable.
        """
        evicted = 0
        while True:
            await self.choose_idle(now_ms)
            await self.choose_excess(now_ms)
            gone = await self.drain(now_ms)
            evicted += gone
            if not gone:
                return evicted
            log.info("evicted %d sessions", gone)

    async def choose_excess(self, now_ms: int | None = None) -> int:
        """Puts the least recently active sessions beyond the limit on the queue, a bounded number at a time."""
        keys, settings = self._memory.keys, self._memory.settings
        per_shard: list[int] = await self._memory.run(queues.counts(keys), each=True)
        excess = min(sum(per_shard) - settings.max_sessions, _ROUND_COUNT)
        if excess <= 0:
            return 0
        limit = excess // keys.shard_count * 2 + 16
        while True:
            shards = await self._memory.run(queues.oldest(keys, limit), each=True)
            found = sorted((entry for shard in shards for entry in shard), key=_age)
            # A shard that gave all it was asked for may hold more that are as old as what follows its last one.
            known_ms = min((shard[-1].active_ms for shard in shards if len(shard) == limit), default=None)
            if known_ms is None or found[excess - 1].active_ms <= known_ms or limit >= excess:
                return await self._choose(found[:excess], "limit", now_ms)
            limit = min(limit * 2, excess)

    async def choose_idle(self, now_ms: int | None = None) -> int:
        """Puts sessions past their timeout on the queue."""
        time_ms = now_ms if now_ms is not None else await self._memory.server_time_ms()
        below_ms = time_ms - self._memory.settings.timeout_ms
        shards = await self._memory.run(queues.oldest(self._memory.keys, _CHUNK_COUNT, below_ms), each=True)
        return await self._choose([entry for shard in shards for entry in shard], "idle", now_ms)

    async def _choose(self, entries: list[SessionEntry], reason: str, now_ms: int | None) -> int:
        keys = self._memory.keys
        by_shard: dict[int, list[tuple[Any, int]]] = {}
        for entry in entries:
            place = by_shard.setdefault(keys.shard_of(entry.session_id), [])
            place.append((keys.session(entry.session_id), entry.active_ms))
        chosen = 0
        for shard, sessions in by_shard.items():
            for at in range(0, len(sessions), _CHUNK_COUNT):
                part = sessions[at : at + _CHUNK_COUNT]
                chosen += await self._memory.run(queues.choose(keys.shards()[shard], part, reason, now_ms))
        return chosen

    async def drain(self, now_ms: int | None = None) -> int:
        """Evicts what is on the queue. Gives how many sessions went; those touched meanwhile stay."""
        evicted = 0
        while True:
            time_ms = now_ms if now_ms is not None else await self._memory.server_time_ms()
            call = queues.due_evictions(self._memory.keys.shards(), time_ms, _CHUNK_COUNT)
            due = await self._memory.run(call, each=True)
            outcomes = await asyncio.gather(*(self._attended(session_id, now_ms) for session_id in due))
            evicted += sum(outcomes)
            if not any(outcomes):
                return evicted

    async def _attended(self, session_id: str, now_ms: int | None) -> bool:
        async with self._slots:
            try:
                return await self.evict(session_id, now_ms)
            except Exception as error:  # the caller's on_evict may raise anything; the session stays, and is due again
                log.warning("session %s: not evicted: %s", session_hash(session_id), type(error).__name__)
                return False

    async def evict(self, session_id: str, now_ms: int | None = None) -> bool:
        """Hands the transcript over and removes the session. False where it was touched, or is in other hands."""
        calls = QueueCalls(self._memory.keys.session(session_id), self._memory.settings)
        if not await self._memory.run(calls.hold(now_ms)):
            return False
        session = self._memory.session(session_id)
        context = await session.read()
        if self._on_evict is not None:
            if self._memory.settings.keep_originals:
                context.messages = await session.messages(include_originals=True)
            async with asyncio.timeout(self._memory.settings.lease_s):
                await self._on_evict(session_id, context)
        return await self._memory.run(calls.evict(context.epoch, context.total_messages))

    async def sweep(self, now_ms: int | None = None) -> tuple[int, int]:
        """Looks after the next few sessions of every shard: (index entries removed, sessions mended)."""
        keys = self._memory.keys
        removed = mended = 0
        for number, shard in enumerate(keys.shards()):
            cursor, session_ids = await self._memory.run(queues.scan(shard, self._cursors.get(number, 0), _CHUNK_COUNT))
            self._cursors[number] = cursor
            for at in range(0, len(session_ids), _CHUNK_COUNT):
                part = [keys.session(session_id) for session_id in session_ids[at : at + _CHUNK_COUNT]]
                gone, put_right = await self._memory.run(queues.sweep(shard, part, now_ms))
                removed, mended = removed + gone, mended + put_right
        return removed, mended


def _age(entry: SessionEntry) -> tuple[int, str]:
    return entry.active_ms, entry.session_id


class JsonlArchive:
    """An `on_evict` that writes transcripts to a file, a line each: session_id, epoch, summaries, messages, state."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._lock = asyncio.Lock()

    async def __call__(self, session_id: str, context: Context) -> None:
        line = json.dumps(
            {
                "session_id": session_id,
                "epoch": context.epoch,
                "summaries": [asdict(summary) for summary in context.summaries],
                "messages": [message.to_openai() for message in context.messages],
                "state": asdict(context.state),
            }
        )
        async with self._lock:
            await asyncio.to_thread(self._write, line)

    def _write(self, line: str) -> None:
        with self._path.open("a", encoding="ascii") as file:
            file.write(line + "\n")
