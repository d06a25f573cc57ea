"""Foreign members in an index of a shard: sessions are evicted all the same, and `check` names the member."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from support.conversations import user_message
from support.stores import Store
from support.writers import Echo

from redismem import Settings
from redismem.inspection.check import check
from redismem.protocol.namespace.calls import name_of
from redismem.workers.eviction import Eviction
from redismem.workers.summaries import Worker

FOREIGN = (b"", b"bad\x01id", b"\xff\xfe", b"x" * 5_000)


@pytest.mark.parametrize("index", ["active", "evictions", "overdue"])
async def test_a_foreign_member_is_passed_over_and_named(
    store: Store, namespace: str, raw: Any, index: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with store.memory(namespace, Settings(shards=1, max_sessions=2)) as memory:
        for number in range(6):
            await memory.session(f"s{number}").append(user_message(number))
        await raw.zadd(getattr(memory.store.keys.shards()[0], index), dict.fromkeys(FOREIGN, 1))
        eviction = Eviction(memory.store)
        with caplog.at_level(logging.WARNING, "redismem"):
            await eviction.enforce()
            await eviction.sweep()
            await Worker(memory.store, Echo()).drain()
        left = [entry.session_id for entry in (await memory.sessions()).sessions]
        assert len([each for each in left if each.startswith("s")]) <= 2
        violations = [violation async for violation in check(memory.store)]
        named = {violation.session_id for violation in violations if "not a session id" in violation.text}
        kept = {name_of(member) for member in await raw.zrange(getattr(memory.store.keys.shards()[0], index), 0, -1)}
        assert named == {name_of(member) for member in FOREIGN}.intersection(kept)
