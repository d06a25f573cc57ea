"""Add the windows of idle sessions to the indexes of their owners.

No summary ever covers the last messages of a session whose owner goes on in a new one. So once a session has had no
activity for five minutes, its window is indexed as well, within another minute. If Redis is unavailable, or the node of
the owner's index, the next round begins with the session that is missing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from redismem.context.info import SessionEntry
from redismem.errors import RedismemError, StoreUnavailable
from redismem.events import Op, facts
from redismem.protocol.keys import ShardKeys, is_session_id
from redismem.protocol.owner import calls
from redismem.protocol.owner.calls import LONGEST_MS
from redismem.recall.owner.upkeep import OwnerIndex, log_not_updated
from redismem.store.store import Store
from redismem.workers.failures import log_failure

IDLE_MS = 300_000
"""The time without activity after which the window of a session is indexed."""
_EVERY_MS = 60_000
_PAGE_COUNT = 500
_CONCURRENCY = 8


class IdleWindows:
    """The windows of idle sessions in one namespace. A worker that starts looks back a day."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._since_ms: dict[ShardKeys, int] = {}
        self._looks_ms: dict[ShardKeys, int] = {}
        self._slots = asyncio.Semaphore(_CONCURRENCY)
        self._stopping = False

    def stop(self) -> None:
        """Start no further session."""
        self._stopping = True

    async def index(self) -> int:
        """Index the windows of sessions that have become idle, at most 500 per shard. Return how many were looked at.

        Raises:
            StoreUnavailable: Redis does not answer before the deadline.
        """
        return await self._store.observe(Op.OWNERS_ROUND, self._index())

    async def _index(self) -> int:
        store = self._store
        now_ms = await store.server_time_ms()
        below_ms = now_ms - IDLE_MS
        shards = await self._load_shards(now_ms)
        if not shards:
            return 0
        spans = [(shard, self._since_ms.get(shard, below_ms - LONGEST_MS), below_ms) for shard in shards]
        pages = await store.run(calls.idle_between(spans, _PAGE_COUNT))
        session_ids = [entry.session_id for page in pages for entry in page if is_session_id(entry.session_id)]
        owners = await store.run(calls.owners_of([store.keys.session(session_id) for session_id in session_ids]))
        owned = [(session_id, owner) for session_id, owner in zip(session_ids, owners, strict=True) if owner]
        done = await asyncio.gather(*(self._index_session(session_id, owner) for session_id, owner in owned))
        missing = {session_id for (session_id, _), error in zip(owned, done, strict=True) if error is not None}
        if not self._stopping:
            for (shard, since_ms, _), page in zip(spans, pages, strict=True):
                missing_ms = [entry.active_ms for entry in page if entry.session_id in missing]
                self._since_ms[shard] = min([_next_since(since_ms, below_ms, page), *missing_ms])
                is_over = len(page) < _PAGE_COUNT or missing_ms
                self._looks_ms[shard] = now_ms + (_EVERY_MS if is_over else 0)
        if error := next(filter(None, done), None):
            text = f"the windows of {len(missing)} idle sessions are not in the indexes of their owners yet"
            log_failure(text, error, facts(op="owner_index"))
        return len(owned)

    async def _load_shards(self, now_ms: int) -> list[ShardKeys]:
        """Return the shards with owners that are due for a look.

        The first session of a shard without owners becomes idle `IDLE_MS` later, so the shard needs no look before.
        """
        looks_ms = self._looks_ms
        # A clock that was set back lets a look seem further away than any is set.
        due = [each for each in self._store.keys.shards() if not now_ms < looks_ms.get(each, 0) <= now_ms + IDLE_MS]
        have_owners = await self._store.run(calls.have_owners(due)) if due else []
        looks_ms |= {shard: now_ms + IDLE_MS for shard, has in zip(due, have_owners, strict=True) if has is False}
        return [shard for shard, has in zip(due, have_owners, strict=True) if has]

    async def _index_session(self, session_id: str, owner: str) -> StoreUnavailable | None:
        """Index the window of a session. Returns the error if Redis is unavailable; any other one is logged."""
        async with self._slots:
            try:
                if not self._stopping:
                    await OwnerIndex(self._store, owner).update(session_id, with_window=True)
            except StoreUnavailable as error:
                return error
            except RedismemError as error:
                log_not_updated(session_id, error)
        return None


def _next_since(since_ms: int, below_ms: int, page: Sequence[SessionEntry]) -> int:
    """Return the time from which to look next. A full page may have left out sessions that were active later."""
    if len(page) < _PAGE_COUNT:
        return below_ms
    return max(page[-1].active_ms, since_ms + 1)
