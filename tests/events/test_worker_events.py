"""Events of calls without an immediate answer from Redis, and events of workers."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from typing import Any

import pytest
from support.callers import Awaiting
from support.checks import insist, until
from support.clock import T0, Clock
from support.proxy import Proxy
from support.redis_server import RedisServer
from support.watched import CANARY, NAME, PATIENT, Events, Place, user
from support.worked import drain_at
from support.writers import Echo, call_message, fill

import redismem
from redismem import Message, Settings, StoreUnavailable
from redismem.blocking import memory as blocking
from redismem.context.context import Context
from redismem.errors import ModelFailed
from redismem.events import Event
from redismem.protocol.ids import session_hash
from redismem.workers.eviction import Eviction
from redismem.workers.scheduler import Scheduler
from redismem.workers.summaries import Worker


@pytest.mark.parametrize("is_async", [True, False])
async def test_the_event_of_a_retried_call_counts_its_attempts(
    proxy: Proxy, namespace: str, events: Events, is_async: bool
) -> None:
    given: dict[str, Any] = {"namespace": namespace, "settings": PATIENT, "on_event": events.append}

    def turn() -> None:
        with blocking.Memory.connect(proxy.url, **given) as memory:
            memory.session(NAME).append(user(1))
            proxy.break_next("reset", 1, to=b"EVALSHA")
            assert memory.session(NAME).append(user(2)).last_seq == 2

    if is_async:
        async with redismem.Memory.connect(proxy.url, **given) as memory:
            await memory.session(NAME).append(user(1))
            proxy.break_next("reset", 1, to=b"EVALSHA")
            assert (await memory.session(NAME).append(user(2))).last_seq == 2
    else:
        await asyncio.to_thread(turn)
    assert [(event.op, event.outcome, event.sent_count) for event in events[-2:]] == [
        ("append", "ok", 1),
        ("append", "ok", 2),
    ]


@pytest.mark.parametrize("is_async", [True, False])
async def test_an_outage_sends_events(tmp_path: Any, namespace: str, events: Events, is_async: bool) -> None:
    server = RedisServer(tmp_path).start()
    settings = Settings(deadline_s=0.3, reply_timeout_s=0.2)
    given: dict[str, Any] = {"namespace": namespace, "settings": settings, "on_event": events.append}
    memory: Any = redismem.Memory.connect(server.url, **given)
    if not is_async:
        memory = Awaiting(blocking.Memory.connect(server.url, **given), redismem.Memory)
    await insist(memory.ping)
    server.kill()
    before = len(events)
    session = memory.session(NAME)
    for call in (session.append(user(1)), session.read(), memory.ping()):
        with pytest.raises(StoreUnavailable):
            await call
    await (memory.aclose() if is_async else memory.close())
    told = [(event.op, event.outcome) for event in events[before:] if event.op not in ("recorded", "breaker")]
    assert told == [(op, "StoreUnavailable") for op in ("append", "read", "ping")]
    # Timing decides if a call probes Redis or fails at once.
    assert {event.outcome for event in events[before:] if event.op == "breaker"} <= {"open", "half_open"}
    assert next(event.outcome for event in events[before:] if event.op == "breaker") == "open"
    by_op = {event.op: event.sent_count for event in events[before:]}
    assert by_op["append"] == 0, "the first look at the namespace failed already"
    assert by_op["ping"] == 0, "Redis is known to be away"


async def test_a_cancelled_call_sends_an_event(proxy: Proxy, namespace: str, events: Events) -> None:
    async with redismem.Memory.connect(
        proxy.url, namespace=namespace, settings=PATIENT, on_event=events.append
    ) as memory:
        await memory.session(NAME).append(user(1))
        proxy.break_next("swallow", 1, to=b"EVALSHA")
        waiting = asyncio.create_task(memory.session(NAME).append(user(2)))

        async def taken() -> bool:
            return proxy.broken_count == 1

        await until(taken)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert (events[-1].op, events[-1].outcome, events[-1].sent_count) == ("append", "CancelledError", 1)


async def test_a_worker_sends_an_event_per_call_and_summary(async_place: Place, events: Events, clock: Clock) -> None:
    async with async_place.memory(events.append, clock=clock) as memory:
        await fill(memory.session(NAME), 11, CANARY)
        events.drain()
        echo = Echo()
        assert await drain_at(Worker(memory.store, echo), T0) == 1
        first = ["provider", "due", "claim", "dictionaries", "commit", "summary"]
        assert [op for op, _ in events.drain()] == [*first, "provider", "due", "drain"]
        claim, _, commit, summary = events[-7:-3]
        info = await memory.session(NAME).info()
        assert (commit.outcome, commit.message_count, commit.session) == ("ok", 5, session_hash(NAME))
        assert commit.tokens > 0
        assert info.window_tokens > 0
        assert (summary.outcome, summary.session, summary.sent_count) == ("ok", session_hash(NAME), 0)
        assert summary.duration_ms >= commit.duration_ms
        assert claim.outcome == "job"


async def test_a_worker_sends_an_event_per_missing_summary(async_place: Place, events: Events, clock: Clock) -> None:
    async with async_place.memory(events.append, clock=clock) as memory:
        worker, echo = Worker(memory.store, Echo()), Echo()
        await clock.run_at(T0, worker.attend(NAME))
        assert events.drain()[2:] == [("claim", "gone"), ("summary", "gone")]
        await fill(memory.session(NAME), 11, CANARY)
        echo.failures += [ModelFailed("no"), ValueError(CANARY)]
        events.drain()
        await clock.run_at(T0, Worker(memory.store, echo).attend(NAME))
        await clock.run_at(T0 + 60_000, Worker(memory.store, echo).attend(NAME))
        tried = [("claim", "job"), ("release", "ok"), ("summary", "failed")]
        assert events.drain() == tried * 2
        await clock.run_at(T0, memory.session("calls").append(*(call_message(f"c{number}") for number in range(11))))
        events.drain()
        assert await clock.run_at(T0, worker.attend("calls")) == "waiting"
        assert events.drain() == [("claim", "job"), ("release", "ok"), ("summary", "waiting")]


async def test_evictions_and_failed_evictions_send_events(async_place: Place, events: Events, clock: Clock) -> None:
    async def full(session_id: str, context: Context) -> None:
        raise OSError(f"no room for {session_id}: {context.messages[0].content}")

    async with async_place.memory(events.append, Settings(max_sessions=1, shards=1), clock=clock) as memory:
        await fill(memory.session(NAME), 1, CANARY)
        await clock.run_at(T0 + 1_000, fill(memory.session("newer"), 1, CANARY))
        events.drain()
        assert await clock.run_at(T0 + 1_000, Eviction(memory.store, full).enforce()) == 0
        found = Counter(events.drain())
        assert found["eviction", "OSError"] == found["claim_eviction", "ok"] == found["enforce", "ok"] == 1
        assert found["queue_eviction", "ok"] >= 1
        assert await clock.run_at(T0 + 60_000, Eviction(memory.store).enforce()) == 1
        assert {("eviction", "ok"), ("evict", "ok"), ("enforce", "ok")} <= set(events.drain())
        await clock.run_at(T0, Eviction(memory.store).sweep())
        sweeps = [("scan", "ok"), ("sweep", "ok"), ("record_sweep", "ok"), ("sweep_round", "ok")]
        assert events.drain() == sweeps
        await memory.session("newer").append(Message("user", CANARY))


async def test_workers_inside_a_memory_call_its_hook(async_place: Place, events: Events) -> None:
    told = asyncio.Event()

    def hook(event: Event) -> None:
        events.append(event)
        if (event.op, event.outcome) == ("summary", "ok"):
            told.set()

    workers: Any = partial(Scheduler, strategy=Echo())
    async with async_place.memory(hook, workers=workers) as memory:
        await memory.session(NAME).append(*map(user, range(11)))
        async with asyncio.timeout(60):
            await told.wait()
