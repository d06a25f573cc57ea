"""A provider that is down, over real sockets: all workers pause it, and no session loses an attempt."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest
from support.checks import silent_logs, until, user  # noqa: F401 (an autouse fixture)
from support.clock import T0, Clock
from support.provider_server import ProviderServer
from support.redis_server import RedisServer, free_port
from support.stores import Store
from support.worked import EAGER, PATIENCE_S, PROVIDERS, Bearing, drain_at, open_strategy, until_summarised
from support.writers import chat_message, fill

from redismem import Memory
from redismem.errors import ProviderUnavailable
from redismem.models import Provider
from redismem.protocol.queue import provider_pauses
from redismem.workers.scheduler import Scheduler
from redismem.workers.summaries import Worker

DOWN = ["500", "503", "401", "403", "404", "408", "quota", "reset", "drop", "cut", "hang", "drip"]


async def test_a_model_that_is_not_there(store: Store, namespace: str) -> None:
    async with (
        open_strategy("openai", f"http://127.0.0.1:{free_port()}/v1") as strategy,
        store.memory(namespace, EAGER, workers=partial(Scheduler, strategy=strategy)) as memory,
    ):
        session = memory.session("a")
        await session.append(*map(chat_message, range(11)))

        async def given_back() -> bool:
            info = await session.info()  # which may be of the next attempt already
            said = info.failure == "openai did not answer (ConnectError)"
            return said and (info.queued, info.attempts) == ("overdue", 0)

        await until(given_back)
        assert len(await session.messages()) == 11


@pytest.mark.parametrize("mode", DOWN)
async def test_a_provider_that_is_down_costs_no_session_an_attempt(
    redis_server: RedisServer, namespace: str, provider: ProviderServer, mode: str, clock: Clock
) -> None:
    provider.mode = mode
    name, is_silent = PROVIDERS[DOWN.index(mode) % 3], mode in ("hang", "drip")
    async with (
        open_strategy(name, provider.base_url, timeout_s=PATIENCE_S if is_silent else 60) as strategy,
        Memory.connect(redis_server.url, namespace=namespace, settings=EAGER, clock=clock) as memory,
    ):
        session, worker = memory.session("a"), Worker(memory.store, strategy)
        await session.append(*map(user, range(11)))
        now_ms = await memory.server_time_ms()
        for asked_count in range(1, EAGER.max_attempts + 2):
            assert await drain_at(worker, now_ms) == 0
            # On a busy machine, the patience may end before a silent provider has the request.
            assert is_silent or len(provider.asked) == asked_count
            assert await drain_at(worker, now_ms + 100) == 0
            assert len(provider.asked) <= asked_count, "paused"
            now_ms += 61_000
        info = await session.info()
        assert (info.queued, info.attempts) == ("overdue", 0)
        assert info.failure is not None
        assert info.failure.startswith(f"{name} ")
        provider.mode = "ok"
        while await drain_at(worker, now_ms) == 0:  # a busy machine may not get an answer within the patience
            now_ms += 61_000


@pytest.mark.parametrize("name", ["openai", *(pytest.param(name, marks=pytest.mark.nightly) for name in PROVIDERS[1:])])
async def test_too_many_requests_are_waited_out(
    redis_server: RedisServer,
    namespace: str,
    provider: ProviderServer,
    name: Provider,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("redismem.workers.provider_pauses._FIRST_PAUSE_S", 0.05)
    provider.mode, provider.headers = "429", {"retry-after-ms": "20"}
    async with (
        open_strategy(name, provider.base_url) as strategy,
        Memory.connect(
            redis_server.url, namespace=namespace, settings=EAGER, workers=partial(Scheduler, strategy=strategy)
        ) as memory,
    ):
        session = memory.session("a")
        await session.append(*map(chat_message, range(11)))
        await asyncio.to_thread(provider.wait_for_asked, EAGER.max_attempts + 1)
        assert (await session.info()).queued != "dead", "asking to wait is no failure"
        provider.mode = "ok"
        await until_summarised(session)


async def test_the_pause_that_a_provider_asks_for(
    store: Store, namespace: str, raw: Any, provider: ProviderServer, clock: Clock
) -> None:
    provider.mode, provider.headers = "429", {"retry-after": "17"}
    async with (
        open_strategy("openai", provider.base_url) as strategy,
        store.memory(namespace, EAGER) as memory,
    ):
        session, worker = memory.session("a"), Worker(memory.store, strategy)
        await fill(session, 11)
        await drain_at(worker, T0)
        assert await raw.hget(memory.store.keys.session("a").state, "attempts") == b"0"
        await drain_at(worker, T0 + 16_999)
        assert len(provider.asked) == 1
        provider.mode = "ok"
        assert await drain_at(worker, T0 + 17_000 + 60_000) == 1, "counted from the answer, which took a while"


async def claims_count(raw: Any, memory: Memory) -> int:
    """Count the epochs and fences ever assigned."""
    return sum([int(await raw.get(shard.fences) or 0) for shard in memory.store.keys.shards()])


async def test_fifty_overdue_sessions_do_not_each_ask_a_provider_that_is_down(
    store: Store, namespace: str, raw: Any, provider: ProviderServer, clock: Clock
) -> None:
    provider.mode = "503"
    async with (
        open_strategy("openai", provider.base_url) as strategy,
        store.memory(namespace, EAGER) as memory,
        store.memory(namespace, EAGER) as elsewhere,
    ):
        for number in range(50):
            await memory.session(f"s-{number}").append(*map(chat_message, range(11)))
        now_ms = await memory.server_time_ms()
        workers = [Worker(memory.store, strategy, concurrency=4), Worker(elsewhere.store, strategy, concurrency=4)]
        assert await drain_at(workers[0], now_ms) == 0
        assert len(provider.asked) <= 4, "those that were under way when the first one failed"
        before, asked_count = await claims_count(raw, memory), len(provider.asked)
        for after_ms in range(0, 400, 100):
            for worker in workers:
                assert await drain_at(worker, now_ms + after_ms) == 0
        assert len(provider.asked) == asked_count
        assert await claims_count(raw, memory) == before, "no session is claimed in vain"
        for _ in range(3):
            now_ms += 61_000
            assert [await drain_at(worker, now_ms) for worker in workers * 2] == [0] * 4
            asked_count += 1
            assert len(provider.asked) == asked_count, "one try of one worker"
        assert await claims_count(raw, memory) == before + 3
        provider.mode = "ok"
        assert await drain_at(workers[1], now_ms + 61_000) == 50
        for number in range(50):
            info = await memory.session(f"s-{number}").info()
            assert (info.queued, info.attempts, info.failure, info.summaries_count) == (None, 0, None, 1)
        assert await memory.store.run(provider_pauses.list_pauses(memory.store.keys)) == {}


async def test_a_session_that_the_provider_cannot_bear_holds_up_no_other(
    store: Store, namespace: str, clock: Clock
) -> None:
    strategy = Bearing(ProviderUnavailable("500", reason="it answered 500", perhaps_request=True))
    async with store.memory(namespace, EAGER.model_copy(update={"max_backoff_s": 300.0})) as memory:
        worker, now_ms = Worker(memory.store, strategy), await memory.server_time_ms()
        await clock.run_at(now_ms, fill(memory.session("ill"), 11, "poison"))
        for number in range(9):
            await clock.run_at(now_ms, fill(memory.session(f"well-{number}"), 11))
        for after_s in range(0, 900, 5):
            await drain_at(worker, now_ms + after_s * 1_000)
            if after_s == 150:
                for number in range(9):
                    assert (await memory.session(f"well-{number}").info()).summaries_count == 1
                await clock.run_at(now_ms + after_s * 1_000, fill(memory.session("well-0"), 11))
            if after_s > 300:
                assert (await memory.session("well-0").info()).summaries_count == 2, "the next try was for this one"
                assert await memory.store.run(provider_pauses.list_pauses(memory.store.keys)) == {}, "it waits alone"
        assert 2 < strategy.failures_count < 40, "ever more rarely"
        info = await memory.session("ill").info()
        assert (info.queued, info.attempts, info.failure) == ("overdue", 0, "it answered 500")
        await drain_at(worker, now_ms + 1_500_000)
        (summary,) = (await memory.session("ill").read()).summaries
        assert summary.model == "extractive"


async def test_what_was_noted_by_nobody_of_ours_is_no_pause(
    store: Store, namespace: str, raw: Any, clock: Clock
) -> None:
    async with store.memory(namespace, EAGER) as memory:
        await fill(memory.session("a"), 11)
        await fill(memory.session("b"), 11)
        worker, keys = Worker(memory.store, Bearing(ValueError())), memory.store.keys
        await raw.hset(keys.providers, "a model", "paused, I think")
        assert await drain_at(worker, T0) == 2
        await raw.delete(keys.providers)
        await raw.set(keys.providers, "a key of a foreign type")
        await fill(memory.session("c"), 11)
        assert await drain_at(worker, T0) == 1
