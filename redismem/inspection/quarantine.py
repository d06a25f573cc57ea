"""Sessions in quarantine, and the namespaces of a Redis: found by looking through all keys, a page at a time.

What is looked for has no index, as nobody looks for it but people. So every search has a bound, and says if it met it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from redismem.errors import CorruptSession, RedismemError, SessionExists, SessionNotFound
from redismem.protocol import layout
from redismem.protocol.call import independent
from redismem.protocol.ids import now_ms, session_hash
from redismem.protocol.keys import Keys
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
"""Told after each step of a search how many keys it has looked at by now."""


@dataclass(frozen=True, slots=True)
class QuarantinedSession:
    """One session in quarantine. `log_id` is what the logs call it; `keys` are those that are left of it."""

    session_id: str
    log_id: str
    put_ms: int
    keys: Sequence[QuarantineKey]

    def document(self) -> dict[str, Any]:
        """All of it as JSON values."""
        keys = [key._asdict() for key in self.keys]
        return {"session_id": self.session_id, "log": self.log_id, "put_ms": self.put_ms, "keys": keys}


@dataclass(frozen=True, slots=True)
class Search:
    """What a search has found. `cursor`: where to go on, if there were more keys than it was to look at; else None."""

    sessions: Sequence[QuarantinedSession]
    looked_at_count: int
    cursor: int | None


async def list_quarantined(
    store: Store,
    limit: int,
    *,
    cursor: int = 0,
    looked_at_limit: int = LOOKED_AT_LIMIT,
    session_id: str | None = None,
    on_step: OnStep | None = None,
) -> Search:
    """The sessions of the namespace that are in quarantine, or one session's, oldest first; at least `limit` if there
    are so many. Raises NotAllowed, InvalidSessionId, StoreUnavailable.
    """
    found: set[Quarantined] = set()
    pattern = quarantine.pattern(store.keys, session_id)
    looked_at = 0
    while True:
        page = await store.run(quarantine.scan(pattern, cursor, KEYS_A_STEP))
        found |= {each for each in quarantine.sessions_of(page.keys) if session_id in (None, each.session_id)}
        cursor, looked_at = page.cursor, looked_at + KEYS_A_STEP
        if on_step is not None:
            on_step(looked_at)
        if cursor == 0 or len(found) >= limit or looked_at >= looked_at_limit:
            break
    which = sorted(found, key=lambda each: (each.put_ms, each.session_id))
    return Search(await _described(store, which), looked_at, cursor or None)


async def _described(store: Store, which: Sequence[Quarantined]) -> list[QuarantinedSession]:
    """The sessions that are still there, with what each of their keys holds."""
    described = []
    for at in range(0, len(which), _TOGETHER_COUNT):
        some = which[at : at + _TOGETHER_COUNT]
        kinds = await store.run(quarantine.key_types(store.keys, some))
        call = quarantine.count_entries(store.keys, some, kinds)
        counted = await store.run(call) if call.commands else call.decode()
        described += [
            QuarantinedSession(each.session_id, session_hash(each.session_id), each.put_ms, keys)
            for each, keys in zip(some, counted, strict=True)
            if keys
        ]
    return described


async def find(store: Store, session_id: str, put_ms: int | None) -> QuarantinedSession:
    """A session in quarantine, by when it was put there; None: there is but one of this name.

    Raises SessionNotFound, NotAllowed, InvalidSessionId, StoreUnavailable; ValueError if there are several.
    """
    if put_ms is not None:
        found = await _described(store, [Quarantined(session_id, put_ms)])
    else:
        found = list((await list_quarantined(store, 1_000, session_id=session_id)).sessions)
    if not found:
        raise SessionNotFound(f"none of this name is in quarantine in namespace {store.keys.namespace}", session_id)
    if len(found) > 1:
        times = ", ".join(str(each.put_ms) for each in found)
        raise ValueError(f"{len(found)} of this name are in quarantine, put there at {times}: say which")
    return found[0]


async def read(store: Store, found: QuarantinedSession) -> Restoration:
    """What can be read of it, and what is wrong with it. Raises UnsupportedFormat, StoreUnavailable."""
    keys = store.keys.session(found.session_id)
    stored, elements = await store.run(quarantine.contents(keys, found.put_ms, found.keys))
    kinds = {key.name: key.type for key in found.keys if not quarantine.is_sound(key)}
    return plan_restoration(stored, elements, kinds)


async def restore(store: Store, found: QuarantinedSession, *, salvage: bool = False, swap: bool = False) -> Restoration:
    """Brings a session back, all or nothing; gives what came back.

    `salvage`: what can be read of one with faults; its keys stay in quarantine. `swap`: a session of this name that
    lives goes into quarantine first.

    Raises SessionExists, CorruptSession (it has faults), SessionNotFound (or nothing of it would come back),
    UnsupportedFormat, StoreUnavailable.
    """
    found = await find(store, found.session_id, found.put_ms)
    keys, wanted = store.keys.session(found.session_id), await read(store, found)
    if wanted.faults and not (wanted.messages or wanted.fields):
        # Such as a block of originals that was put there alone: no living session gives way to an empty one.
        text = "of what is in quarantine nothing would come back: no message, no summary and no value of the state"
        raise SessionNotFound(text, found.session_id)
    if wanted.faults and not salvage:
        raise CorruptSession("; ".join(dict.fromkeys(wanted.faults)), found.session_id, wanted.epoch)
    call = quarantine.restore(keys, found.put_ms, wanted, store.settings, store.clock)
    for swap_count in range(_SWAPS_LIMIT):
        try:
            if await _is_back(store, found.session_id, wanted.epoch):
                raise SessionExists("it lives already: it was restored before, or never gone", found.session_id)
            if await store.run(call):
                return wanted
            raise SessionNotFound("it is not in quarantine any more", found.session_id)
        except SessionExists:
            if not swap or swap_count + 1 == _SWAPS_LIMIT:
                raise
        calls = store.session_calls(found.session_id)
        put_ms = max(now_ms(), found.put_ms + 1)
        await store.run(calls.quarantine(await store.run(calls.epoch()), put_ms))
    raise AssertionError


async def _is_back(store: Store, session_id: str, epoch: str) -> bool:
    """Whether it lives in this epoch: the script would take that for its own work, of which no reply has told."""
    try:
        return epoch != "" and await store.run(store.session_calls(session_id).epoch()) == epoch
    except CorruptSession:  # then it is another
        return False


async def drop(store: Store, found: QuarantinedSession) -> int:
    """Removes a session from quarantine for good: how many keys there were. Raises StoreUnavailable."""
    return await store.run(quarantine.drop(store.keys.session(found.session_id), found.put_ms))


@dataclass(frozen=True, slots=True)
class NamespaceEntry:
    """A namespace of this Redis. Its record tells shards and layout: None if it cannot be read; `error` says why."""

    namespace: str
    shards: int | None
    layout: int | None
    sessions: int | None
    """Sessions that are listed as active, expired ones that were not swept yet included."""
    error: str = ""

    def document(self) -> dict[str, Any]:
        """All of it as JSON values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Namespaces:
    """The namespaces that were found, by name; `cursor`: as in a Search."""

    entries: Sequence[NamespaceEntry]
    looked_at_count: int
    cursor: int | None


