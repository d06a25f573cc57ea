"""Remove expired records from the indexes, a few at a time."""

from __future__ import annotations

from redismem.protocol.record import sweeps
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
        return removed, repaired
