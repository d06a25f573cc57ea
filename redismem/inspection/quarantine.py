"""Search a Redis server for sessions and records in quarantine and for namespaces, by a scan of all keys.

Neither has an index, since only operators look for them. So each search scans a limited number of keys; if it stops
at that limit, it returns a cursor that continues it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from redismem.errors import CorruptSession, RedismemError, SessionExists, SessionNotFound
from redismem.inspection import record_quarantine
from redismem.inspection.record_quarantine import QuarantinedRecord
from redismem.protocol import layout
from redismem.protocol.call import independent
from redismem.protocol.ids import now_ms, session_hash
from redismem.protocol.keys import Keys, SessionKeys
from redismem.protocol.owners import encode_owner, owner_mismatch
from redismem.protocol.record.keys import RecordKeys
from redismem.protocol.record.quarantine import scanned_copies
from redismem.protocol.record.sweeps import LISTED
from redismem.protocol.session import quarantine
from redismem.protocol.session.quarantine import Quarantined, QuarantineKey
from redismem.protocol.session.restore import Restoration, plan_restoration
from redismem.store.store import Store

__all__ = [
    "LOOKED_AT_LIMIT",
    "NamespaceEntry",
    "Namespaces",
    "QuarantinedSession",
    "Restoration",
    "Search",
    "drop",
    "find",
    "list_names",
    "list_namespaces",
    "list_quarantined",
    "read",
    "restore",
]

KEYS_A_STEP = 1_000
LOOKED_AT_LIMIT = 10_000_000
_TOGETHER_COUNT = 100
_SWAPS_LIMIT = 5

OnStep = Callable[[int], None]
"""A callback that receives the number of keys scanned so far, after each step of a search."""


@dataclass(frozen=True, slots=True)
class QuarantinedSession:
    """A session in quarantine. `log_id` is its name in the logs; `keys` are its remaining keys."""

    session_id: str
    log_id: str
    put_ms: int
    keys: Sequence[QuarantineKey]

    def document(self) -> dict[str, Any]:
        """Return the session as JSON values."""
        keys = [key._asdict() for key in self.keys]
        return {"session_id": self.session_id, "log": self.log_id, "put_ms": self.put_ms, "keys": keys}


@dataclass(frozen=True, slots=True)
class Search:
    """The result of a search. If it stopped at its limit, `cursor` continues it; `None` means that it is complete."""

    sessions: Sequence[QuarantinedSession]
    looked_at_count: int
    cursor: int | None
    records: Sequence[QuarantinedRecord] = ()


async def list_quarantined(
    store: Store,
    limit: int,
    *,
    cursor: int = 0,
    looked_at_limit: int = LOOKED_AT_LIMIT,
    session_id: str | None = None,
    on_step: OnStep | None = None,
) -> Search:
    """Return the sessions and records in quarantine, oldest first. The search ends once it has found `limit` of them.

    With `session_id`, returns only the sessions with that id.

    Raises:
        NotAllowed
        InvalidSessionId
        StoreUnavailable
    """
    found: set[Quarantined] = set()
    records: set[RecordKeys] = set()
    pattern = quarantine.pattern(store.keys, session_id)
    looked_at = 0
    while True:
        page = await store.run(quarantine.scan(pattern, cursor, KEYS_A_STEP))
        found |= {entry for entry in quarantine.sessions_of(page.keys) if session_id in (None, entry.session_id)}
        if session_id is None:
            records |= scanned_copies(store.keys, page.keys).keys()
        cursor, looked_at = page.cursor, looked_at + KEYS_A_STEP
        if on_step is not None:
            on_step(looked_at)
        if cursor == 0 or len(found) + len(records) >= limit or looked_at >= looked_at_limit:
            break
    entries = sorted(found, key=lambda entry: (entry.put_ms, entry.session_id))
    copies = await record_quarantine.describe(store, list(records))
    return Search(await _describe(store, entries), looked_at, cursor or None, copies)


async def _describe(store: Store, entries: Sequence[Quarantined]) -> list[QuarantinedSession]:
    """Return the quarantined sessions that still exist, with the type and size of each of their keys."""
    sessions = []
    for at in range(0, len(entries), _TOGETHER_COUNT):
        chunk = entries[at : at + _TOGETHER_COUNT]
        kinds = await store.run(quarantine.key_types(store.keys, chunk))
        call = quarantine.count_entries(store.keys, chunk, kinds)
        counts = await store.run(call) if call.commands else call.decode()
        sessions += [
            QuarantinedSession(entry.session_id, session_hash(entry.session_id), entry.put_ms, keys)
            for entry, keys in zip(chunk, counts, strict=True)
            if keys
        ]
    return sessions


async def find(store: Store, session_id: str, put_ms: int | None) -> QuarantinedSession:
    """Return the session put into quarantine at `put_ms`; `None` returns the only quarantined session with this id.

    Raises:
        SessionNotFound
        ValueError: `put_ms` is `None` and several sessions have this id.
        NotAllowed
        InvalidSessionId
        StoreUnavailable
    """
    if put_ms is not None:
        found = await _describe(store, [Quarantined(session_id, put_ms)])
    else:
        found = list((await list_quarantined(store, 1_000, session_id=session_id)).sessions)
    if not found:
        raise SessionNotFound(f"no such session is in quarantine in namespace {store.keys.namespace}", session_id)
    if len(found) > 1:
        times = ", ".join(str(session.put_ms) for session in found)
        raise ValueError(f"{len(found)} sessions of this name are in quarantine, put there at {times}: say which")
    return found[0]


async def read(store: Store, found: QuarantinedSession) -> Restoration:
    """Return the readable parts and the faults of a quarantined session. Raises UnsupportedFormat, StoreUnavailable."""
    keys = store.keys.session(found.session_id)
    return await _read(store, keys, quarantine.quarantine_keys(keys, found.put_ms), found.keys)


async def read_live(store: Store, session_id: str, owner: str | None = None) -> Restoration:
    """Return the readable parts and the faults of a live session. Never writes.

    With an `owner`, a session of another owner is refused, and so is one whose owner cannot be read.

    Raises SessionNotFound, OwnerMismatch, UnsupportedFormat, StoreUnavailable.
    """
    keys = store.keys.session(session_id)
    present = await store.run(quarantine.live_types(keys))
    if not present:
        raise SessionNotFound(f"there is no such session in namespace {store.keys.namespace}", session_id)
    found = await _read(store, keys, quarantine.live_keys(keys), present)
    if owner is not None and found.fields.get(layout.OWNER) != encode_owner(owner):
        raise owner_mismatch(session_id)
    return found


async def _read(
    store: Store, keys: SessionKeys, names: tuple[bytes, bytes, bytes], present: Sequence[QuarantineKey]
) -> Restoration:
    stored, elements = await store.run(quarantine.contents(keys, names, present))
    kinds = {key.name: key.type for key in present if not quarantine.is_sound(key)}
    return plan_restoration(stored, elements, kinds)


async def restore(store: Store, found: QuarantinedSession, *, salvage: bool = False, swap: bool = False) -> Restoration:
    """Bring a session back atomically, and return the restored parts.

    `salvage` restores the readable parts of a session with faults, and leaves its keys in quarantine. `swap` first
    puts the live session with this id into quarantine, if there is one.

    Raises:
        SessionExists: a live session has this id, and `swap` is not set.
        CorruptSession: the session has faults, and `salvage` is not set.
        SessionNotFound: the session is not in quarantine, or no part of it can be read.
        UnsupportedFormat
        StoreUnavailable
    """
    found = await find(store, found.session_id, found.put_ms)
    keys, restored = store.keys.session(found.session_id), await read(store, found)
    if restored.faults and not (restored.messages or restored.fields):
        # A block of originals may have been put there alone: a live session must not give way to an empty one.
        text = "nothing would come back from quarantine: no message, no summary and no value of the state is readable"
        raise SessionNotFound(text, found.session_id)
    if restored.faults and not salvage:
        raise CorruptSession("; ".join(dict.fromkeys(restored.faults)), found.session_id, restored.epoch)
    call = quarantine.restore(keys, found.put_ms, restored, store.settings, store.clock)
    for swap_count in range(_SWAPS_LIMIT):
        try:
            if await _is_back(store, found.session_id, restored.epoch):
                raise SessionExists("the session is live: it was restored before, or never removed", found.session_id)
            if await store.run(call):
                return restored
            raise SessionNotFound("the session is not in quarantine any more", found.session_id)
        except SessionExists:
            if not swap or swap_count + 1 == _SWAPS_LIMIT:
                raise
        epoch = await store.run(store.session_calls(found.session_id).epoch())
        put_ms = max(now_ms(), found.put_ms + 1)
        await store.run(quarantine.put(keys, epoch, put_ms, store.settings.idle_timeout_ms))
    raise AssertionError


async def _is_back(store: Store, session_id: str, epoch: str) -> bool:
    """True if the session is live in this epoch: the script would then report success, as for a repeated call."""
    try:
        return epoch != "" and await store.run(store.session_calls(session_id).epoch()) == epoch
    except CorruptSession:  # then the live session is another one
        return False


async def drop(store: Store, found: QuarantinedSession) -> int:
    """Delete a session from quarantine for good and return the number of its keys. Raises StoreUnavailable."""
    return await store.run(quarantine.drop(store.keys.session(found.session_id), found.put_ms))


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
    while True:
        page = await store.run(quarantine.scan(quarantine.RECORDS, cursor, KEYS_A_STEP))
        names |= quarantine.namespaces_of(page.keys)
        cursor, looked_at = page.cursor, looked_at + KEYS_A_STEP
        if on_step is not None:
            on_step(looked_at)
        if cursor == 0 or looked_at >= looked_at_limit:
            break
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
