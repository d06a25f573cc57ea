"""Load the compression dictionaries of a namespace into the memory of this process."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from time import monotonic

from redismem.originals.blocks import dictionary_of, mismatched_dictionary
from redismem.originals.dictionaries import Dictionaries
from redismem.protocol.namespace import dictionaries
from redismem.store.store import Store

_RELOAD_AFTER_S = 60.0
"""The shortest time between two reloads of dictionaries that do not match their blocks."""


async def load_dictionaries(store: Store, blocks: Iterable[bytes]) -> Dictionaries:
    """Return the dictionaries that these blocks need, as far as they exist. The result may contain more.

    If this process has not read a dictionary yet, or it was replaced since, the call costs one round trip.

    Raises:
        StoreUnavailable: Redis did not answer in time.
    """
    stored = list(blocks)
    await load_versions(store, {version for block in stored if (version := dictionary_of(block)) is not None})
    stale = {version for block in stored if (version := mismatched_dictionary(block, store.dictionaries)) is not None}
    if stale and monotonic() >= store.reload_after_s:
        store.reload_after_s = monotonic() + _RELOAD_AFTER_S
        await reload_versions(store, stale)
    return store.dictionaries


async def load_versions(store: Store, versions: Collection[int]) -> None:
    """Read the dictionaries of these versions that this process does not have yet.

    Raises:
        StoreUnavailable: Redis did not answer in time.
    """
    if missing := sorted(set(versions) - store.dictionaries.keys()):
        loaded = await store.run(dictionaries.read(store.keys, missing))
        store.dictionaries.update(loaded)


async def reload_versions(store: Store, versions: Collection[int]) -> Dictionaries:
    """Read the dictionaries of these versions again, and return the readable ones.

    This is needed after Redis has lost its last writes: other dictionaries may since have got these versions.

    Raises:
        StoreUnavailable: Redis did not answer in time.
    """
    current = await store.run(dictionaries.read(store.keys, sorted(versions)))
    for version, dictionary in current.items():
        cached = store.dictionaries.get(version)
        if cached is None or cached.content != dictionary.content:
            store.dictionaries[version] = dictionary
    return current
