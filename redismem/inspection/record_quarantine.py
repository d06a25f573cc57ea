"""Find, restore and drop records in quarantine. `inspection.quarantine` lists them with the sessions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from redismem.errors import CorruptSession, SessionExists, SessionNotFound
from redismem.protocol.ids import now_ms, session_hash
from redismem.protocol.owners import decode_owner
from redismem.protocol.record import quarantine
from redismem.protocol.record.keys import RecordKeys, read_birth
from redismem.protocol.record.quarantine import Copy, CopyKey
from redismem.protocol.session.quarantine import scan
from redismem.store.store import Store

__all__ = ["QuarantinedRecord", "describe", "drop", "find", "restore"]

_KEYS_A_STEP = 1_000
_TOGETHER_COUNT = 100
_SWAPS_LIMIT = 5


@dataclass(frozen=True, slots=True)
class QuarantinedRecord:
    """A record in quarantine. `log_id` is its name in the logs; `keys` are its remaining keys."""

    record_id: str
    log_id: str
    put_ms: int
    tag: str
    owner: str | None
    faults: Sequence[str]
    """The parts that a restoration would miss."""
    keys: Sequence[CopyKey]
    copy: Copy

    def document(self) -> dict[str, Any]:
        """Return the record as JSON values."""
        told = {name: getattr(self, name) for name in ("record_id", "put_ms", "tag", "owner")}
        return {
            **told,
            "log": self.log_id,
            "faults": list(self.faults),
            "keys": [key._asdict() for key in self.keys],
        }


async def describe(store: Store, records: Sequence[RecordKeys]) -> list[QuarantinedRecord]:
    """Return the copies of these records that still exist, with type and size of their keys, oldest first."""
    found = []
    for at in range(0, len(records), _TOGETHER_COUNT):
        copies = await store.run(quarantine.copies_of(records[at : at + _TOGETHER_COUNT]))
        if not copies:
            continue
        kinds = await store.run(quarantine.key_types(copies))
        call = quarantine.count_entries(copies, kinds)
        counts = await store.run(call) if call.commands else call.decode()
        found += [_described(copy, keys) for copy, keys in zip(copies, counts, strict=True) if keys]
    return sorted(found, key=lambda record: (record.put_ms, record.record_id))


def _described(copy: Copy, keys: Sequence[CopyKey]) -> QuarantinedRecord:
    faults = [f"{key.name} is a {key.type}" for key in keys if not quarantine.is_sound(key)]
    if all(key.name != "record" for key in keys):
        faults.append("record is gone")
    if not copy.knows_owner:
        faults.append("owner is unknown")
    name, tag = copy.keys.id, read_birth(copy.birth)[1]
    return QuarantinedRecord(name, session_hash(name), copy.put_ms, tag, decode_owner(copy.owner), faults, keys, copy)


async def find(store: Store, record_id: str, put_ms: int | None) -> QuarantinedRecord:
    """Return the record put into quarantine at `put_ms`; `None` returns the only quarantined record with this id.

    Scans all keys of the Redis, because the id alone does not tell the shard.

    Raises:
        SessionNotFound: No such record is in quarantine.
        ValueError: Several records have this id, or this id and `put_ms`.
        NotAllowed
        StoreUnavailable
    """
    indexes: set[RecordKeys] = set()
    cursor, is_first = 0, True
    while cursor or is_first:
        page = await store.run(scan(quarantine.pattern(store.keys, record_id), cursor, _KEYS_A_STEP))
        indexes |= quarantine.scanned_copies(store.keys, page.keys).keys()
        cursor, is_first = page.cursor, False
    found = [each for each in await describe(store, list(indexes)) if put_ms in (None, each.put_ms)]
    if not found:
        raise SessionNotFound(f"no such record is in quarantine in namespace {store.keys.namespace}")
    if len(found) > 1:
        times = ", ".join(str(record.put_ms) for record in found)
        raise ValueError(f"{len(found)} records of this id are in quarantine, put there at {times}: say which")
    return found[0]


async def restore(store: Store, found: QuarantinedRecord, *, salvage: bool = False, swap: bool = False) -> None:
    """Bring a record back atomically.

    `salvage` restores the fields of a record with faults; a part that cannot be read stays in quarantine. `swap` first
    puts the live record with this id into quarantine, if there is one.

    Raises:
        SessionExists: A live record has this id, and `swap` is not set.
        CorruptSession: The record has faults, and `salvage` is not set.
        SessionNotFound: The record is not in quarantine, or no field of it can be read.
        UnsupportedFormat
        StoreUnavailable
    """
    if all(key.name != "record" or not quarantine.is_sound(key) for key in found.keys):
        raise SessionNotFound("nothing would come back from quarantine: no field is readable")
    if found.faults and not salvage:
        raise CorruptSession("; ".join(found.faults))
    call = quarantine.restore(found.copy)
    for swap_count in range(_SWAPS_LIMIT):
        try:
            if await store.run(call):
                return
            raise SessionNotFound("the record is not in quarantine any more")
        except SessionExists:
            if not swap or swap_count + 1 == _SWAPS_LIMIT:
                raise
        live = replace(found.copy.keys, birth=found.copy.birth)
        put_ms = max(now_ms(), found.put_ms + 1)
        await store.run(quarantine.quarantine(live, put_ms, store.settings.idle_timeout_ms, forced=True))
    raise AssertionError


async def drop(store: Store, found: QuarantinedRecord) -> bool:
    """Delete a record from quarantine for good. Returns False if it was gone. Raises StoreUnavailable."""
    return await store.run(quarantine.drop(found.copy.keys, found.put_ms))
