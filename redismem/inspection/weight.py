"""Measure the bytes that sessions take in Redis."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from redismem.errors import NotAllowed, StoreUnavailable
from redismem.protocol.call import Call, Command, independent
from redismem.protocol.keys import Keys
from redismem.store.store import Store

# The embedded store does not know MEMORY, and some hosts forbid it. redis-py drops the first word, ERR.
_UNSUPPORTED = ("ERR", "unknown")


async def stored_bytes(store: Store, session_ids: Collection[str], chunk_count: int = 1_000) -> int | None:
    """Sum MEMORY USAGE of the sessions' keys and their share of their shards' indexes; `None` if Redis refuses it."""
    total = 0
    in_shard: dict[int, int] = {}
    keys: list[bytes] = []
    try:
        for session_id in session_ids:
            names = store.keys.session(session_id)
            keys += (names.messages, names.state, names.originals, names.turned, names.live, names.waiters)
            shard = store.keys.shard_of(session_id)
            in_shard[shard] = in_shard.get(shard, 0) + 1
            if len(keys) >= chunk_count:
                total += await store.run(_usage(keys))
                keys = []
        if keys:
            total += await store.run(_usage(keys))
        if in_shard:
            total += await store.run(_index_share(store.keys, in_shard))
        return total
    except StoreUnavailable as refused:
        if refused.reason not in _UNSUPPORTED:
            raise
        return None
    except NotAllowed:
        return None


def _usage(keys: Sequence[bytes]) -> Call[int]:
    commands = tuple(("MEMORY", "USAGE", key, "SAMPLES", 0) for key in keys)
    return independent(commands, lambda *sizes: sum(size or 0 for size in sizes))


def _index_share(keys: Keys, in_shard: dict[int, int]) -> Call[int]:
    """The call that returns the sessions' share of their shards' activity index and overdue queue, in bytes."""
    commands: list[Command] = []
    for shard in in_shard:
        names = keys.shards()[shard]
        for key in (names.active, names.overdue):
            commands += [("MEMORY", "USAGE", key, "SAMPLES", 0), ("ZCARD", key)]
    counts = [count for count in in_shard.values() for _ in range(2)]

    def decode(*answers: Any) -> int:
        pairs = zip(answers[::2], answers[1::2], counts, strict=True)
        return sum((size or 0) * min(count, entries) // entries for size, entries, count in pairs if entries)

    return independent(tuple(commands), decode)
