"""List the dead sessions, those whose summary has failed for good, and take sessions off that list."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from redismem.context.info import SessionEntry
from redismem.errors import UnsupportedFormat
from redismem.inspection.sessions import Info, infos_of, numbers_of
from redismem.inspection.work_rules import failure_kind
from redismem.protocol.call import Call
from redismem.protocol.ids import session_hash
from redismem.protocol.queue import depths as depth_calls
from redismem.store.depths import shard_depths
from redismem.store.store import Store

_PAGE_COUNT = 100
_TOGETHER_COUNT = 64
_ENTRIES_COUNT = 4_096
"""The maximum number of entries of one round trip, except that each shard may return a whole page."""


@dataclass(frozen=True, slots=True)
class DeadSession:
    """A dead session. `log_id` is its name in the workers' logs."""

    session_id: str
    log_id: str
    died_ms: int
    info: Info

    def document(self) -> dict[str, Any]:
        """Return the session as JSON values."""
        return {
            "session_id": self.session_id,
            "log": self.log_id,
            "died_ms": self.died_ms,
            **numbers_of(self.info),
            **({} if isinstance(self.info, str) else failure_kind(self.info.failure).document()),
        }


@dataclass(frozen=True, slots=True)
class DeadList:
    """The first dead sessions, longest dead first, and the count of all dead sessions."""

    count: int
    sessions: Sequence[DeadSession]
    now_ms: int


async def list_dead(store: Store, limit: int) -> DeadList:
    """Return the `limit` sessions that have been dead longest. Raises StoreUnavailable."""
    now_ms = await store.server_time_ms()
    counts = [0 if shard is None else shard["dead"].count for shard in await shard_depths(store)]
    entries = await _oldest_dead(store, counts, limit)
    infos = await infos_of(store, entries)
    rows = [
        DeadSession(entry.session_id, session_hash(entry.session_id), entry.active_ms, info)
        for entry, info in zip(entries, infos, strict=True)
    ]
    return DeadList(sum(counts), rows, now_ms)


async def _oldest_dead(store: Store, counts: Sequence[int], limit: int) -> list[SessionEntry]:
    """Return the `limit` sessions that have been dead longest. `counts` has the dead sessions of each shard."""
    entries: list[SessionEntry] = []
    shards = [shard for shard, count in zip(store.keys.shards(), counts, strict=True) if count]
    together_count = max(1, _ENTRIES_COUNT // limit)
    for at in range(0, len(shards), together_count):
        members = await store.run(depth_calls.members(shards[at : at + together_count], "dead", limit))
        entries = sorted((*entries, *members), key=_sort_key)[:limit]
    return entries


def _sort_key(entry: SessionEntry) -> tuple[int, str]:
    return entry.active_ms, entry.session_id


@dataclass(frozen=True, slots=True)
class Requeued:
    """The outcome of a requeue.

    `taken`: the sessions that left the list. `missing`: the sessions that were not on it. `foreign`: the sessions that
    another release wrote; they stay on the list.
    """

    taken: list[str]
    missing: list[str]
    foreign: list[str]


async def requeue(store: Store, session_ids: Sequence[str], *, again: bool) -> Requeued:
    """Take sessions off the list.

    With `again` the sessions are overdue at once. Without it, no worker claims a session before its next message.

    Raises:
        InvalidSessionId
        StoreUnavailable
    """
    calls = [store.queue_calls(session_id).requeue(again=again) for session_id in session_ids]
    outcomes: dict[bool | None, list[str]] = {True: [], False: [], None: []}

    async def ask(session_id: str, call: Call[bool]) -> None:
        try:
            is_listed = await store.run(call)
            outcomes[is_listed].append(session_id)
        except UnsupportedFormat:  # one unreadable session must not stop the rest
            outcomes[None].append(session_id)

    pairs = list(zip(session_ids, calls, strict=True))
    for at in range(0, len(pairs), _TOGETHER_COUNT):
        await asyncio.gather(*(ask(*pair) for pair in pairs[at : at + _TOGETHER_COUNT]))
    return Requeued(outcomes[True], outcomes[False], outcomes[None])


async def requeue_all(store: Store, *, again: bool) -> Requeued:
    """Take all sessions off the list, page by page. A session that dies again during the run stays on the list.

    Raises StoreUnavailable.
    """
    requeued = Requeued([], [], [])
    seen: set[str] = set()
    while True:
        page = await store.run(depth_calls.members(store.keys.shards(), "dead", _PAGE_COUNT))
        fresh = [entry.session_id for entry in page if entry.session_id not in seen]
        if not fresh:
            return Requeued(sorted(requeued.taken), [], sorted(requeued.foreign))
        seen.update(fresh)
        part = await requeue(store, fresh, again=again)
        requeued.taken.extend(part.taken)
        requeued.foreign.extend(part.foreign)
