"""Sessions whose summary failed too often: listing them, and taking them off the list."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from redismem.context import SessionEntry
from redismem.inspection.sessions import Info, infos_of, numbers_of
from redismem.protocol import queue_calls
from redismem.protocol.ids import session_hash
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
    depths = await store.run(queue_calls.depths(store.keys))
    found = await store.run(queue_calls.members(store.keys, "dead", limit))
    entries = sorted(found, key=_age)[:limit]
    infos = await infos_of(store, entries)
    rows = [
        DeadSession(entry.session_id, session_hash(entry.session_id), entry.active_ms, info)
        for entry, info in zip(entries, infos, strict=True)
    ]
    return DeadList(sum(shard["dead"].count for shard in depths), rows, now_ms)


def _age(entry: SessionEntry) -> tuple[int, str]:
    return entry.active_ms, entry.session_id


async def requeue(store: Store, session_ids: Sequence[str], *, again: bool) -> tuple[list[str], list[str]]:
    """Takes sessions off the list: those that were on it, and those that were not.

    `again`: they are overdue at once; else nothing is tried until their next message. Raises InvalidSessionId,
    StoreUnavailable.
    """
    calls = [store.queue_calls(session_id).requeue(again=again) for session_id in session_ids]
    done: list[bool] = []
    for at in range(0, len(calls), _TOGETHER_COUNT):
        done += await asyncio.gather(*(store.run(call) for call in calls[at : at + _TOGETHER_COUNT]))
    pairs = list(zip(session_ids, done, strict=True))
    return [name for name, listed in pairs if listed], [name for name, listed in pairs if not listed]


async def requeue_all(store: Store, *, again: bool) -> list[str]:
    """Takes all sessions off the list, page by page, each once: one that dies anew meanwhile stays.

    Raises StoreUnavailable.
    """
    taken: set[str] = set()
    seen: set[str] = set()
    while True:
        page = await store.run(queue_calls.members(store.keys, "dead", _PAGE_COUNT))
        fresh = [entry.session_id for entry in page if entry.session_id not in seen]
        if not fresh:
            return sorted(taken)
        seen.update(fresh)
        taken.update((await requeue(store, fresh, again=again))[0])
