"""List the namespaces of a Redis server, by a scan of all keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from redismem.errors import RedismemError
from redismem.inspection.scans import LOOKED_AT_LIMIT, OnStep, scan_pages
from redismem.protocol import layout, scanning
from redismem.protocol.call import independent
from redismem.protocol.keys import Keys
from redismem.protocol.record.sweeps import LISTED
from redismem.store.store import Store

__all__ = ["LOOKED_AT_LIMIT", "NamespaceEntry", "Namespaces", "list_names", "list_namespaces"]


@dataclass(frozen=True, slots=True)
class NamespaceEntry:
    """A namespace. If its record in Redis cannot be read, `shards` or `layout` is `None` and `error` says why."""

    namespace: str
    shards: int | None
    layout: int | None
    sessions: int | None
    """The number of sessions listed as active, including expired sessions not yet swept."""
    records: int | None = None
    """The number of records listed, including expired ones not yet swept."""
    error: str = ""

    def document(self) -> dict[str, Any]:
        """Return the namespace as JSON values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Namespaces:
    """The namespaces found, by name. If the search stopped at its limit, `cursor` continues it; else it is `None`."""

    entries: Sequence[NamespaceEntry]
    looked_at_count: int
    cursor: int | None


async def list_namespaces(
    store: Store, *, cursor: int = 0, looked_at_limit: int = LOOKED_AT_LIMIT, on_step: OnStep | None = None
) -> Namespaces:
    """Return the namespaces in the Redis of this store. Raises NotAllowed, StoreUnavailable."""
    names, looked_at, next_cursor = await _scan_names(store, cursor, looked_at_limit, on_step)
    return Namespaces([await _namespace(store, name) for name in names], looked_at, next_cursor)


async def list_names(store: Store, looked_at_limit: int) -> tuple[list[str], bool]:
    """Return the names of the namespaces, sorted, and True if these are all.

    Raises NotAllowed, StoreUnavailable.
    """
    names, _, cursor = await _scan_names(store, 0, looked_at_limit, None)
    return names, cursor is None


async def _scan_names(
    store: Store, cursor: int, looked_at_limit: int, on_step: OnStep | None
) -> tuple[list[str], int, int | None]:
    """Return the names of namespaces, the number of scanned keys, and the cursor that continues, `None` at the end."""
    names: set[str] = set()
    looked_at = 0
    async for page in scan_pages(store, scanning.NAMESPACES, cursor, looked_at_limit, on_step):
        names |= scanning.namespaces_of(page.keys)
        cursor, looked_at = page.cursor, page.looked_at_count
    return sorted(names), looked_at, cursor or None


async def _namespace(store: Store, name: str) -> NamespaceEntry:
    try:
        record = Keys(name, 1).record
        command = ("HMGET", record, "shards", "layout")
        shards, version = await store.run(independent((command,), lambda answer: [_number(field) for field in answer]))
        if shards is None or not 1 <= shards <= 16_384:
            return NamespaceEntry(name, None, version, None, error="its record cannot be read")
        if version != layout.LAYOUT_VERSION:
            return NamespaceEntry(name, shards, version, None, error="of another layout")
        keys = Keys(name, shards)
        listed = ([shard.active for shard in keys.shards()], [prefix + LISTED for prefix in keys.prefixes()])
        sessions, records = [
            await store.run(independent(tuple(("ZCARD", index) for index in indexes), lambda *counts: sum(counts)))
            for indexes in listed
        ]
        return NamespaceEntry(name, shards, version, sessions, records)
    except RedismemError as refused:
        return NamespaceEntry(name, None, None, None, error=refused.text)


def _number(field: bytes | None) -> int | None:
    return int(field) if field is not None and field.isdigit() and len(field) < 10 else None
