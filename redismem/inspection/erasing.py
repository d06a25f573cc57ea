"""Remove a whole namespace whose sessions are known, such as that of a benchmark."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from redismem.protocol.call import Command, independent
from redismem.store.store import Store

_BATCH_COUNT = 1_000


async def erase_namespace(store: Store, session_ids: Iterable[str]) -> None:
    """Remove these sessions, the indexes and counters of all shards, and the record of the namespace, without a scan.

    Only for a namespace that no other process uses. The store cannot be used afterwards, except to close it.

    Raises:
        StoreUnavailable, NotAllowed: Some keys may be left.
    """
    await erase_sessions(store, session_ids)
    await _unlink(store, _shared_keys(store))


async def expire_shared(store: Store, seconds: int) -> None:
    """Let the indexes and counters of a namespace expire, which nothing else does.

    Raises:
        StoreUnavailable, NotAllowed: Some keys may stay.
    """
    commands: tuple[Command, ...] = tuple(("PEXPIRE", key, seconds * 1_000) for key in _shared_keys(store))
    await store.run(independent(commands, lambda *counts: sum(counts)))


async def erase_sessions(store: Store, session_ids: Iterable[str]) -> None:
    """Remove the keys of these sessions, but not their entries in the indexes of their shards.

    Raises:
        StoreUnavailable, NotAllowed: Some keys may be left.
    """
    await _unlink(store, (key for session_id in session_ids for key in _session_keys(store, session_id)))


async def _unlink(store: Store, keys: Iterable[bytes]) -> None:
    keys = iter(keys)
    while batch := list(islice(keys, _BATCH_COUNT)):
        commands: tuple[Command, ...] = tuple(("UNLINK", key) for key in batch)
        await store.run(independent(commands, lambda *counts: sum(counts)))


def _session_keys(store: Store, session_id: str) -> Iterable[bytes]:
    session = store.keys.session(session_id)
    return session.messages, session.state, session.originals, session.turned, session.live, session.waiters


def _shared_keys(store: Store) -> Iterable[bytes]:
    for shard in store.keys.shards():
        yield from (*shard.all_indexes, shard.fences)
    yield from (store.keys.providers, store.keys.ticks, store.keys.processes, store.keys.dictionaries)
    yield store.keys.record
