"""Remove expired records from the indexes, and what policies of records do not keep, a few at a time."""

from __future__ import annotations

from collections.abc import Sequence

from redismem.protocol.birth import decode_id
from redismem.protocol.record import sweeps
from redismem.protocol.record.keys import KEEP_EXPIRY, keys_in_shard
from redismem.record.record import Record
from redismem.record.trimming import apply_policy
from redismem.store.store import Store

_CHUNK_COUNT = 100


class RecordSweep:
    """The sweep of the records: each round goes on in each shard where the previous one stopped."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._cursors = sweeps.indexes_of(store.keys)

    async def sweep(self) -> tuple[int, int]:
        """Check a few records of every shard. Return the numbers of records removed from the indexes and repaired."""
        scanned = await self._store.run(sweeps.scan_step(self._cursors, _CHUNK_COUNT))
        self._cursors = scanned.cursors
        removed = repaired = 0
        for shard, members in scanned.members.items():
            for at in range(0, len(members), _CHUNK_COUNT):
                counts = await self._store.run(sweeps.sweep(shard, members[at : at + _CHUNK_COUNT]))
                removed, repaired = removed + counts[0], repaired + counts[1]
                await self._retain(shard, members[at : at + _CHUNK_COUNT])
        return removed, repaired

    async def _retain(self, shard: bytes, members: Sequence[bytes]) -> None:
        """Apply the policies of a few records, one record after another."""
        are_hashes = await self._store.run(sweeps.types(shard, members))
        hashes = [member for member, is_hash in zip(members, are_hashes, strict=True) if is_hash]
        policies = await self._store.run(sweeps.policies(shard, hashes)) if hashes else []
        for member, policy in zip(hashes, policies, strict=True):
            record_id = decode_id(member)
            if policy is not None and record_id is not None:
                keys = keys_in_shard(shard, record_id, ttl_ms=KEEP_EXPIRY)
                await apply_policy(self._store, Record(self._store, keys), policy, await self._store.server_time_ms())
