"""The extractive fallback for a model that fails for too long, too often or permanently; and dead sessions."""

from __future__ import annotations

from typing import Any

import pytest
from support.checks import silent_logs  # noqa: F401 (an autouse fixture)
from support.clock import T0, Clock
from support.provider_server import ProviderServer
from support.stores import Store
from support.worked import EAGER, Bearing, drain_at, open_strategy
from support.writers import chat_message, fill

from redismem.errors import ModelFailed
from redismem.workers.eviction import Eviction
from redismem.workers.summaries import Worker


async def test_an_outage_longer_than_the_setting_ends_in_extractive_summaries(
    store: Store, namespace: str, provider: ProviderServer, clock: Clock
) -> None:
    provider.mode = "503"
    async with (
        open_strategy("openai", provider.base_url) as strategy,
        store.memory(namespace, EAGER.model_copy(update={"extractive_after_s": 600.0})) as memory,
    ):
        worker, start_ms = Worker(memory.store, strategy), await memory.server_time_ms()
        await clock.run_at(start_ms, fill(memory.session("early"), 11))
        await clock.run_at(start_ms - 10_000_000, fill(memory.session("long before"), 11))
        for after_s in range(0, 600, 60):
            assert await drain_at(worker, start_ms + after_s * 1_000) == 0, "no model was down for long yet"
        await clock.run_at(start_ms + 599_000, fill(memory.session("late"), 11))
        asked_count = len(provider.asked)
        assert await drain_at(worker, start_ms + 605_000) in (0, 2), "a try may be due first"
        await drain_at(worker, start_ms + 605_000)
        assert len(provider.asked) <= asked_count + 1
        for name in ("early", "long before"):
            (summary,) = (await memory.session(name).read()).summaries
            assert summary.model == "extractive", "it is marked so"
            info = await memory.session(name).info()
            assert (info.queued, info.failure, info.attempts) == (None, None, 0)
        assert (await memory.session("late").info()).summaries_count == 0
        provider.mode = "ok"
        assert await drain_at(worker, start_ms + 1_000_000) == 1
        (summary,) = (await memory.session("late").read()).summaries
        assert summary.model == "some-model"


async def test_a_failing_model_never_ends_in_a_refused_append(
    store: Store, namespace: str, provider: ProviderServer, clock: Clock
) -> None:
    """The window is half full long before `extractive_after_s` has passed."""
    provider.mode = "401"
    settings = EAGER.model_copy(update={"max_window_count": 40})
    async with open_strategy("openai", provider.base_url) as strategy, store.memory(namespace, settings) as memory:
        worker, session, now_ms = Worker(memory.store, strategy), memory.session("a"), await memory.server_time_ms()
        for number in range(200):
            await clock.run_at(now_ms, session.append(chat_message(number)))
            await drain_at(worker, now_ms)
        context = await session.read()
        assert context.total_messages == 200
        assert {summary.model for summary in context.summaries} == {"extractive"}
        assert len(context.messages) <= 21
        assert len(provider.asked) <= 2
        info = await session.info()
        assert (info.queued, info.attempts) == ("overdue", 0)


async def test_a_half_full_window_does_not_wait_for_a_model_that_fails_on_it(
    store: Store, namespace: str, clock: Clock
) -> None:
    """Its failure is no outage, and attempts are left: still the next append must not be refused."""
    settings = EAGER.model_copy(update={"max_window_count": 40, "max_attempts": 100})
    strategy = Bearing(ModelFailed("x", reason="openai answered with an empty text"))
    async with store.memory(namespace, settings) as memory:
        worker, session = Worker(memory.store, strategy), memory.session("a")
        for number in range(60):
            await clock.run_at(T0, session.append(chat_message(number, "poison")))
            await drain_at(worker, T0)
        assert strategy.failures_count > 0
        assert {summary.model for summary in (await session.read()).summaries} == {"extractive"}
        assert (await session.info()).window_count <= 21


