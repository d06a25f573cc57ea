"""Remove the records of one person: those of an owner, or those whose ids begin alike."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from redismem.protocol.namespace.traces import Wanted
from redismem.protocol.owners import is_owner_field
from redismem.protocol.record import calls, traces
from redismem.protocol.record.keys import RecordKeys, decode_description
from redismem.store.store import Store

EVENTS_PREFIX = "mcp-events:"
"""The beginning of the ids of the records that have events of MCP sessions: copies of what tools have returned."""
_PAGE_COUNT = 500


class RecordErasure:
    """One run: `count` is the number of removed records so far."""

    def __init__(self, store: Store, wanted: Wanted) -> None:
        self._store = store
        self._wanted = wanted
        self.count = 0
        self.unattributed: set[bytes] = set()
        """The keys of records whose owner cannot be read."""
        self.has_ownerless = False
        """True if a scan found a record without an owner."""

    def begin_round(self) -> None:
        """Drop what earlier scans noted."""
        self.unattributed.clear()
        self.has_ownerless = False

    async def remove_indexed(self) -> int:
        """Remove the records that the indexes name, and return their number, expired ones included."""
        removed = 0
        async for page in indexed_records(self._store, self._wanted):
            removed += await self._remove(page)
        return removed

    async def remove_scanned(self, scanned: Sequence[bytes]) -> int:
        """Remove the records that scanned keys belong to, and return their number."""
        found = traces.records_of(self._store.keys, scanned, self._wanted)
        return await self._remove(found, notes_unreadable=True) if found else 0

    async def _remove(self, records: Sequence[RecordKeys], *, notes_unreadable: bool = False) -> int:
        kinds = await self._store.run(traces.key_types(records))
        hashes = [keys for keys, kind in zip(records, kinds, strict=True) if kind == b"hash"]
        fields = await self._store.run(traces.descriptions(hashes)) if hashes else []
        described = {keys.record: field for keys, field in zip(hashes, fields, strict=True)}
        removed = 0
        for keys, kind in zip(records, kinds, strict=True):
            field = described.get(keys.record)
            about = decode_description(field)
            if self._wanted.owner is not None and kind != b"none":
                if about is None or (about.owner is not None and not is_owner_field(about.owner)):
                    self.unattributed |= {keys.record} if notes_unreadable else set()
                    continue
                if about.owner is None and not keys.member.startswith(EVENTS_PREFIX.encode()):
                    self.has_ownerless |= notes_unreadable
                if not self._wanted.is_owner(about.owner):
                    continue
            # Another record that was begun in its place stays. If it has expired, its index entries go.
            self.count += await self._store.run(calls.clear_life(keys, calls.life_of(kind, field)))
            removed += 1
        return removed


async def indexed_records(store: Store, wanted: Wanted) -> AsyncIterator[list[RecordKeys]]:
    """Yield the records that the indexes name, in pages. Raises StoreUnavailable."""
    for shard in store.keys.prefixes():
        after, has_more = b"", True
        while has_more:
            listed = await store.run(traces.indexed_records(wanted, shard, after, _PAGE_COUNT))
            has_more = listed.has_more
            if listed.records:
                after = listed.records[-1].member
            for at in range(0, len(listed.records), _PAGE_COUNT):
                yield listed.records[at : at + _PAGE_COUNT]
