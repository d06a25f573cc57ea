"""Nobody meets the session limit unaware: log, events, doctor and metrics tell of it."""

from __future__ import annotations

import pytest
from support.conversations import user_message
from support.stores import Store

from redismem import Memory, Settings
from redismem.events import Event, Op
from redismem.inspection.doctor import examine_quickly
from redismem.workers.eviction import Eviction
from redismem.workers.limit_warnings import LimitWarnings
from redismem.workers.scheduler import Scheduler


async def fill(memory: Memory, count: int) -> None:
    for number in range(count):
        await memory.session(f"s-{number}").append(user_message("x"))


async def room_of(memory: Memory) -> tuple[str, bool]:
    """Return the doctor's verdict, and whether it says that sessions in use were evicted."""
    diagnosis = await examine_quickly(memory.store, embedded=True)
    (room,) = (finding for finding in diagnosis.findings if finding.name == "room")
    return str(room.verdict), "within the last hour" in room.text


@pytest.mark.parametrize("given", [{}, {"max_sessions": 1_000}], ids=["default", "chosen"])
async def test_workers_with_the_default_limit_say_it_once(
    store: Store, namespace: str, caplog: pytest.LogCaptureFixture, given: dict[str, int]
) -> None:
    caplog.set_level("INFO")
    async with store.memory(namespace, Settings(**given)) as memory:
        for _ in range(2):
            scheduler = Scheduler(memory.store)
            await scheduler.start()
            await scheduler.stop()
    told = [record.getMessage() for record in caplog.records if "the default limit" in record.getMessage()]
    assert len(told) == (0 if given else 1)
    assert all("1000 sessions" in text and "REDISMEM_MAX_SESSIONS" in text for text in told)


@pytest.mark.parametrize(("count", "is_near"), [(7, False), (8, True)])
async def test_from_80_percent_on_log_hook_and_doctor_warn(
    store: Store, namespace: str, caplog: pytest.LogCaptureFixture, count: int, is_near: bool
) -> None:
    events: list[Event] = []
    async with store.memory(namespace, Settings(max_sessions=10), on_event=events.append) as memory:
        await fill(memory, count)
        eviction = Eviction(memory.store)
        for _ in range(2):
            await eviction.enforce_limit()
        assert await room_of(memory) == ("warn" if is_near else "ok", False)
    assert [event.outcome for event in events if event.op == Op.NEAR_LIMIT] == ["near"] * is_near
    assert sum("near its limit of 10" in record.getMessage() for record in caplog.records) == is_near


async def test_evicting_sessions_in_use_is_told_to_all(
    store: Store, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    events: list[Event] = []
    async with store.memory(namespace, Settings(max_sessions=3), on_event=events.append) as memory:
        await fill(memory, 5)
        caplog.set_level("INFO")
        assert await Eviction(memory.store).enforce_limit() == 2
        await memory.session("s-4").clear()
        await memory.session("s-3").clear()
        assert await room_of(memory) == ("warn", True)
    assert "recent" in [event.outcome for event in events if event.op == Op.NEAR_LIMIT]
    (line,) = [text for record in caplog.records if (text := record.getMessage()).startswith("evicted")]
    assert line.startswith("evicted 2 sessions since the last such line, 2 of them active within the hour")


async def test_evictions_are_told_once_a_minute(
    store: Store, namespace: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 1_000.0
    monkeypatch.setattr("redismem.workers.limit_warnings.time.monotonic", lambda: now_s)
    async with store.memory(namespace) as memory:
        caplog.set_level("INFO")
        warnings = LimitWarnings(memory.store)
        for later_s, count in ((0, 1), (30, 2), (59, 3), (60, 0), (61, 0), (200, 0)):
            now_s = 1_000.0 + later_s
            warnings.note_evicted(count)
    told = [text.split()[1] for record in caplog.records if (text := record.getMessage()).startswith("evicted")]
    assert told == ["1", "5"]
