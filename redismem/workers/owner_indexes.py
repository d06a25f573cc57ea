"""Check the indexes of owners that are due: after a change that may have ended halfway, and when a session expires."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from redismem.errors import RedismemError
from redismem.events import Op, facts
from redismem.protocol.keys import is_session_id
from redismem.protocol.owner import calls
from redismem.protocol.owner.entries import ANNOUNCED_PART, PART_COUNT, VERSION_FIELD, Entry, decode_name, newest
from redismem.recall.owner.cached import BLOCKS_LIMIT, decode_all
from redismem.recall.owner.upkeep import OwnerIndex
from redismem.store.store import Store
from redismem.workers.failures import log_failure

_DUE_COUNT = 16
_ROUNDS_LIMIT = 16
_CONCURRENCY = 8
_AFTER_MS = 1_000


class OwnerChecks:
    """The checks of a namespace's indexes of owners."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._slots = asyncio.Semaphore(_CONCURRENCY)
        # By the beginning of a shard's keys: the time before which no index of the shard can be due.
        self._looks_ms: dict[bytes, int] = {}
        self._stopping = False

    def stop(self) -> None:
        """Start no further check."""
        self._stopping = True

    async def check_due(self) -> int:
        """Check the indexes that are due, at most 256 per shard, and return how many were checked.

        Raises:
            StoreUnavailable: Redis does not answer before the deadline.
        """
        return await self._store.observe(Op.OWNERS_ROUND, self._check_due())

    async def _check_due(self) -> int:
        checked = 0
        for _ in range(_ROUNDS_LIMIT):
            now_ms = await self._store.server_time_ms()
            due = await self._load_due(now_ms)
            done = await asyncio.gather(*(self._check_logged(owner, due_ms, now_ms) for owner, due_ms in due))
            checked += sum(done)
            if self._stopping or not any(done):
                break
        return checked

    async def _load_due(self, now_ms: int) -> list[tuple[str, int]]:
        """Return the owners whose index is due, without reading shards in which no index can be due yet.

        A change makes an index due a minute later. So a shard is read again at its first known due time, or after a
        minute. Only the end of a check sets an earlier time, and then the shard is read again at once.
        """
        looks_ms, latest_ms = self._looks_ms, now_ms + calls.SOON_MS
        # A clock that was set back lets a look seem more than a minute away.
        prefixes = [each for each in self._store.keys.prefixes() if not now_ms < looks_ms.get(each, 0) <= latest_ms]
        if not prefixes:
            return []
        due: list[tuple[str, int]] = []
        soonest = await self._store.run(calls.due_indexes(prefixes, latest_ms, _DUE_COUNT))
        for prefix, owners in zip(prefixes, soonest, strict=True):
            if owners is not None:
                looks_ms[prefix] = min((due_ms for _, due_ms in owners), default=latest_ms)
                due += [pair for pair in owners if pair[1] <= now_ms]
        return due

    async def _check_logged(self, owner: str, due_ms: int, now_ms: int) -> bool:
        async with self._slots:
            if self._stopping or not is_session_id(owner):
                return False
            try:
                await self.check(owner, due_ms, now_ms)
            except RedismemError as error:  # of one owner: it stays due
                log_failure("the index of an owner was not checked", error, facts(op="owner_index"))
                return False
            return True

    async def check(self, owner: str, due_ms: int, now_ms: int) -> None:
        """Make the index equal to the owner's sessions, drop the oldest entries over the limit, and set the next check.

        Args:
            owner: The owner.
            due_ms: The time at which the check was due.
            now_ms: The present time.
        """
        store, index = self._store, OwnerIndex(self._store, owner)
        keys = calls.owner_keys(store.keys, owner)
        stored = await store.run(calls.read_index(keys))
        readable = [(name, entry) for name, entry in decode_all(stored) if is_session_id(_session_of(name))]
        expires_ms = 0
        next_ms = now_ms + calls.LONGEST_MS
        for session_id, last in _newest_parts(readable).items():
            described = await store.run(calls.describe(store.keys.session(session_id)))
            if described.owner == owner:
                expires_ms = max(expires_ms, described.expires_ms)
                next_ms = min(next_ms, described.expires_ms + _AFTER_MS)
            if (described.owner, described.epoch, described.edits) != (owner, last.epoch, last.edits) or (
                described.first_seq != last.first_seq
            ):
                await index.update(session_id)
        kept = {name for name, _ in newest(readable, BLOCKS_LIMIT)}
        drops = [name for name in stored if name not in kept and name != VERSION_FIELD]
        await store.run(calls.change(keys, store.clock, {}, drops, expires_ms, (due_ms, max(next_ms, now_ms + 1))))


def _session_of(name: bytes) -> str:
    decoded = decode_name(name)
    return "" if decoded is None else decoded[1]


def _newest_parts(entries: Sequence[tuple[bytes, Entry]]) -> dict[str, Entry]:
    """Return the entry with the newest blocks of each session, or the one that announces a summary."""
    by_block = sorted(entries, key=lambda pair: max(pair[1].signatures, default=ANNOUNCED_PART * PART_COUNT))
    return {_session_of(name): entry for name, entry in by_block}
