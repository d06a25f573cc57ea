"""Find, read, restore and drop sessions and records in quarantine.

Quarantine has no index, since only operators look for copies. So a search scans all keys of the Redis server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from redismem.errors import CorruptSession, SessionExists, SessionNotFound
from redismem.inspection.scans import LOOKED_AT_LIMIT, OnStep, scan_pages
from redismem.protocol import layout, quarantine
from redismem.protocol.birth import read_birth
from redismem.protocol.ids import now_ms, session_hash
from redismem.protocol.owners import decode_owner, encode_owner, owner_mismatch
from redismem.protocol.quarantine import RECORD, SESSION, Copy, Origin, StoredKey
from redismem.protocol.record import quarantine as record_calls
from redismem.protocol.record.keys import DESCRIPTION, keys_in_shard
from redismem.protocol.session import quarantine as session_calls
from redismem.protocol.session.restore import Restoration, plan_restoration
from redismem.store.restoring import bring_in
from redismem.store.store import Store

__all__ = [
    "LOOKED_AT_LIMIT",
    "Quarantined",
    "Restoration",
    "Search",
    "drop",
    "find",
    "is_live",
    "list_quarantined",
    "read",
    "read_live",
    "restore",
]


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A session or record in quarantine. `log_id` is its name in the logs; `keys` are its remaining keys."""

    copy: Copy
    log_id: str
    keys: Sequence[StoredKey]

    @property
    def kind(self) -> str:
        """ "session" or "record"."""
        return self.copy.place.kind.name

    @property
    def name(self) -> str:
        """The id of the session or record."""
        return self.copy.place.name

    @property
    def put_ms(self) -> int:
        """The time of the quarantine, in milliseconds since 1970."""
        return self.copy.put_ms

    @property
    def owner(self) -> str | None:
        """The owner; `None` if there is none, or none is known."""
        return decode_owner(self.copy.owner)

    @property
    def tag(self) -> str:
        """The tag of a record; "" for a session."""
        return read_birth(self.copy.birth)[1]

    @property
    def faults(self) -> Sequence[str]:
        """The parts of a record that a restoration would miss; those of a session need `read`."""
        if self.kind != RECORD.name:
            return ()
        faults = [f"{key.name} is a {key.type}" for key in self.keys if not key.is_sound]
        faults += ["record is gone"] if all(key.name != "record" for key in self.keys) else []
        return faults if self.copy.knows_owner else [*faults, "owner is unknown"]

    def document(self) -> dict[str, Any]:
        """Return the session or record as JSON values."""
        told = {f"{self.kind}_id": self.name, "log": self.log_id, "put_ms": self.put_ms}
        if self.kind == RECORD.name:
            told |= {"tag": self.tag, "owner": self.owner, "faults": list(self.faults)}
        return {**told, "keys": [key._asdict() for key in self.keys]}


@dataclass(frozen=True, slots=True)
class Search:
    """The result of a search. If it stopped at its limit, `cursor` continues it; `None` means that it is complete."""

    found: Sequence[Quarantined]
    looked_at_count: int
    cursor: int | None

    @property
    def sessions(self) -> list[Quarantined]:
        """The sessions that were found."""
        return [each for each in self.found if each.kind == SESSION.name]

    @property
    def records(self) -> list[Quarantined]:
        """The records that were found."""
        return [each for each in self.found if each.kind == RECORD.name]


async def list_quarantined(
    store: Store,
    limit: int,
    *,
    cursor: int = 0,
    looked_at_limit: int = LOOKED_AT_LIMIT,
    name: str | None = None,
    on_step: OnStep | None = None,
) -> Search:
    """Return the sessions and records in quarantine, oldest first. The search ends once it has found `limit` of them.

    With `name`, returns only those with that id.

    Raises:
        NotAllowed
        StoreUnavailable
    """
    found: dict[Origin, set[int]] = {}
    looked_at, pattern = 0, quarantine.pattern(store.keys, name)
    async for page in scan_pages(store, pattern, cursor, looked_at_limit, on_step):
        for place, times_ms in quarantine.find_copies(store.keys, page.keys).items():
            if name in (None, place.name):
                found.setdefault(place, set()).update(times_ms)
        cursor, looked_at = page.cursor, page.looked_at_count
        if len(found) >= limit:
            break
    return Search(await _describe(store, found), looked_at, cursor or None)


async def _describe(store: Store, found: Mapping[Origin, set[int]]) -> list[Quarantined]:
    """Return the copies that still exist, with the type and size of each of their keys, oldest first."""
    described = []
    for place, times_ms in found.items():
        for copy in await store.run(quarantine.read_copies({place: times_ms})):
            seen = await store.run(quarantine.look(place, place.copies(copy.put_ms)))
            described += [Quarantined(copy, session_hash(place.name), seen.keys)] if seen.keys else []
    return sorted(described, key=lambda each: (each.put_ms, each.name))


