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
    keys = (key for key in _keys(store, session_ids))
    while batch := list(islice(keys, _BATCH_COUNT)):
        commands: tuple[Command, ...] = tuple(("UNLINK", key) for key in batch)
        await store.run(independent(commands, lambda *counts: sum(counts)))


def _keys(store: Store, session_ids: Iterable[str]) -> Iterable[bytes]:
    for session_id in session_ids:
        session = store.keys.session(session_id)
        yield from (session.messages, session.state, session.originals, session.turned, session.live, session.waiters)
    for shard in store.keys.shards():
        yield from (*shard.all_indexes, shard.fences)
    yield from (store.keys.providers, store.keys.ticks, store.keys.processes, store.keys.dictionaries)
    yield store.keys.record