async def list_namespaces(
    store: Store, *, cursor: int = 0, looked_at_limit: int = LOOKED_AT_LIMIT, on_step: OnStep | None = None
) -> Namespaces:
    """The namespaces of the Redis of this store. Raises NotAllowed, StoreUnavailable."""
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
    return Namespaces([await _namespace(store, name) for name in sorted(names)], looked_at, cursor or None)


async def _namespace(store: Store, name: str) -> NamespaceEntry:
    try:
        record = Keys(name, 1).record
        command = ("HMGET", record, "shards", "layout")
        shards, version = await store.run(independent((command,), lambda answer: [_number(field) for field in answer]))
        if shards is None or not 1 <= shards <= 16_384:
            return NamespaceEntry(name, None, version, None, "its record cannot be read")
        if version != layout.LAYOUT_VERSION:
            return NamespaceEntry(name, shards, version, None, "of another layout")
        commands = tuple(("ZCARD", shard.active) for shard in Keys(name, shards).shards())
        return NamespaceEntry(name, shards, version, await store.run(independent(commands, lambda *found: sum(found))))
    except RedismemError as refused:
        return NamespaceEntry(name, None, None, None, refused.text)


def _number(field: bytes | None) -> int | None:
    return int(field) if field is not None and field.isdigit() and len(field) < 10 else None