async def find(store: Store, name: str, put_ms: int | None, *, is_record: bool = False) -> Quarantined:
    """Return the session or record put into quarantine at `put_ms`; `None` returns the only one with this id.

    Raises:
        SessionNotFound
        ValueError: several have this id, and this time if it is given.
        NotAllowed
        InvalidSessionId
        StoreUnavailable
    """
    kind = RECORD.name if is_record else SESSION.name
    place = None if is_record else quarantine.of_session(store.keys.session(name))
    if place is not None and put_ms is not None:
        listed: Sequence[Quarantined] = await _describe(store, {place: {put_ms}})
    else:
        listed = (await list_quarantined(store, 1_000, name=name)).found
    found = [each for each in listed if each.kind == kind and put_ms in (None, each.put_ms)]
    if not found:
        text = f"no such {kind} is in quarantine in namespace {store.keys.namespace}"
        raise SessionNotFound(text, None if is_record else name)
    if len(found) > 1:
        times = ", ".join(str(each.put_ms) for each in found)
        raise ValueError(f"{len(found)} {kind}s of this id are in quarantine, put there at {times}: say which")
    return found[0]


async def read(store: Store, found: Quarantined) -> Restoration:
    """Return the readable parts and the faults of a quarantined session, or the faults of a record.

    Raises UnsupportedFormat, StoreUnavailable.
    """
    place = found.copy.place
    if place.kind is SESSION:
        return await _read(store, place, place.copies(found.put_ms), found.keys)
    has_fields = any(key.name == "record" and key.is_sound for key in found.keys)
    return Restoration(found.faults, "", 1, (), (), 0, {DESCRIPTION: found.copy.birth} if has_fields else {}, ())


async def read_live(store: Store, session_id: str, owner: str | None = None) -> Restoration:
    """Return the readable parts and the faults of a live session. Never writes.

    With an `owner`, a session of another owner is refused, and so is one whose owner cannot be read.

    Raises SessionNotFound, OwnerMismatch, UnsupportedFormat, StoreUnavailable.
    """
    place = quarantine.of_session(store.keys.session(session_id))
    keys = (await store.run(quarantine.look(place, place.live()))).keys
    if not keys:
        raise SessionNotFound(f"there is no such session in namespace {store.keys.namespace}", session_id)
    found = await _read(store, place, place.live(), keys)
    if owner is not None and found.fields.get(layout.OWNER) != encode_owner(owner):
        raise owner_mismatch(session_id)
    return found


async def _read(store: Store, place: Origin, names: Mapping[str, bytes], keys: Sequence[StoredKey]) -> Restoration:
    stored, elements = await store.run(session_calls.contents(place.session_id, names, keys))
    return plan_restoration(stored, elements, {key.name: key.type for key in keys if not key.is_sound})


async def is_live(store: Store, found: Quarantined) -> bool:
    """True if a live session or record has the id of this one. Raises StoreUnavailable."""
    place = found.copy.place
    return bool((await store.run(quarantine.look(place, place.live()))).keys)


async def restore(store: Store, found: Quarantined, *, salvage: bool = False, swap: bool = False) -> Restoration:
    """Bring a session or record back atomically, and return the restored parts as `read` does.

    `salvage` restores the readable parts of one with faults: a session stays in quarantine as a whole, of a record the
    part that cannot be read. `swap` first puts the live one with this id into quarantine, if there is one.

    Raises:
        SessionExists: a live one has this id, and `swap` is not set.
        CorruptSession: it has faults, and `salvage` is not set.
        SessionNotFound: it is not in quarantine, or no part of it can be read.
        UnsupportedFormat
        StoreUnavailable
    """
    place, parts = found.copy.place, await read(store, found)
    if parts.faults and not (parts.messages or parts.fields):
        # A block of originals may have been put there alone: a live session must not give way to an empty one.
        raise SessionNotFound("nothing would come back from quarantine: no part of it is readable", place.session_id)
    if parts.faults and not salvage:
        raise CorruptSession("; ".join(dict.fromkeys(parts.faults)), place.session_id)
    try:
        if not await _restore(store, found, parts):
            raise SessionNotFound(f"the {found.kind} is not in quarantine any more", place.session_id)
        return parts
    except SessionExists:
        if not swap:
            raise
    await _set_live_aside(store, found.copy)
    return await restore(store, found, salvage=salvage)


async def _restore(store: Store, found: Quarantined, parts: Restoration) -> bool:
    place = found.copy.place
    if place.kind is RECORD:
        revival = record_calls.revive(found.copy)
    elif parts.faults:
        await bring_in(store, store.keys.session(found.name), parts)
        return True
    else:
        revival = session_calls.revive(parts, parts.epoch, await store.server_time_ms(), store.settings)
    return await store.run(quarantine.restore_copy(place, found.put_ms, revival))


async def _set_live_aside(store: Store, copy: Copy) -> None:
    """Put the session or record into quarantine that lives in place of this copy."""
    place = copy.place
    seen = await store.run(quarantine.look(place, place.live()))
    if place.session_id is not None:
        note = session_calls.describe_damage(seen, None, place.session_id)
    else:
        live = replace(keys_in_shard(place.shard, place.name), birth=copy.birth)
        note = record_calls.describe_damage(live, seen, forced=True)
    if note is not None:
        put_ms = max(now_ms(), copy.put_ms + 1)
        await store.run(quarantine.set_aside(place, put_ms, seen, note, store.settings.idle_timeout_ms))


async def drop(store: Store, found: Quarantined) -> bool:
    """Delete a session or record from quarantine for good. Returns False if it was gone. Raises StoreUnavailable."""
    return await store.run(quarantine.drop_copy(found.copy.place, found.put_ms))
