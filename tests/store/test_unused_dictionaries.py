"""Unused dictionaries: dropped once no block names them, and never while a block might."""

from __future__ import annotations

from typing import Any

import pytest
from recall.test_recall import trips_of
from support.checks import until
from support.clock import Clock
from support.dictionaries import (
    append_messages,
    block_dictionaries,
    doctor,
    open_trained,
    open_with,
    texts,
    train_content,
)
from support.stores import Store
from support.writers import Echo

from redismem import Memory
from redismem.inspection.check import check
from redismem.originals.dictionaries import SETTLED_MS, Dictionary
from redismem.protocol.namespace import dictionaries
from redismem.store.unused_dictionaries import SEARCH_MS, drop_unused, find_named
from redismem.workers import samples
from redismem.workers.scheduler import Scheduler
from redismem.workers.summaries import Worker

NAMES = [f"other {number}" for number in range(6)]


@pytest.fixture(autouse=True)
def _soon_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "MIN_SAMPLE_BYTES", 10_000)
    monkeypatch.setattr(samples, "MIN_SESSIONS", 5)


async def search(memory: Memory, clock: Clock) -> list[int]:
    """Search a day later, and return the dictionaries that were dropped."""
    clock.now_ms += SEARCH_MS
    return await drop_unused(memory.store, clock.now_ms)


async def listing(memory: Memory) -> dictionaries.Listing:
    return await memory.store.run(dictionaries.listing(memory.store.keys))


async def clear_all(memory: Memory, *names: str) -> None:
    for name in (*NAMES, *names):
        await memory.session(name).clear()


async def test_it_goes_after_everything_was_cleared(store: Store, namespace: str, raw: Any, clock: Clock) -> None:
    async with open_trained(store, namespace, clock) as (memory, worker), open_with(store, namespace) as other:
        await append_messages(memory.session("a"), 40)
        await worker.drain()
        assert set(await block_dictionaries(memory, raw, "a")) == {1}
        key = memory.store.keys.dictionaries
        assert await search(memory, clock) == []
        assert (await listing(memory)).retired == set(), "the session needs it"
        await clear_all(memory, "a")
        assert await search(memory, clock) == []
        assert (await listing(memory)).retired == {1}
        assert await search(memory, clock) == [], "a session in quarantine may need it still"
        assert await search(memory, clock) == [1]
        assert not await raw.hexists(key, "1")
        await append_messages(other.session("b"), 40)
        other_worker = Worker(other.store, Echo())
        await other_worker.drain()
        await append_messages(memory.session("b"), 40, begin=40)
        await worker.drain()
        assert set(await block_dictionaries(memory, raw, "b")) == {None}
        assert not await raw.hexists(key, "1"), "no process stores it again from its memory"
        assert memory.store.dictionaries.keys() | other.store.dictionaries.keys() == set()
        assert (await doctor(memory)).text == "none trained"


async def test_a_block_written_after_the_search_keeps_it(store: Store, namespace: str, raw: Any, clock: Clock) -> None:
    async with open_trained(store, namespace, clock) as (memory, worker):
        await clear_all(memory)
        await search(memory, clock)
        await raw.hdel(memory.store.keys.dictionaries, "unused:1")  # as this worker still sees it
        await append_messages(memory.session("late"), 40)
        await worker.drain()
        assert set(await block_dictionaries(memory, raw, "late")) == {1}
        await raw.hset(memory.store.keys.dictionaries, "unused:1", clock.now_ms)
        await append_messages(memory.session("later"), 40)
        clock.now_ms += SETTLED_MS
        await worker.drain()
        assert set(await block_dictionaries(memory, raw, "later")) == {None}, "no new block uses a retired dictionary"
        for _ in range(3):
            assert await search(memory, clock) == []
            assert (await listing(memory)).retired == set(), "it is in use again"
            await memory.session("late").touch()
            await memory.session("later").touch()
        await append_messages(memory.session("new"), 40)
        await worker.drain()
        assert 1 in await block_dictionaries(memory, raw, "new")
        assert [violation async for violation in check(memory.store)] == []


async def test_numbers_are_never_used_again(store: Store, namespace: str, raw: Any, clock: Clock) -> None:
    async with open_trained(store, namespace, clock) as (memory, _):
        await clear_all(memory)
        for _ in range(3):
            await search(memory, clock)
        assert (await listing(memory)).dropped == {1}
        worker = Worker(memory.store, Echo())
        for name in NAMES:
            await append_messages(memory.session(name), 40)
            await worker.drain()
        assert (await listing(memory)).versions == [2]
        clock.now_ms += SETTLED_MS
        await append_messages(memory.session("a"), 40)
        await worker.drain()
        assert set(await block_dictionaries(memory, raw, "a")) == {2}
        assert len(await texts(memory.session("a"))) == 40
        assert "present" in (await doctor(memory)).text


