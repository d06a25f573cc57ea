"""Fifty pods do not all poll the same queues: they elect leaders, and replace a leader that is gone."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import pytest
import redis.asyncio
from support.checks import until
from support.clock import T0, Clock
from support.redis_server import RedisServer
from support.stores import Store
from support.writers import Echo, chat_message

from redismem import Memory, Settings
from redismem.models import Draft
from redismem.protocol.namespace import holds
from redismem.workers.scheduler import Scheduler
from redismem.workers.strategies import Dropped

TICK_MS = 1_000


class Pods:
    """Memories with workers of one namespace. Only `tick` advances the time."""

    def __init__(self, stack: AsyncExitStack, clock: Clock, open_memory: Callable[[], Any]) -> None:
        self.clock = clock
        self._stack, self._open_memory = stack, open_memory

    async def open(self, **options: Any) -> Scheduler:
        memory: Memory = await self._stack.enter_async_context(self._open_memory())
        scheduler = Scheduler(memory.store, **options)
        self._stack.push_async_callback(scheduler.stop)
        return scheduler

    async def tick(self, *pods: Scheduler, count: int = 1) -> None:
        """Tick every pod in turn, once per second for this many seconds."""
        for _ in range(count):
            self.clock.now_ms += TICK_MS
            for pod in pods:
                await pod.tick()
                await asyncio.gather(*pod._running)


@pytest.fixture
async def pods(store: Store, namespace: str, clock: Clock) -> AsyncIterator[Pods]:
    async with AsyncExitStack() as stack:
        yield Pods(stack, clock, partial(store.memory, namespace, Settings(shards=4)))


@asynccontextmanager
async def fifty(server: RedisServer, namespace: str, clock: Clock) -> AsyncIterator[tuple[Pods, list[Scheduler]]]:
    """Fifty pods in one process, on connections of their own, with as many shards as there are by default."""
    settings = Settings(deadline_s=30, reply_timeout_s=30)
    open_memory = partial(Memory.connect, server.url, namespace=namespace, settings=settings, clock=clock)
    async with AsyncExitStack() as stack:
        pods = Pods(stack, clock, open_memory)
        yield pods, [await pods.open(strategy=Echo()) for _ in range(50)]


async def commands_of(client: Any, work: Any) -> Counter[str]:
    """Count how often the server ran each command in the meantime, within scripts too."""

    async def counted() -> Counter[str]:
        stats = await client.info("commandstats")
        return Counter({name.removeprefix("cmdstat_"): row["calls"] for name, row in stats.items()})

    before = await counted()
    await work
    found = await counted() - before
    del found["info"]
    return found


async def test_fifty_idle_pods_cost_less_than_three(redis_server: RedisServer, namespace: str, clock: Clock) -> None:
    async with (
        redis.asyncio.Redis(port=redis_server.port) as client,
        fifty(redis_server, namespace, clock) as (pods, all_of_them),
    ):
        await pods.tick(*all_of_them)  # each looks at all of it when it begins
        one = await commands_of(client, pods.tick(all_of_them[0], count=10))
        many = await commands_of(client, pods.tick(*all_of_them, count=10))
    assert one.total() < 10 * 180, f"{one} in 10 ticks of one pod; it was 323 a tick"
    assert many.total() < 3 * one.total(), f"{many} in 10 ticks of fifty pods, {one} of one"
    assert many["zcount"] == one["zcount"] == 10 * 64, "one of them looks for too many sessions"
    assert many["zrangebyscore"] - one["zrangebyscore"] <= 64, "and at the queues; at the leases now and then"


async def test_a_pod_that_died_is_replaced_within_three_ticks(pods: Pods) -> None:
    first, second = await pods.open(), await pods.open()
    await pods.tick(first, second)
    assert (len(first.holds), len(second.holds)) == (2, 0)
    held = []
    for _ in range(3):
        await pods.tick(second)  # the first one was killed, right after its tick
        held.append(len(second.holds))
    assert held == [0, 2, 2]
    await pods.tick(first, second)
    assert len(first.holds) == 0, "stopped, not killed: it finds that another has it"


async def test_who_stops_hands_over_at_once(pods: Pods) -> None:
    first, second = await pods.open(), await pods.open()
    await first.start()
    await until(lambda: asyncio.sleep(0, bool(first.holds)))
    await second.tick()
    assert second.holds == ()
    await first.stop()
    await second.tick()
    assert second.holds != ()


async def test_one_works_and_the_others_find_nothing_left(pods: Pods) -> None:
    echoes = [Echo(), Echo()]
    first, second = [await pods.open(strategy=echo) for echo in echoes]
    await pods.tick(first, second)
    memory = Memory(first._store)
    await memory.session("a").append(*map(chat_message, range(1, 12)))
    await pods.tick(second)
    assert echoes[1].seen == [], "it is the other's turn"
    await pods.tick(first, second)
    assert [len(echo.seen) for echo in echoes] == [1, 0]


async def test_a_backlog_is_everybodys(pods: Pods) -> None:
    """The leader has more work than it can do: other pods help, and no session is summarised twice."""
    echoes = [Slow(), Slow(), Slow()]
    makers = [await pods.open(strategy=echo, concurrency=2) for echo in echoes]
    await pods.tick(*makers)
    memory = Memory(makers[0]._store)
    for number in range(12):
        await memory.session(f"s-{number}").append(*map(chat_message, range(1, 12)))
    pods.clock.now_ms += TICK_MS
    await makers[0].tick()
    await until(partial(has_begun, echoes[0], 2))
    await makers[1].tick()
    await until(partial(idle, makers[1]))
    assert echoes[1].begun_count == 0, "nobody has said that there is too much"
    await makers[0].tick()
    for maker, echo in zip(makers[1:], echoes[1:], strict=True):
        await maker.tick()
        await until(partial(has_begun, echo, 2))
    for echo in echoes:
        echo.gate.set()
    for maker in makers:
        await until(partial(idle, maker))
    assert sum(echo.begun_count for echo in echoes) == 12
    await makers[0].tick()
    await makers[1].tick()
    found = await makers[0]._store.run(holds.ticking(makers[0]._store.keys))
    assert {each.is_crowded for each in found.holds.values()} == {False}


async def has_begun(echo: Slow, count: int) -> bool:
    return echo.begun_count == count


async def idle(scheduler: Scheduler) -> bool:
    return not scheduler._running


class Slow(Echo):
    """A strategy that waits until the test releases it."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.begun_count = 0

    async def compact(self, *given: Any) -> Draft | Dropped:
        self.begun_count += 1
        await self.gate.wait()
        return await super().compact(*given)


