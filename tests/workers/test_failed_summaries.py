"""Failing summaries: retried, backed off, given up, and no other session waits for them."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.checks import Panic
from support.clock import T0, Clock
from support.stores import Store
from support.worked import FEW, WorkerParts, drain_at, open_with, ranges, seqs
from support.writers import Echo, chat_message, fill

from redismem.errors import ModelFailed
from redismem.models import Draft
from redismem.workers.summaries import Worker


@pytest.fixture
async def forbidding(store: Store, namespace: str) -> AsyncIterator[WorkerParts]:
    """A memory without a fallback for the strategy, with the strategy and its worker."""
    async with open_with(store, namespace, extractive_after_s=0) as memory:
        echo = Echo()
        yield memory, echo, Worker(memory.store, echo)


FAILURES: list[BaseException] = [ModelFailed("no"), ValueError("of its own"), asyncio.CancelledError(), Panic()]


@pytest.mark.parametrize("failure", FAILURES, ids=lambda each: type(each).__name__)
async def test_failures_back_off_and_then_the_session_is_dead(
    forbidding: WorkerParts, raw: Any, clock: Clock, failure: BaseException
) -> None:
    memory, echo, worker = forbidding
    session, overdue = memory.session("a"), memory.store.keys.session("a").shard.overdue
    await fill(session, 11)
    before = await session.messages()
    now_ms = T0
    for attempt in range(1, FEW.max_attempts + 1):
        echo.failures.append(failure)
        assert await clock.run_at(now_ms, worker.drain()) == 0
        assert len(echo.seen) == attempt
        if attempt < FEW.max_attempts:
            due_ms = await raw.zscore(overdue, "a")
            assert now_ms <= due_ms <= now_ms + 1_000 * 2**attempt, "full jitter, doubled each time"
            now_ms = int(due_ms)
    assert worker.outcomes == {"failed": FEW.max_attempts - 1, "dead": 1}
    assert (await session.info()).queued == "dead"
    await clock.run_at(now_ms, session.append(chat_message(12)))
    assert await clock.run_at(now_ms + 10**9, worker.drain()) == 0, "dead is dead"
    assert (await session.messages())[:11] == before

    clock.now_ms = now_ms
    requeue = memory.store.queue_calls("a").requeue(again=True)
    assert await memory.store.run(requeue)
    assert await worker.drain() == 1
    assert await ranges(session) == [(1, 6)]
    assert not await memory.store.run(requeue)


async def test_a_lasting_refusal_is_not_repeated(forbidding: WorkerParts, clock: Clock) -> None:
    memory, echo, worker = forbidding
    await fill(memory.session("a"), 11)
    echo.failures.append(ModelFailed("400", permanent=True))
    await drain_at(worker, T0)
    assert worker.outcomes == {"dead": 1}


BAD: list[Any] = ["", "  \n", 7, None, b"bytes", "\ud800", "x" * (16 * 1024 + 1)]


@pytest.mark.parametrize("text", BAD, ids=range(len(BAD)))
async def test_what_is_no_summary_is_a_failed_attempt(worker_parts: WorkerParts, text: Any, clock: Clock) -> None:
    memory, echo, worker = worker_parts
    session = memory.session("a")
    await fill(session, 11)
    echo.drafts.append(Draft(text, 0, 0, "m"))
    assert await clock.run_at(T0, worker.drain()) == 0
    assert worker.outcomes == {"failed": 1}
    assert await seqs(session) == list(range(1, 12))
    assert await clock.run_at(T0 + 60_000, worker.drain()) == 1


async def test_a_failure_of_one_session_stops_no_other(worker_parts: WorkerParts, raw: Any, clock: Clock) -> None:
    memory, echo, worker = worker_parts
    for name in "abcd":
        await fill(memory.session(name), 11)
    await raw.hset(memory.store.keys.session("b").state, "summary:1", b"\xc1 no summary")
    echo.failures.append(ModelFailed("a pause that no number of milliseconds is", retry_after_s=math.inf))
    assert await drain_at(worker, T0) == 2
    assert worker.outcomes == {"ok": 2, "gone": 1, "failed": 1}
    assert not await memory.session("b").exists(), "it could not be read, and went into quarantine"


async def test_a_hung_model_is_cut(store: Store, namespace: str, clock: Clock) -> None:
    async with open_with(store, namespace, summary_timeout_s=0.05) as memory:
        session, echo = memory.session("a"), Echo()
        await fill(session, 11)
        echo.hanging = "message"
        worker = Worker(memory.store, echo)
        assert await clock.run_at(T0, worker.drain()) == 0
        assert (worker.outcomes, echo.cancelled_count) == ({"failed": 1}, 1)
        echo.gate.set()
        assert await clock.run_at(T0 + 60_000, worker.drain()) == 1


async def test_a_model_that_goes_on_though_it_is_cut_keeps_neither_session_nor_worker(
    store: Store, namespace: str, clock: Clock
) -> None:
    class Closing(Echo):
        async def compact(self, messages: Any, previous: str | None) -> Any:
            try:
                return await super().compact(messages, previous)
            finally:
                await self.gate.wait()  # as what closes a connection to somebody who does not answer

    async with open_with(store, namespace, summary_timeout_s=0.05) as memory, asyncio.timeout(60):
        session, echo = memory.session("a"), Closing()
        await fill(session, 11)
        echo.hanging = "message"
        worker = Worker(memory.store, echo, concurrency=1)
        assert await clock.run_at(T0, worker.drain()) == 0
        assert (worker.outcomes, (await session.info()).queued) == ({"failed": 1}, "overdue")
        echo.hanging = None
        await fill(memory.session("b"), 11)
        echo.gate.set()
        assert await clock.run_at(T0 + 60_000, worker.drain()) == 2
