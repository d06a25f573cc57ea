"""Forget a person: remove all sessions and records of an owner, or whose ids begin alike, and prove it.

Each round finds sessions and records by the indexes, then scans all keys, and removes what it finds. A scan that finds
nothing any more is the proof, if the indexes then name none that was begun or restored meanwhile. Nothing records the
progress: a repeated call finds what is left. The proof is about sessions, records and copies in quarantine. Of projects
and rate limits goes what an owner or a session leads to, and the report names what was not searched.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import replace

from redismem.errors import ForgetIncomplete, ForgottenSessions, RedismemError
from redismem.events import facts
from redismem.project.forgetting import ProjectErasure
from redismem.protocol import quarantine
from redismem.protocol.keys import is_session_id
from redismem.protocol.namespace import traces
from redismem.protocol.namespace.traces import Wanted
from redismem.protocol.owners import is_owner_field
from redismem.protocol.quarantine import Copy
from redismem.protocol.session.clear import clear_life
from redismem.recall.cache import NO_CACHE, RecallCache
from redismem.record.erasure import EVENTS_PREFIX, RecordErasure, indexed_records
from redismem.store.store import Store

__all__ = ["OnProgress", "Wanted", "count_records", "count_sessions", "forget"]

log = logging.getLogger("redismem")

_PAGE_COUNT = 500
_ROUNDS_LIMIT = 4
_OWNERLESS = "sessions and records without an owner"
_ITEMS = "texts of project items, and records of project conversations whose messages had no owner or had gone before"
_RATES = "other names of rate limits"

OnProgress = Callable[[ForgottenSessions], None]
"""A plain function that receives what was removed so far, after each page of sessions or keys."""


async def forget(
    store: Store, wanted: Wanted, recall_cache: RecallCache = NO_CACHE, on_progress: OnProgress | None = None
) -> ForgottenSessions:
    """Remove them with everything that this process and Redis store of them, and return the proof.

    Raises:
        ForgetIncomplete: Redis failed meanwhile, or other processes kept writing such sessions.
    """
    erasure = _Erasure(store, wanted, recall_cache, on_progress or (lambda _: None))
    try:
        return await erasure.run()
    except RedismemError as failure:
        if isinstance(failure, ForgetIncomplete):
            raise
        raise ForgetIncomplete(f"stopped: {failure.text}", forgotten=erasure.done) from failure
    finally:
        recall_cache.clear()


async def count_sessions(store: Store, wanted: Wanted) -> int:
    """Return the number of sessions that the indexes name, expired ones included. Raises StoreUnavailable."""
    return len({session_id async for session_id in _indexed(store, wanted)})


async def count_records(store: Store, wanted: Wanted) -> int:
    """Return the number of records that the indexes name, expired ones included. Raises StoreUnavailable."""
    return sum([len(page) async for page in indexed_records(store, wanted)])


class _Erasure:
    """One run: `done` is what it has removed so far."""

    def __init__(self, store: Store, wanted: Wanted, recall_cache: RecallCache, on_progress: OnProgress) -> None:
        self.done = ForgottenSessions()
        self._store = store
        self._wanted = wanted
        self._recall_cache = recall_cache
        self._on_progress = on_progress
        self._unattributed: set[str | Copy] = set()
        self._not_searched: set[str] = set()
        self._records = RecordErasure(store, wanted)
        self._projects = ProjectErasure(store, wanted.owner)

    async def run(self) -> ForgottenSessions:
        """Remove until neither a scan nor, after it, the indexes name anything.

        A key that is created or renamed meanwhile may be in a place that the scan has passed.
        """
        await self._remove_local()
        for _ in range(_ROUNDS_LIMIT):
            self._unattributed.clear()
            self._not_searched.clear()
            self._records.begin_round()
            await self._remove_indexed()
            if not await self._remove_scanned() and not await self._remove_indexed():
                # Any of them may quote a removed session. Without them, a broken stream cannot be resumed.
                await RecordErasure(self._store, Wanted(prefix=EVENTS_PREFIX)).remove_indexed()
                proven_ms = await self._store.server_time_ms()
                await self._projects.remove_named()
                count = self.done.session_count
                log.info(
                    "forgot %d sessions of one owner or prefix", count, extra=facts(op="clear", session_count=count)
                )
                return self._report(proven_ms)
        raise ForgetIncomplete("other processes kept writing such sessions: stop them first", forgotten=self.done)

    def _report(self, proven_ms: int) -> ForgottenSessions:
        self._note_others()
        ownerless = {_OWNERLESS} if self._records.has_ownerless else set()
        items = {_ITEMS} if self._projects.has_projects else set()
        return replace(
            self.done,
            proven_ms=proven_ms,
            unattributed_count=len(self._unattributed) + len(self._records.unattributed),
            not_searched=tuple(sorted(self._not_searched | ownerless | items)),
        )

    async def _remove_local(self) -> None:
        """Drop cached contexts of this process, and clear sessions whose backlog is not replayed yet."""
        fallback, wanted = self._store.fallback, self._wanted
        if fallback is not None:
            held = fallback.forget(lambda name, owner: wanted.is_prefix_of(name) or wanted.is_owner(owner))
            for session_id in held:
                await self._remove_session(session_id)

    async def _remove_indexed(self) -> int:
        """Remove the sessions that the indexes name, and return their number, expired ones included."""
        count = 0
        async for session_id in _indexed(self._store, self._wanted):
            count += is_session_id(session_id) and await self._remove_session(session_id)
            self._on_progress(self.done)
        count += await self._records.remove_indexed()
        self._note_others()
        return count

    def _note_others(self) -> None:
        left = tuple(sorted(self._projects.left))
        self.done = replace(
            self.done, record_count=self._records.count, item_count=self._projects.count, left_items=left
        )
        self._on_progress(self.done)

    async def _remove_scanned(self) -> int:
        """Remove what a scan of all keys finds, and return the number of traces."""
        keys, count, cursor, is_first = self._store.keys, 0, 0, True
        while cursor or is_first:
            page = await self._store.run(traces.scan(self._wanted, keys, cursor, _PAGE_COUNT))
            cursor, is_first = page.cursor, False
            states = traces.sessions_of(keys, page.keys)
            found: Collection[str] = states
            if self._wanted.owner is not None and states:
                found = await self._attribute(states)
            for session_id in found:
                count += await self._remove_session(session_id)
            count += await self._records.remove_scanned(page.keys) + await self._remove_copies(page.keys)
            await self._remove_rates(page.keys)
            self._note_others()
        return count

    async def _remove_rates(self, scanned: Sequence[bytes]) -> None:
        """Remove the rate limits about the person. They do not count as traces: running processes take permits."""
        found = traces.rates_of(self._store.keys, scanned)
        wanted = [key for name, key in found.items() if self._wanted.is_in_rate(name)]
        if len(wanted) < len(found):
            self._not_searched.add(_RATES)
        count = await self._store.run(traces.remove_keys(wanted)) if wanted else 0
        self.done = replace(self.done, rate_count=self.done.rate_count + count)

    async def _attribute(self, states: Mapping[str, bytes]) -> list[str]:
        """Return the sessions that belong to the owner, and note those whose owner cannot be read."""
        store = self._store
        types = await store.run(traces.key_types(list(states.values())))
        kinds = dict(zip(states, types, strict=True))
        hashes = [session_id for session_id, kind in kinds.items() if kind == b"hash"]
        fields = await store.run(traces.owner_fields([states[each] for each in hashes])) if hashes else []
        owners = {session_id: field for session_id, field in zip(hashes, fields, strict=True) if field is not None}
        if len(owners) < len(hashes):
            self._not_searched.add(_OWNERLESS)
        damaged = {session_id for session_id, field in owners.items() if not is_owner_field(field)}
        self._unattributed |= damaged | {each for each, kind in kinds.items() if kind not in (b"hash", b"none")}
        return [session_id for session_id, field in owners.items() if self._wanted.is_owner(field)]

    async def _remove_copies(self, scanned: Sequence[bytes]) -> int:
        """Remove the copies in quarantine that scanned keys belong to, and return their number."""
        store, wanted = self._store, self._wanted
        found = {
            place: times_ms
            for place, times_ms in quarantine.find_copies(store.keys, scanned).items()
            if wanted.prefix is None or wanted.is_prefix_of(place.name)
        }
        count = 0
        for copy in await store.run(quarantine.read_copies(found)) if found else []:
            if wanted.owner is not None and not copy.knows_owner:
                self._unattributed |= {copy} if copy.put_ms in found[copy.place] else set()
            elif wanted.owner is None or wanted.is_owner(copy.owner):
                count += await store.run(quarantine.drop_copy(copy.place, copy.put_ms))
        self.done = replace(self.done, quarantined_count=self.done.quarantined_count + count)
        return count

    async def _remove_session(self, session_id: str) -> bool:
        """Remove a session, or what is left of one. False if it belongs to another owner."""
        store, wanted = self._store, self._wanted
        call = traces.owner_and_epoch(store.keys.session(session_id))
        owner, epoch = await store.run(call, quarantine=True)
        if wanted.owner is not None and (owner or epoch) and not wanted.is_owner(owner):
            return False
        if epoch:
            await self._projects.remove_conversation(session_id)
        self._recall_cache.forget(session_id)
        await store.run(clear_life(store.keys.session(session_id), epoch), quarantine=True)
        if epoch:
            self.done = replace(self.done, session_count=self.done.session_count + 1)
        return True


async def _indexed(store: Store, wanted: Wanted) -> AsyncIterator[str]:
    """Yield each session that the indexes name once. The caller may remove it meanwhile."""
    looked_at: set[str] = set()
    async for page in _owned_pages(store, wanted, looked_at) if wanted.prefix is None else _named_pages(store, wanted):
        for session_id in page:
            if session_id not in looked_at:
                looked_at.add(session_id)
                yield session_id


async def _owned_pages(store: Store, wanted: Wanted, looked_at: set[str]) -> AsyncIterator[list[str]]:
    assert wanted.owner is not None
    while True:
        call = traces.owned_sessions(store.keys, wanted.owner, _PAGE_COUNT + len(looked_at))
        page = [session_id for session_id in await store.run(call) if session_id not in looked_at]
        if not page:
            return
        yield page


async def _named_pages(store: Store, wanted: Wanted) -> AsyncIterator[list[str]]:
    assert wanted.prefix is not None
    for index in (index for shard in store.keys.shards() for index in (shard.active, shard.owners, shard.turns)):
        cursor, is_first = 0, True
        while cursor or is_first:
            cursor, page = await store.run(traces.named_sessions(index, wanted.prefix, cursor, _PAGE_COUNT))
            is_first = False
            yield page