async def test_a_large_window_is_made_short_at_once(
    store: Store, namespace: str, provider: ProviderServer, clock: Clock
) -> None:
    """A summary covers at most 500 messages; the next summary must not wait for the full time again."""
    provider.mode = "503"
    async with open_strategy("openai", provider.base_url) as strategy, store.memory(namespace, EAGER) as memory:
        worker, session = Worker(memory.store, strategy), memory.session("a")
        for _ in range(2):
            await session.append(*map(chat_message, range(700)))
        now_ms = await memory.server_time_ms()
        assert await drain_at(worker, now_ms) == 0
        late_ms = now_ms + 901_000
        assert await drain_at(worker, late_ms) == 3
        assert (await session.info()).window_count == EAGER.recent_limit


FOR_GOOD = [
    (ModelFailed("x", reason="openai answered 400", permanent=True), 1),
    (ModelFailed("x", reason="openai answered with an empty text"), 3),
    (ValueError("of the strategy's own"), 3),
]


@pytest.mark.parametrize(("error", "asked_count"), FOR_GOOD, ids=range(len(FOR_GOOD)))
async def test_what_a_text_causes_is_tried_so_often_and_then_written_extractively(
    store: Store, namespace: str, error: Exception, asked_count: int, clock: Clock
) -> None:
    strategy = Bearing(error)
    async with store.memory(namespace, EAGER) as memory:
        worker, session = Worker(memory.store, strategy), memory.session("a")
        await fill(session, 11, "poison")
        for attempt in range(1, asked_count):
            assert await drain_at(worker, T0 + attempt * 60_000) == 0
            info = await session.info()
            assert (info.queued, info.attempts) == ("overdue", attempt)
            assert info.failure is not None
        assert await drain_at(worker, T0 + asked_count * 60_000) == 1
        assert strategy.failures_count == asked_count
        (summary,) = (await session.read()).summaries
        assert (summary.first_seq, summary.last_seq, summary.model) == (1, 5, "extractive")
        info = await session.info()
        assert (info.queued, info.attempts, info.failure) == (None, 0, None)


async def test_a_session_that_workers_die_of_is_written_extractively(
    store: Store, namespace: str, raw: Any, clock: Clock
) -> None:
    """Workers crashed on the session, so all its attempts are counted."""
    async with store.memory(namespace, EAGER) as memory:
        session = memory.session("a")
        await fill(session, 11)
        await raw.hset(memory.store.keys.session("a").state, "attempts", EAGER.max_attempts)
        assert await drain_at(Worker(memory.store, Bearing(ValueError())), T0) == 1
        (summary,) = (await session.read()).summaries
        assert summary.model == "extractive"


async def test_where_the_setting_forbids_it_the_dead_are_tried_again_by_themselves(
    store: Store, namespace: str, clock: Clock
) -> None:
    strategy = Bearing(ValueError("of the strategy's own"))
    settings = EAGER.model_copy(update={"extractive_after_s": 0.0, "max_attempts": 1, "max_backoff_s": 300.0})
    async with store.memory(namespace, settings) as memory:
        worker, eviction, session = Worker(memory.store, strategy), Eviction(memory.store), memory.session("a")
        await fill(session, 11, "poison")
        now_ms, waits_ms = T0, []
        assert await drain_at(worker, T0) == 0
        for tries in range(1, 4):
            info = await session.info()
            assert (info.queued, info.failure, info.attempts) == ("dead", "ValueError", 1)
            assert strategy.failures_count == tries
            died_ms = now_ms
            while (await session.info()).queued == "dead":
                now_ms += 100_000
                await clock.run_at(now_ms, eviction.sweep())
                await drain_at(Worker(memory.store, Bearing(ValueError())), now_ms - 100_000)
            waits_ms.append(now_ms - died_ms)
            await drain_at(worker, now_ms)
        assert waits_ms == [300_000, 600_000, 1_200_000]
        strategy.error = ModelFailed("never raised")
        await session.clear()
        await clock.run_at(now_ms, fill(session, 11))
        assert await drain_at(worker, now_ms) == 1
