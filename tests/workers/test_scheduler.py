"""Ticks of the scheduler. These tests wait for conditions, never for a time."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from functools import partial
from typing import Any

import anyio
import pytest
from support.checks import Panic, until
from support.clock import Clock
from support.redis_server import RedisServer
from support.stores import Store, workers_of
from support.writers import Echo, chat_message

from redismem import Memory, Session, Settings
from redismem.errors import InvalidSettings, SessionNotFound
from redismem.models import Draft
from redismem.store.store import Store as RedisStore
from redismem.workers.scheduler import Scheduler

NEVER = Settings(shards=2, tick_s=3_600)
OFTEN = Settings(shards=2, tick_s=0.02, max_backoff_s=0.01)


async def until_summarised(session: Session, count: int = 1) -> None:
    async def reached() -> bool:
        return len((await session.read()).summaries) >= count

    await until(reached)


async def until_idle(scheduler: Scheduler) -> None:
    """Wait until all running work has ended."""

    async def reached() -> bool:
        return not scheduler._running

    await until(reached)


async def test_an_append_that_overflows_is_summarised_without_a_tick(store: Store, namespace: str) -> None:
    async with store.memory(namespace, NEVER) as front:
        await front.session("earlier").append(*map(chat_message, range(1, 12)))
        async with store.memory(namespace, NEVER, workers=True) as memory:
            assert isinstance(workers_of(memory), Scheduler)
            await until_summarised(front.session("earlier"))  # by the tick at the start; the next one is an hour away
            await until_idle(workers_of(memory))
            session = memory.session("a")
            for number in range(1, 11):
                await session.append(chat_message(number))
            assert not workers_of(memory)._running, "ten are no reason to work"
            await session.append_and_read(chat_message(11))
            assert workers_of(memory)._running, "the append itself began it"
            await until_summarised(session)
            context = await session.read()
            assert [message.seq for message in context.messages] == list(range(6, 12))


async def test_an_append_given_again_wakes_nobody(store: Store, namespace: str) -> None:
    echo = Echo()
    async with store.memory(namespace, NEVER, workers=partial(Scheduler, strategy=echo)) as memory:
        assert isinstance(workers_of(memory), Scheduler)
        session = memory.session("a")
        await session.append(*map(chat_message, range(1, 12)), id="once")
        await until_summarised(session)
        await until_idle(workers_of(memory))
        assert (await session.append(*map(chat_message, range(1, 12)), id="once")).duplicate
        assert not workers_of(memory)._running
        assert len(echo.seen) == 1


async def test_a_tick_finds_what_others_appended(store: Store, namespace: str) -> None:
    async with store.memory(namespace, OFTEN) as front, store.memory(namespace, OFTEN, workers=True):
        session = front.session("a")
        await session.append(*map(chat_message, range(1, 12)))
        await until_summarised(session)


async def test_a_model_that_hangs_holds_up_no_tick(store: Store, namespace: str) -> None:
    echo = Echo()
    echo.hanging = "slow"
    async with store.memory(namespace, OFTEN) as front:
        await front.session("a").append(*(chat_message(number, "slow") for number in range(1, 12)))
        async with store.memory(namespace, OFTEN, workers=partial(Scheduler, strategy=echo)):
            await echo.started.wait()
            await front.session("b").append(*map(chat_message, range(1, 12)))
            await until_summarised(front.session("b"))
            assert (await front.session("a").info()).queued == "leased"
            echo.gate.set()


async def test_ticks_that_fail_lose_nothing(store: Store, namespace: str, raw: Any, caplog: Any) -> None:
    async with store.memory(namespace, OFTEN) as front:
        session, overdue = front.session("a"), front.store.keys.session("a").shard.overdue
        await session.append(*map(chat_message, range(1, 12)))
        await raw.rename(overdue, overdue + b":aside")
        await raw.set(overdue, "no queue")
        async with store.memory(namespace, OFTEN, workers=True):

            async def failed_often() -> bool:
                return sum("a drain stopped early" in record.message for record in caplog.records) >= 3

            await until(failed_often)
            assert (await session.read()).summaries == []
            await raw.rename(overdue + b":aside", overdue)
            await until_summarised(session)


async def test_two_schedulers_do_everything_once(store: Store, namespace: str, clock: Clock) -> None:
    settings = Settings(shards=2, tick_s=0.01, max_sessions=20)
    echoes = [Echo(), Echo()]
    evicted: list[str] = []

    async def on_evict(session_id: str, context: Any) -> None:
        evicted.append(session_id)

    makers = [partial(Scheduler, strategy=echo, on_evict=on_evict) for echo in echoes]
    async with store.memory(namespace, settings) as front:
        now_ms = await front.server_time_ms()
        for number in range(30):
            session = front.session(f"s-{number:02d}")
            await clock.run_at(now_ms - 100_000 + number * 1_000, session.append(*map(chat_message, range(1, 12))))
        async with (
            store.memory(namespace, settings, workers=makers[0]),
            store.memory(namespace, settings, workers=makers[1]),
        ):
            for number in range(10, 30):
                await until_summarised(front.session(f"s-{number:02d}"))

            async def within_the_limit() -> bool:
                return await front.count() == 20

            await until(within_the_limit)
    assert sorted(evicted) == [f"s-{number:02d}" for number in range(10)], "the oldest, each once, and no other"
    assert all(seqs == [1, 2, 3, 4, 5] for echo in echoes for seqs in echo.seen)
    async with store.memory(namespace, settings) as front:
        for number in range(10, 30):
            context = await front.session(f"s-{number:02d}").read()
            assert [(each.first_seq, each.last_seq) for each in context.summaries] == [(1, 5)]


async def test_stop_lets_what_is_in_hand_end(store: Store, namespace: str) -> None:
    echo = Echo()
    echo.hanging = "1"
    async with store.memory(namespace, NEVER) as front:
        session = front.session("a")
        async with store.memory(namespace, NEVER, workers=partial(Scheduler, strategy=echo)) as memory:
            await memory.session("a").append(*map(chat_message, range(1, 12)))
            await echo.started.wait()
            assert memory.workers is not None
            stopping = asyncio.create_task(memory.workers.stop())
            await memory.session("b").append(*map(chat_message, range(1, 12)))
            echo.gate.set()
            await stopping
            await memory.workers.stop()
        assert len((await session.read()).summaries) == 1
        assert (await front.session("b").info()).queued == "overdue", "nothing more was claimed"


async def test_stop_gives_back_what_does_not_end_in_time(store: Store, namespace: str) -> None:
    echo = Echo()
    echo.hanging = "1"
    async with store.memory(namespace, NEVER) as front:
        session = front.session("a")
        async with store.memory(namespace, NEVER, workers=partial(Scheduler, strategy=echo, stop_s=0.05)) as memory:
            await memory.session("a").append(*map(chat_message, range(1, 12)))
            await echo.started.wait()
            assert (await session.info()).queued == "leased"
        assert echo.cancelled_count == 1
        assert (await session.info()).queued == "overdue", "and not leased until the lease runs out"
        async with store.memory(namespace, NEVER, workers=True):
            await until_summarised(session)


async def test_a_cancel_scope_ends_the_workers_at_once_and_nothing_fails(
    redis_server: RedisServer, namespace: str, caplog: Any
) -> None:
    """A scope of anyio cancels each await within it, also those that close the memory."""
    echo = Echo()
    echo.hanging = "1"
    options: Any = {"namespace": namespace, "settings": NEVER}
    async with Memory.connect(redis_server.url, **options) as front:
        await front.ping()
        before = asyncio.all_tasks()
        with anyio.CancelScope() as scope:
            workers = partial(Scheduler, strategy=echo)
            async with Memory.connect(redis_server.url, **options, workers=workers) as memory:
                await memory.session("a").append(*map(chat_message, range(1, 12)))
                await echo.started.wait()
                scope.cancel()
                await anyio.sleep_forever()
        assert asyncio.all_tasks() == before
        assert echo.cancelled_count == 1
        assert (await front.session("a").info()).queued == "overdue"
    assert caplog.records == []
    gc.collect()  # a connection that is still open warns


class Closable(Echo):
    """A caller's strategy that can be closed."""

    closed = False

    async def aclose(self) -> None:
        self.closed = True


