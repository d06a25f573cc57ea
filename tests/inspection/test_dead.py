"""Dead sessions of a namespace with many shards: all found, in small round trips."""

from __future__ import annotations

from typing import Any

import pytest

from redismem import Memory, Settings
from redismem.inspection import dead

SESSIONS = [f"s-{number:03}" for number in range(300)]


async def kill(memory: Memory, raw: Any) -> None:
    """Put sessions on the list of dead sessions, the last one first."""
    async with raw.pipeline(transaction=False) as pipeline:
        for number, name in enumerate(SESSIONS):
            pipeline.zadd(memory.store.keys.session(name).shard.dead, {name: 1_000_000 - number})
        await pipeline.execute()


@pytest.mark.parametrize("shards", [1, 64, 256])
async def test_the_sessions_that_have_been_dead_longest_are_listed(
    store: Any, namespace: str, raw: Any, shards: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead, "_ENTRIES_COUNT", 50)
    async with store.memory(namespace, Settings(shards=shards)) as memory:
        await kill(memory, raw)
        for limit in (1, 7, 300, 1_000):
            listed = await dead.list_dead(memory.store, limit)
            assert listed.count == 300
            assert [session.session_id for session in listed.sessions] == SESSIONS[::-1][:limit]
            assert {session.info for session in listed.sessions} == {"gone"}
