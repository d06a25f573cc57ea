"""List the dictionaries of a namespace, and drop one that no block names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from redismem.inspection.scans import scan_pages
from redismem.originals.dictionaries import SETTLED_MS, Dictionary
from redismem.protocol import quarantine
from redismem.protocol.call import Command, independent
from redismem.protocol.namespace import dictionaries
from redismem.store.store import Store
from redismem.store.unused_dictionaries import drop_one, find_named, named_by

RETIRED_MS = 3_600_000
"""The time from which a retired dictionary may be dropped: a commit that uses it may still be on its way before."""


class DictionaryState(StrEnum):
    """The use of a dictionary for new blocks."""

    NEW = "new"
    """Too young: new blocks use it a minute after its training."""
    CURRENT = "current"
    PREVIOUS = "previous"
    """A newer dictionary is current."""
    RETIRED = "retired"
    """No block named it at the last search."""
    UNREADABLE = "unreadable"


class DropOutcome(StrEnum):
    """The outcome of an attempt to drop a dictionary. Only `DROPPED` deletes it."""

    DROPPED = "dropped"
    MISSING = "missing"
    NAMED = "named"
    """Blocks of a session name it."""
    QUARANTINED = "quarantined"
    """Blocks in quarantine name it."""
    RETIRED = "retired"
    """No block names it, but it was retired less than RETIRED_MS ago, or only now."""


@dataclass(frozen=True, slots=True)
class DictionaryEntry:
    """A dictionary of a namespace. Size and time of training are `None` if it is unreadable."""

    version: int
    state: DictionaryState
    created_ms: int | None
    size_bytes: int | None
    unused_since_ms: int | None
    """The time of the search that retired it, in ms since 1970; `None` if it is not retired."""

    def document(self) -> dict[str, Any]:
        """Return the dictionary as JSON values."""
        return asdict(self)


async def list_dictionaries(store: Store, now_ms: int) -> list[DictionaryEntry]:
    """Return the dictionaries of the namespace, oldest first. Raises StoreUnavailable."""
    versions = (await store.run(dictionaries.listing(store.keys))).versions
    if not versions:
        return []
    loaded = await store.run(dictionaries.read(store.keys, versions))
    unused = (await store.run(dictionaries.searches(store.keys, versions))).unused_since_ms
    settled = {each.version for each in loaded.values() if now_ms - each.created_ms >= SETTLED_MS} - unused.keys()
    current = max(settled, default=0)
    entries = []
    for version in versions:
        dictionary = loaded.get(version)
        if dictionary is None:
            entries.append(DictionaryEntry(version, DictionaryState.UNREADABLE, None, None, unused.get(version)))
            continue
        state = DictionaryState.NEW
        if version in unused:
            state = DictionaryState.RETIRED
        elif version in settled:
            state = DictionaryState.CURRENT if version == current else DictionaryState.PREVIOUS
        size_bytes = len(dictionary.content)
        entries.append(DictionaryEntry(version, state, dictionary.created_ms, size_bytes, unused.get(version)))
    return entries


async def drop(store: Store, version: int, now_ms: int, on_step: Callable[[int], None] | None = None) -> DropOutcome:
    """Drop a dictionary if no block names it, and return the outcome. The first attempt only retires it.

    `on_step` receives the number of keys scanned so far in the search for quarantined blocks. Raises NotAllowed,
    StoreUnavailable.
    """
    keys = store.keys
    if version not in (await store.run(dictionaries.listing(keys))).versions:
        return DropOutcome.MISSING
    if await find_named(store, {version}):
        return DropOutcome.NAMED
    if await _is_in_quarantine(store, version, on_step):
        return DropOutcome.QUARANTINED
    await store.run(dictionaries.retire(keys, version, now_ms))
    since_ms = (await store.run(dictionaries.searches(keys, [version]))).unused_since_ms.get(version, now_ms)
    if now_ms - since_ms < RETIRED_MS:
        return DropOutcome.RETIRED
    await drop_one(store, version, now_ms)
    return DropOutcome.DROPPED


async def _is_in_quarantine(store: Store, version: int, on_step: Callable[[int], None] | None) -> bool:
    """True if a block in quarantine names the dictionary. Scans all keys of the Redis."""
    async for page in scan_pages(store, quarantine.pattern(store.keys), on_step=on_step):
        for place, times_ms in quarantine.find_copies(store.keys, page.keys).items():
            for put_ms in times_ms if place.session_id is not None else ():
                if version in await named_by(store, place.name, place.copies(put_ms)["originals"]):
                    return True
    return False


async def expire_dictionaries(store: Store, seconds: int) -> None:
    """Let the dictionaries of a new namespace expire, also those that are added later. Raises StoreUnavailable."""
    commands: tuple[Command, ...] = (
        ("HSETNX", store.keys.dictionaries, "searched", 0),  # an expiry needs a key
        ("PEXPIRE", store.keys.dictionaries, seconds * 1000),
    )
    await store.run(independent(commands, lambda *_: None))


async def add_dictionary(store: Store, dictionary: Dictionary) -> None:
    """Store a dictionary in a namespace that has none, and let new blocks use it at once. Raises StoreUnavailable."""
    settled = Dictionary(dictionary.version, dictionary.created_ms - SETTLED_MS, dictionary.content)
    if await store.run(dictionaries.add(store.keys, settled)):
        store.dictionaries[settled.version] = settled
