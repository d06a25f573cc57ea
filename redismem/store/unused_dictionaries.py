"""Find and drop the dictionaries that no block of a namespace names.

A dictionary is dropped in two steps. It is retired first, if a search finds no block that names it: workers do not use
a retired dictionary for new blocks. It is dropped if a later search finds no block either. In between, work in progress
ends, and sessions in quarantine, which a search does not see, expire or are restored.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection

from redismem.errors import CorruptSession
from redismem.events import facts
from redismem.protocol.keys import ShardKeys, is_session_id
from redismem.protocol.namespace import dictionaries
from redismem.protocol.queue.calls import scan_queue
from redismem.store.dictionaries import load_versions
from redismem.store.store import Store

log = logging.getLogger("redismem.worker")

SEARCH_MS = 86_400_000
"""The shortest time between two searches, and the age from which a dictionary can be unused."""

_PAGE_COUNT = 100
_TOGETHER_COUNT = 16


async def drop_unused(store: Store, time_ms: int) -> list[int]:
    """Search once, retire unused dictionaries, and drop those that were retired long enough. Return what was dropped.

    Does nothing if any process has searched within SEARCH_MS. Raises StoreUnavailable.
    """
    keys = store.keys
    listing = await store.run(dictionaries.listing(keys))
    versions = listing.versions
    for version in listing.returned:
        await drop_one(store, version, time_ms)
    if not versions:
        return []
    searches = await store.run(dictionaries.searches(keys, versions))
    if 0 <= time_ms - searches.searched_ms < SEARCH_MS:
        return []
    await store.run(dictionaries.note_search(keys, time_ms))
    await load_versions(store, versions)
    candidates = {version for version in versions if _is_old(store, version, time_ms)}
    named = await find_named(store, candidates)
    dropped = []
    for version in sorted(candidates):
        since_ms = searches.unused_since_ms.get(version)
        if version in named:
            if since_ms is not None:
                await store.run(dictionaries.reinstate(keys, version))
        elif since_ms is None:
            await store.run(dictionaries.retire(keys, version, time_ms))
        elif time_ms - since_ms >= SEARCH_MS + store.settings.idle_timeout_ms:
            await drop_one(store, version, time_ms)
            dropped.append(version)
    return dropped


def _is_old(store: Store, version: int, time_ms: int) -> bool:
    """True if a dictionary has had the time to be used. An unreadable dictionary never counts as old."""
    dictionary = store.dictionaries.get(version)
    return dictionary is not None and time_ms - dictionary.created_ms >= SEARCH_MS


async def drop_one(store: Store, version: int, time_ms: int) -> None:
    """Drop a dictionary that no block names. Raises StoreUnavailable."""
    await store.run(dictionaries.drop(store.keys, version, time_ms))
    store.dictionaries.pop(version, None)
    known = facts(op="dictionaries", namespace=store.keys.namespace)
    log.info("dictionary %d was dropped: no block names it", version, extra=known)


async def find_named(store: Store, versions: Collection[int]) -> set[int]:
    """Return the versions that blocks of live sessions name. Ends early once all are found. Raises StoreUnavailable."""
    missing = set(versions)
    for shard in store.keys.shards():
        cursor, is_first = 0, True
        while missing and (cursor or is_first):
            cursor, is_first = await _search_page(store, shard, cursor, missing), False
    return set(versions) - missing


async def _search_page(store: Store, shard: ShardKeys, cursor: int, missing: set[int]) -> int:
    """Remove the versions that a page of sessions names from `missing`, and return the cursor of the next page."""
    scanned = (await store.run(scan_queue({shard: (cursor, 0)}, _PAGE_COUNT)))[shard]
    session_ids = [session_id for session_id in scanned.session_ids if is_session_id(session_id)]
    for at in range(0, len(session_ids), _TOGETHER_COUNT):
        part = session_ids[at : at + _TOGETHER_COUNT]
        for named in await asyncio.gather(*(named_by(store, session_id) for session_id in part)):
            missing -= named
        if not missing:
            break
    return scanned.cursors[0]


async def named_by(store: Store, session_id: str, originals: bytes | None = None) -> set[int]:
    """Return the versions that the blocks of a session name. Raises StoreUnavailable."""
    keys, named = store.keys.session(session_id), set[int]()
    cursor, is_first = 0, True
    try:
        while cursor or is_first:
            cursor, versions = await store.run(dictionaries.named(keys, originals, cursor))
            named, is_first = named | versions, False
    except CorruptSession:
        pass  # the next write of the session quarantines it
    return named