async def test_an_append_that_overflows_wakes_its_own_pod(pods: Pods) -> None:
    echo = Echo()
    first, second = await pods.open(), await pods.open(strategy=echo)
    await pods.tick(first)
    await second.start()
    await until(lambda: asyncio.sleep(0, bool(second._tick_count) and not second._running))
    memory = Memory(second._store, workers=second)
    await memory.session("a").append(*map(chat_message, range(1, 12)))
    await until(lambda: asyncio.sleep(0, len(echo.seen) == 1))


async def test_pods_that_are_set_up_differently_do_not_stand_in_for_each_other(pods: Pods) -> None:
    class Other(Echo):
        provider = "another"

    first, second, third = [await pods.open(**options) for options in ({"strategy": Echo()}, {"strategy": Other()}, {})]
    await pods.tick(third, first, second)
    assert (third.holds, first.holds) == (("evictions/1000/86400000", "summaries/Summarize"), ("summaries/Echo",))
    assert second.holds == ("summaries/another",)


async def test_who_fails_lets_others_try(pods: Pods, raw: Any, caplog: Any) -> None:
    first, second = await pods.open(strategy=Echo()), await pods.open(strategy=Echo())
    await pods.tick(first, second)
    assert "summaries/Echo" in first.holds

    async def fails() -> int:
        raise RuntimeError("no summaries here")

    assert first.worker is not None
    first.worker.drain = fails  # type: ignore[method-assign]
    await pods.tick(first, second, count=3)
    assert "summaries/Echo" in second.holds
    assert "evictions/1000/86400000" in first.holds, "what works goes on"


async def test_nobody_needs_the_holds(pods: Pods, raw: Any, caplog: Any) -> None:
    """A hold of a foreign type or form: every pod polls, and the work is still done once."""
    echoes = [Echo(), Echo()]
    first, second = [await pods.open(strategy=echo) for echo in echoes]
    await pods.tick(first, second)
    memory = Memory(first._store)
    for number, broken in enumerate(("a string", "a hash")):
        await raw.delete(first._store.keys.ticks)
        if broken == "a string":
            await raw.set(first._store.keys.ticks, "x")
        else:
            await raw.hset(first._store.keys.ticks, "summaries/Echo", "\xff")
        await memory.session(f"s-{number}").append(*map(chat_message, range(1, 12)))
        await pods.tick(second, first)
        assert sum(len(echo.seen) for echo in echoes) == number + 1
    assert any("leadership is unknown" in record.message for record in caplog.records)


async def test_a_paused_provider_is_noticed_where_another_drains(pods: Pods) -> None:
    """A pod that only summarises its own appends must learn when the provider is back."""
    first, second = [await pods.open(strategy=Echo()) for _ in range(2)]
    await pods.tick(first, second)
    worker: Any = second.worker
    worker._provider._pause_value = f"{T0} {T0} {T0 + 10**9} 1 ab refused".encode()
    assert worker._provider.is_paused
    await pods.tick(first, second)
    assert not worker._provider.is_paused


async def test_a_memory_tells_what_it_holds(store: Store, namespace: str) -> None:
    async with store.memory(namespace, Settings(shards=2), workers=True) as memory:
        await until(lambda: memory.health().holds == ("evictions/1000/86400000", "summaries/Summarize"))
    async with store.memory(namespace, Settings(shards=2)) as memory:
        assert memory.health().holds == ()