async def test_one_that_returned_is_not_used_and_goes_again(
    store: Store, namespace: str, raw: Any, clock: Clock
) -> None:
    async with open_trained(store, namespace, clock) as (memory, worker):
        key, stored = memory.store.keys.dictionaries, await raw.hget(memory.store.keys.dictionaries, "1")
        await clear_all(memory)
        for _ in range(3):
            await search(memory, clock)
        await raw.hset(key, "1", stored)  # by a worker that had listed them before the drop
        await append_messages(memory.session("a"), 40)
        await worker.drain()
        assert set(await block_dictionaries(memory, raw, "a")) == {None}
        assert await drop_unused(memory.store, clock.now_ms) == []
        assert not await raw.hexists(key, "1")


async def test_processes_search_once_a_day_in_all(store: Store, namespace: str, clock: Clock) -> None:
    async with open_trained(store, namespace, clock) as (memory, _), open_with(store, namespace) as other:
        clock.now_ms += SEARCH_MS
        for store_of in (memory.store, other.store, memory.store):
            await drop_unused(store_of, clock.now_ms)
        with trips_of(other) as sent:
            clock.now_ms += SEARCH_MS - 1
            await drop_unused(other.store, clock.now_ms)
        assert len(sent) == 2, "the listing, and the time of the last search"


async def test_a_search_ends_at_the_first_block_that_names_it(store: Store, namespace: str, clock: Clock) -> None:
    async with open_trained(store, namespace, clock) as (memory, worker):
        for number in range(40):
            await append_messages(memory.session(f"a {number}"), 20)
        await worker.drain()
        with trips_of(memory) as sent:
            assert await find_named(memory.store, {1}) == {1}
        few = len(sent)
        with trips_of(memory) as sent:
            assert await find_named(memory.store, {1, 200}) == {1}
        assert few < len(sent) / 2


async def test_all_pages_of_sessions_are_searched(store: Store, namespace: str, raw: Any, clock: Clock) -> None:
    async with open_trained(store, namespace, clock) as (memory, worker):
        names = [f"a {number}" for number in range(4)]
        for name in names:
            await append_messages(memory.session(name), 20)
            await worker.drain()
        for shard in memory.store.keys.shards():
            await raw.zadd(shard.active, {f"gone {number}": clock.now_ms for number in range(1_000)})
        for name in names:
            others = [memory.session(other) for other in names if other != name]
            stored = [await raw.dump(memory.store.keys.session(other.id).originals) for other in others]
            for other in others:
                await raw.delete(memory.store.keys.session(other.id).originals)
            assert await find_named(memory.store, {1}) == {1}, name
            for other, dumped in zip(others, stored, strict=True):
                await raw.restore(memory.store.keys.session(other.id).originals, 0, dumped)


async def test_foreign_keys_and_entries_are_passed_over(store: Store, namespace: str, raw: Any, clock: Clock) -> None:
    async with open_trained(store, namespace, clock) as (memory, worker):
        keys = memory.store.keys.session("other 0")
        await raw.delete(keys.originals)
        await raw.set(keys.originals, "x")
        await raw.zadd(keys.shard.active, {" no session id": clock.now_ms})
        assert await find_named(memory.store, {1}) == set()
        await append_messages(memory.session("a"), 40)
        await worker.drain()
        assert await find_named(memory.store, {1, 2}) == {1}


async def test_a_young_or_unreadable_dictionary_stays(store: Store, namespace: str, raw: Any, clock: Clock) -> None:
    async with open_with(store, namespace) as memory:
        key = memory.store.keys.dictionaries
        clock.now_ms += 10 * SEARCH_MS
        young = Dictionary(1, clock.now_ms - SEARCH_MS + 1, train_content())
        await memory.store.run(dictionaries.add(memory.store.keys, young))
        await raw.hset(key, "2", b"\0" * 8 + b"unreadable")
        assert await drop_unused(memory.store, clock.now_ms) == []
        assert (await listing(memory)).retired == set()
        for _ in range(4):
            await search(memory, clock)
        assert (await listing(memory)).versions == [2]


async def test_the_scheduler_searches(store: Store, namespace: str, raw: Any, clock: Clock) -> None:
    async with open_trained(store, namespace, clock) as (memory, _):
        await clear_all(memory)
        clock.now_ms += SEARCH_MS
        scheduler = Scheduler(memory.store, Echo())
        await scheduler.tick()

        async def is_retired() -> bool:
            return (await listing(memory)).retired == {1}

        await until(is_retired)
        await scheduler.stop()
        assert await raw.hget(memory.store.keys.dictionaries, "searched") == b"%d" % clock.now_ms
