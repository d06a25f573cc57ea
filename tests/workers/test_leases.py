"""Leases while a model writes: renewed, expired or released, and the session in the meantime."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.checks import until
from support.clock import T0, Clock
from support.stores import Store
from support.worked import WorkerParts, drain_at, open_with, ranges, seqs
from support.writers import Echo, chat_message, fill

from redismem import Session
from redismem.protocol.queue.calls import Job
from redismem.workers.outcomes import SummaryOutcome
from redismem.workers.summaries import Worker


async def test_a_slow_session_keeps_no_other_waiting(worker_parts: WorkerParts) -> None:
    memory, echo, worker = worker_parts
    names = [f"quick-{number}" for number in range(30)]
    for name in ("slow", *names[:10]):
        await fill(memory.session(name), 11, name)
    echo.hanging = "slow"
    first = asyncio.create_task(worker.drain())
    await echo.started.wait()
    for name in names[10:]:
        await fill(memory.session(name), 11, name)
    assert await worker.drain() == 20, "a second drain passes over what the first one waits for"
    for name in names:
        await until_ranges(memory.session(name), [(1, 5)])
    assert not first.done()
    assert await worker.attend("slow") == "busy"
    echo.gate.set()
    assert await first == 11
    assert await ranges(memory.session("slow")) == [(1, 5)]


async def until_ranges(session: Session, expected: list[tuple[int, int]]) -> None:
    async def reached() -> bool:
        return await ranges(session) == expected

    await until(reached)


async def test_a_lease_is_renewed_while_the_model_is_slow(
    store: Store, namespace: str, raw: Any, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    sleep, slept_s = asyncio.sleep, set()

    async def sleep_less(seconds: float) -> None:
        slept_s.add(seconds)
        await sleep(min(seconds, 0.01))

    monkeypatch.setattr(asyncio, "sleep", sleep_less)
    async with open_with(store, namespace, lease_s=30) as memory:
        session, shard, echo = memory.session("a"), memory.store.keys.session("a").shard, Echo()
        await session.append(*map(chat_message, range(1, 12)))
        echo.hanging = "message"
        drain = asyncio.create_task(Worker(memory.store, echo).drain())
        await echo.started.wait()

        async def renewed() -> bool:
            return bool(await raw.zscore(shard.leased, "a") == clock.now_ms + 30_000)

        assert await renewed()
        for _ in range(3):
            clock.now_ms += 20_000
            await until(renewed)
        assert max(slept_s) == 10, "a third of the lease: one renewal may be late"
        assert await Worker(memory.store, echo).attend("a") == "leased"
        echo.gate.set()
        assert await drain == 1
        assert echo.seen == [[1, 2, 3, 4, 5]]


async def test_a_worker_that_lost_its_lease_changes_nothing(worker_parts: WorkerParts, clock: Clock) -> None:
    memory, slow, worker = worker_parts
    session, quick = memory.session("a"), Echo()
    await fill(session, 11)
    slow.hanging = "message"
    late = asyncio.create_task(clock.run_at(T0, worker.drain()))
    await slow.started.wait()
    assert await clock.run_at(T0, Worker(memory.store, quick).drain()) == 0, "leased"
    assert await clock.run_at(T0 + 30_000, Worker(memory.store, quick).drain()) == 1, "after the lease"
    committed = await session.read()
    slow.gate.set()
    assert await late == 0
    assert worker.outcomes == {"fenced": 1}
    assert await session.read() == committed


async def test_the_lease_of_an_expired_session_hides_no_namesake(worker_parts: WorkerParts, raw: Any) -> None:
    memory, echo, worker = worker_parts
    session, keys = memory.session("a"), memory.store.keys.session("a")
    await fill(session, 11, "old")
    echo.hanging = "old"
    late = asyncio.create_task(worker.drain())
    await echo.started.wait()
    await raw.delete(keys.state, keys.messages)  # as when they expire
    await fill(session, 11, "new")
    assert await raw.zscore(keys.shard.leased, "a") is None
    assert await Worker(memory.store, Echo()).drain() == 1
    committed = await session.read()
    echo.gate.set()
    assert await late == 0
    assert worker.outcomes == {"gone": 1}
    assert await session.read() == committed
    assert "old" not in committed.summaries[0].text


async def test_a_prune_in_between_wins(worker_parts: WorkerParts) -> None:
    memory, echo, worker = worker_parts
    session = memory.session("a")
    await fill(session, 20)
    echo.hanging = "message"
    drain = asyncio.create_task(worker.drain())
    await echo.started.wait()
    assert await session.prune(12) == 8
    echo.gate.set()
    await drain
    assert worker.outcomes[SummaryOutcome.STALE] == 1
    assert await worker.drain() == 1
    assert await ranges(session) == [(9, 14)]
    assert await seqs(session) == list(range(15, 21))


async def test_a_cancelled_drain_gives_its_sessions_back(worker_parts: WorkerParts) -> None:
    memory, echo, worker = worker_parts
    await fill(memory.session("a"), 11)
    echo.hanging = "message"
    drain = asyncio.create_task(worker.drain())
    await echo.started.wait()
    drain.cancel()
    with pytest.raises(asyncio.CancelledError):
        await drain
    known = await memory.session("a").info()
    assert (known.queued, known.attempts) == ("overdue", 0), "a stop is no failure"
    echo.gate.set()
    assert await Worker(memory.store, echo).drain() == 1, "at once, without waiting for the lease"


async def test_no_claims_after_stop(worker_parts: WorkerParts) -> None:
    memory, echo, worker = worker_parts
    await fill(memory.session("a"), 11)
    worker.stop()
    assert await worker.drain() == 0
    assert await worker.attend("a") == "stopping"
    assert echo.seen == []


async def test_a_clock_that_was_set_back_delays_no_session_of_a_dead_worker(
    worker_parts: WorkerParts, clock: Clock
) -> None:
    memory, _, worker = worker_parts
    await drain_at(worker, T0)  # it looks for expired leases, and notes the time
    clock.now_ms = back_ms = T0 - 3_600_000
    await fill(memory.session("a"), 11)
    claimed = await memory.store.run(memory.store.queue_calls("a").claim())
    assert isinstance(claimed, Job), "by a worker that dies"
    assert await drain_at(worker, back_ms + 29_000) == 0
    assert await drain_at(worker, back_ms + 40_000) == 1, "as soon as the lease has expired"
