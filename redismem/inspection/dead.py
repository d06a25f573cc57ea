"""Sessions whose summary failed too often: listing them, and taking them off the list."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from redismem.errors import UnsupportedFormat
from redismem.info import SessionEntry
from redismem.inspection.sessions import Info, infos_of, numbers_of
from redismem.protocol.call import Call
from redismem.protocol.ids import session_hash
from redismem.protocol.queue import depths as depth_calls
from redismem.store.store import Store

_PAGE_COUNT = 100
_TOGETHER_COUNT = 64


@dataclass(frozen=True, slots=True)
class DeadSession:
    """One session of the list. `log_id` is what the workers' logs call it."""

    session_id: str
    log_id: str
    died_ms: int
    info: Info

    def document(self) -> dict[str, Any]:
        """All of it as JSON values."""
        return {
            "session_id": self.session_id,
            "log": self.log_id,
            "died_ms": self.died_ms,
            **numbers_of(self.info),
        }


@dataclass(frozen=True, slots=True)
class DeadList:
    """The first dead sessions, the longest dead first, and how many there are in all."""

    count: int
    sessions: Sequence[DeadSession]
    now_ms: int


async def list_dead(store: Store, limit: int) -> DeadList:
    """Raises StoreUnavailable."""
    now_ms = await store.server_time_ms()
    depths = await store.run(depth_calls.depths(store.keys))
    found = await store.run(depth_calls.members(store.keys, "dead", limit))
    entries = sorted(found, key=_age)[:limit]
    infos = await infos_of(store, entries)
    rows = [
        DeadSession(entry.session_id, session_hash(entry.session_id), entry.active_ms, info)
        for entry, info in zip(entries, infos, strict=True)
    ]
    return DeadList(sum(shard["dead"].count for shard in depths), rows, now_ms)


def _age(entry: SessionEntry) -> tuple[int, str]:
    return entry.active_ms, entry.session_id


@dataclass(frozen=True, slots=True)
class Requeued:
    """Sessions that were taken off the list, that were not on it, and that another release wrote: those stay there."""

    taken: list[str]
    missing: list[str]
    foreign: list[str]


async def requeue(store: Store, session_ids: Sequence[str], *, again: bool) -> Requeued:
    """Takes sessions off the list.

    `again`: they are overdue at once; else nothing is tried until their next message. Raises InvalidSessionId,
    StoreUnavailable.
    """
    calls = [store.queue_calls(session_id).requeue(again=again) for session_id in session_ids]
    found: dict[bool | None, list[str]] = {True: [], False: [], None: []}

    async def ask(session_id: str, call: Call[bool]) -> None:
        try:
            is_listed = await store.run(call)
            found[is_listed].append(session_id)
        except UnsupportedFormat:  # of one session: the others go on
            found[None].append(session_id)

    pairs = list(zip(session_ids, calls, strict=True))
    for at in range(0, len(pairs), _TOGETHER_COUNT):
        await asyncio.gather(*(ask(*pair) for pair in pairs[at : at + _TOGETHER_COUNT]))
    return Requeued(found[True], found[False], found[None])


async def requeue_all(store: Store, *, again: bool) -> Requeued:
    """Takes all sessions off the list, page by page, each once: one that dies anew meanwhile stays.

    Raises StoreUnavailable.
    """
    found = Requeued([], [], [])
    seen: set[str] = set()
    while True:
        page = await store.run(depth_calls.members(store.keys, "dead", _PAGE_COUNT))
        fresh = [entry.session_id for entry in page if entry.session_id not in seen]
        if not fresh:
            return Requeued(sorted(found.taken), [], sorted(found.foreign))
        seen.update(fresh)
        part = await requeue(store, fresh, again=again)
        found.taken.extend(part.taken)
        found.foreign.extend(part.foreign)