async def test_only_what_the_scheduler_opened_is_closed(store: Store, namespace: str) -> None:
    mine = Closable()
    async with store.memory(namespace, NEVER, workers=partial(Scheduler, strategy=mine)):
        pass
    assert not mine.closed

    def as_the_settings_say(store: RedisStore) -> Scheduler:
        return Scheduler(store)

    async with store.memory(namespace, NEVER, workers=as_the_settings_say) as memory:
        assert isinstance(workers_of(memory), Scheduler)
        assert len(workers_of(memory)._closes) == 1
    async with store.memory(namespace, Settings(shards=2, strategy="none"), workers=True) as memory:
        assert isinstance(workers_of(memory), Scheduler)
        assert workers_of(memory).worker is None


async def test_a_scheduler_with_only_an_on_evict_writes_summaries_as_the_settings_say(
    store: Store, namespace: str
) -> None:
    async def on_evict(session_id: str, context: Any) -> None: ...

    async with store.memory(namespace, NEVER, workers=partial(Scheduler, on_evict=on_evict)) as memory:
        session = memory.session("a")
        await session.append(*map(chat_message, range(1, 12)))
        await until_summarised(session)
        assert [summary.model for summary in (await session.read()).summaries] == ["extractive"]


async def test_connect_passes_on_evict_strategy_and_concurrency_to_its_workers(store: Store, namespace: str) -> None:
    echo, handed_over = Echo(), []

    async def on_evict(session_id: str, context: Any) -> None:
        handed_over.append(session_id)

    settings = Settings(shards=2, max_sessions=1, tick_s=0.02)
    options: dict[str, Any] = {"strategy": echo, "on_evict": on_evict, "concurrency": 3}
    async with store.memory(namespace, settings, workers=True, **options) as memory:
        session = memory.session("a")
        await session.append(*map(chat_message, range(1, 12)))
        await until_summarised(session)
        assert echo.seen == [[1, 2, 3, 4, 5]]
        await memory.session("b").append(chat_message(1))

        async def evicted() -> bool:
            return handed_over == ["a"]

        await until(evicted)
        assert isinstance(workers_of(memory), Scheduler)
        assert workers_of(memory).worker is not None
        assert workers_of(memory).worker.concurrency == 3


