"""What a replay measures: round trips, latencies, and the bytes that sessions take in Redis."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Collection, Sequence
from typing import Any

from redismem import scripts
from redismem.calls import Call, Command
from redismem.cli.store import Store
from redismem.errors import StoreUnavailable
from redismem.memory import Memory
from redismem.transport import Transport

# MEMORY is unknown to the embedded store, and forbidden by some hosts. redis-py drops the first word, ERR.
_NOT_TOLD = ("ERR", "unknown", "NOPERM")


class CountingTransport:
    """Counts every time something is sent and an answer awaited, retries and script loads too."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.repeats = inner.repeats
        self.trips = 0

    async def run(self, commands: Sequence[Command], timeout_s: float) -> list[Any]:
        self.trips += 1
        return await self._inner.run(commands, timeout_s)

    async def run_each(self, commands: Sequence[Command], timeout_s: float) -> list[Any]:
        self.trips += 1
        return await self._inner.run_each(commands, timeout_s)

    async def load(self, source: bytes, timeout_s: float) -> None:
        self.trips += 1
        await self._inner.load(source, timeout_s)

    async def reconnect(self) -> None:
        await self._inner.reconnect()

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)

    async def aclose(self) -> None:
        """Nothing: the inner one belongs to another."""


def counted(memory: Memory, store: Store) -> tuple[Memory, CountingTransport]:
    """The same memory over the same connections, and its counter."""
    transport = CountingTransport(store.transport)
    return Memory(transport, memory.keys.namespace, memory.settings), transport


async def warm_up(memory: Memory, connections: int = 1) -> None:
    """Opens connections and loads the append script, as in a process that has been up for a while."""
    await memory.run(Call(None, (("SCRIPT", "LOAD", scripts.load("append").source),), bool))
    await asyncio.gather(*(memory.ping() for _ in range(connections)))


def percentile(values: array[float], share: float) -> float | None:
    """The value that `share` of the values do not exceed."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else None


async def stored_bytes(memory: Memory, session_ids: Collection[str], chunk_count: int = 1_000) -> int | None:
    """MEMORY USAGE of the sessions' keys and their share of their shards' indexes; None where Redis does not tell."""
    total = 0
    in_shard: dict[int, int] = {}
    keys: list[bytes] = []
    try:
        for session_id in session_ids:
            names = memory.keys.session(session_id)
            keys += (names.messages, names.state, names.originals)
            shard = memory.keys.shard_of(session_id)
            in_shard[shard] = in_shard.get(shard, 0) + 1
            if len(keys) >= chunk_count:
                total += await memory.run(_usage(keys), each=True)
                keys = []
        if keys:
            total += await memory.run(_usage(keys), each=True)
        if in_shard:
            total += await memory.run(_index_share(memory, in_shard), each=True)
        return total
    except StoreUnavailable as refused:
        if refused.reason not in _NOT_TOLD:
            raise
        return None


def _usage(keys: Sequence[bytes]) -> Call[int]:
    commands = tuple(("MEMORY", "USAGE", key, "SAMPLES", 0) for key in keys)
    return Call(None, commands, lambda *sizes: sum(size or 0 for size in sizes))


def _index_share(memory: Memory, in_shard: dict[int, int]) -> Call[int]:
    """Of each shard's activity index and queue the part that these sessions' entries are."""
    commands: list[Command] = []
    for shard in in_shard:
        names = memory.keys.shards()[shard]
        for key in (names.active, names.overdue):
            commands += [("MEMORY", "USAGE", key, "SAMPLES", 0), ("ZCARD", key)]
    counts = [count for count in in_shard.values() for _ in range(2)]

    def decode(*answers: Any) -> int:
        pairs = zip(answers[::2], answers[1::2], counts, strict=True)
        return sum((size or 0) * min(count, entries) // entries for size, entries, count in pairs if entries)

    return Call(None, tuple(commands), decode)
