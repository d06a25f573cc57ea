"""Evicting recently active sessions logs a warning."""

from __future__ import annotations

import pytest
from support.clock import T0, Clock
from support.stores import Store
from support.writers import chat_message

from redismem import Settings
from redismem.workers.eviction import Eviction

HOUR_MS = 3_600_000


@pytest.mark.parametrize(("age_ms", "warned"), [(0, 3), (HOUR_MS - 1, 3), (HOUR_MS, 0), (2 * HOUR_MS, 0)])
async def test_evicting_what_was_active_within_the_hour_is_warned_of(
    store: Store, namespace: str, caplog: pytest.LogCaptureFixture, age_ms: int, warned: int, clock: Clock
) -> None:
    async with store.memory(namespace, Settings(shards=2, max_sessions=2)) as memory:
        for number in range(5):
            await clock.run_at(T0, memory.session(f"s-{number}").append(chat_message(number)))
        caplog.clear()
        eviction = Eviction(memory.store)
        assert await clock.run_at(T0 + age_ms, eviction.enforce()) == 3
        warnings = [record for record in caplog.records if "within the last hour" in record.getMessage()]
        assert len(warnings) == (1 if warned else 0)
        for record in warnings:
            text = record.getMessage()
            assert text.startswith(f"{warned} sessions active within the last hour are evicted")
            assert "the limit is 2 (REDISMEM_MAX_SESSIONS)" in text
            assert vars(record)["session_count"] == warned


async def test_it_is_said_once_a_minute(
    store: Store, namespace: str, caplog: pytest.LogCaptureFixture, clock: Clock
) -> None:
    async with store.memory(namespace, Settings(shards=2, max_sessions=1)) as memory:
        eviction = Eviction(memory.store)
        said_at = []
        for at, later_ms in enumerate((0, 1_000, 59_999, 60_000, 61_000, 130_000)):
            for name in ("a", "b"):
                await clock.run_at(T0 + later_ms, memory.session(f"{name}-{at}").append(chat_message(at)))
            caplog.clear()
            assert await clock.run_at(T0 + later_ms, eviction.enforce()) >= 1
            if any("within the last hour" in record.getMessage() for record in caplog.records):
                said_at.append(later_ms)
        assert said_at == [0, 60_000, 130_000]