async def test_a_scheduler_without_a_strategy_still_evicts(store: Store, namespace: str) -> None:
    settings = Settings(shards=2, strategy="none", max_sessions=3, tick_s=0.02)
    async with store.memory(namespace, settings, workers=True) as memory:
        for number in range(5):
            await memory.session(f"s-{number}").append(chat_message(1))

        async def within_the_limit() -> bool:
            return await memory.count() == 3

        await until(within_the_limit)


async def begin_again(session: Session) -> None:
    """Append if the session is gone: a worker that has to wait for a busy machine lets sessions expire."""
    if not await session.exists():
        await session.append(chat_message(1))


async def test_a_session_with_a_timeout_of_two_polls_is_handed_over(store: Store, namespace: str) -> None:
    """A poll comes every half second."""
    evicted: list[str] = []

    async def on_evict(session_id: str, context: Any) -> None:
        evicted.append(session_id)

    settings = Settings(shards=2, tick_s=0.05, idle_timeout_s=1)
    async with store.memory(namespace, settings, workers=partial(Scheduler, on_evict=on_evict)) as memory:
        assert isinstance(workers_of(memory), Scheduler)
        await until_idle(workers_of(memory))

        async def handed_over() -> bool:
            if not evicted:
                await begin_again(memory.session("a"))
            return bool(evicted)

        await until(handed_over)
        assert set(evicted) == {"a"}


async def test_an_on_evict_that_hangs_lets_no_other_session_expire(store: Store, namespace: str) -> None:
    """The hour of its lease, after which it would fail, is longer than the test waits."""
    begun, gate = asyncio.Event(), asyncio.Event()

    async def on_evict(session_id: str, context: Any) -> None:
        begun.set()
        await gate.wait()

    settings = Settings(shards=2, tick_s=0.02, idle_timeout_s=0.5, lease_s=3_600)
    async with store.memory(namespace, settings, workers=partial(Scheduler, on_evict=on_evict)) as memory:

        async def has_begun() -> bool:
            await begin_again(memory.session("a"))
            return begun.is_set()

        await until(has_begun)
        now_ms = await memory.server_time_ms()

        async def chosen() -> bool:
            await begin_again(memory.session("b"))
            with contextlib.suppress(SessionNotFound):
                return (await memory.session("b").info()).expires_ms >= now_ms + 86_400_000
            return False

        await until(chosen)
        gate.set()


async def test_a_clock_that_panics_ends_one_drain_and_nothing_tells_its_words(
    store: Store, namespace: str, clock: Clock, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    panic = Panic("canary-7 in a panic")

    def panicking(clock: Clock) -> int:
        raise panic

    async with store.memory(namespace, NEVER) as memory:
        scheduler = Scheduler(memory.store, Echo())
        assert scheduler.worker is not None
        with monkeypatch.context() as patch:
            patch.setattr(Clock, "__call__", panicking)
            scheduler._start(scheduler.worker.drain)
            await until_idle(scheduler)
    gc.collect()
    assert "a drain stopped early: Panic" in caplog.text
    assert "canary-7" not in caplog.text


async def test_logs_name_sessions_by_their_hash_and_quote_nothing(store: Store, namespace: str, caplog: Any) -> None:
    caplog.set_level("DEBUG")
    echo = Echo()
    echo.failures.append(ValueError("canary-7 in an error"))
    echo.drafts.append(Draft("canary-7 in a summary", 0, 0, "m"))
    async with store.memory(namespace, OFTEN, workers=partial(Scheduler, strategy=echo)) as memory:
        session = memory.session("session-7")
        await session.append(*(chat_message(number, "canary-7") for number in range(1, 12)))
        await until_summarised(session)
    ours = [record for record in caplog.records if record.name.startswith("redismem")]
    assert len(ours) >= 2
    assert not any("canary-7" in record.getMessage() for record in caplog.records)
    assert not any("session-7" in record.getMessage() for record in ours), "a session is named by its hash"


async def test_what_cannot_be_handed_transcripts_is_refused_at_the_start(store: Store, namespace: str) -> None:
    wrong: Any = print
    async with store.memory(namespace, NEVER) as memory:
        with pytest.raises(InvalidSettings, match="async def on_evict"):
            Scheduler(memory.store, on_evict=wrong)


async def test_a_scheduler_whose_tick_hangs_is_not_ticking(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redismem.workers.scheduler._LOST_S", 0)
    hanging = Scheduler(memory.store)
    assert hanging.is_ticking, "it has not started yet"
    hanging._settings = Settings(tick_s=0.01)
    monkeypatch.setattr(hanging._leadership, "acquire", asyncio.Event().wait)
    await hanging.start()
    await until(lambda: asyncio.sleep(0, not hanging.is_ticking))
    hanging._stop_s = 0
    await hanging.stop()
