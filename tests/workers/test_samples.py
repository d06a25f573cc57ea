"""Samples: a dictionary is trained on the messages that Redis has at the training, and on no others."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from support.clock import Clock
from support.dictionaries import append_messages, fill_sessions, open_with
from support.stores import Store
from support.writers import Echo

from redismem import Memory, Session
from redismem.originals.training import Person
from redismem.workers import samples
from redismem.workers.dictionaries import RETRAIN_MS
from redismem.workers.samples import SAMPLE_BYTES, SESSION_LIMIT, SampledSessions
from redismem.workers.summaries import Worker

GONE = "Wilhelmina Quagga lives in Kalahari Road"


@asynccontextmanager
async def open_told(store: Store, namespace: str, clock: Clock) -> AsyncIterator[tuple[Memory, Worker]]:
    """Open a memory with five sessions that all contain GONE, and a worker that trains from the next session on."""
    async with open_with(store, namespace) as memory:
        worker = Worker(memory.store, Echo())
        for number in range(5):
            session = memory.session(f"told {number}")
            await session.append(*({"role": "user", "content": f"{GONE}, {at}"} for at in range(20)))
            await append_messages(session, 40, begin=1_000 * number)
            await worker.drain()
        yield memory, worker


@pytest.fixture(autouse=True)
def _soon_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "MIN_SAMPLE_BYTES", 15_000)
    monkeypatch.setattr(samples, "MIN_SESSIONS", 10)


async def clear(session: Session) -> None:
    await session.clear()


async def begin_again(session: Session) -> None:
    await session.clear()
    await append_messages(session, 40)


async def prune(session: Session) -> None:
    await session.prune(2)


async def rewrite(session: Session) -> None:
    await session.rewrite(1, [{"role": "user", "content": "nothing"}])


async def leave(session: Session) -> None:
    pass


@pytest.mark.parametrize("removal", [clear, begin_again, prune, rewrite, leave])
async def test_what_was_removed_before_the_training_is_not_in_it(
    removal: Any, store: Store, namespace: str, raw: Any, clock: Clock
) -> None:
    async with open_told(store, namespace, clock) as (memory, worker):
        for number in range(5):
            await removal(memory.session(f"told {number}"))
        await fill_sessions(memory, worker, 7)
        content = await raw.hget(memory.store.keys.dictionaries, "1")
        assert (GONE.encode() in content) is (removal is leave)
        assert (b"Quagga" in content) is (removal is leave)


@pytest.mark.parametrize("owner_count", [1, 2, 3])
async def test_sessions_of_one_owner_count_as_one_person(
    owner_count: int, store: Store, namespace: str, raw: Any, clock: Clock
) -> None:
    async with open_with(store, namespace) as memory:
        worker = Worker(memory.store, Echo())
        for number in range(6):
            session = memory.session(f"told {number}", owner=f"customer {number % owner_count}")
            await session.append(*({"role": "user", "content": f"{GONE}, 4711 times"} for _ in range(20)))
            await worker.drain()
        loaded = await worker._trainer._sessions.load(memory.store)
        assert set(loaded) == {Person(f"customer {number}", True) for number in range(owner_count)}
        assert all(len(blocks) >= 6 // owner_count for blocks in loaded.values()), "of each session at least one"
        await fill_sessions(memory, worker, 7)
        content = await raw.hget(memory.store.keys.dictionaries, "1")
        for text in (GONE.encode(), b"4711"):
            assert (text in content) is (owner_count == 3)


async def test_nothing_is_trained_if_all_was_cleared(store: Store, namespace: str, raw: Any, clock: Clock) -> None:
    async with open_told(store, namespace, clock) as (memory, worker):
        names = [f"told {number}" for number in range(5)]
        for number in range(4):
            names.append(f"also {number}")
            await append_messages(memory.session(names[-1]), 40)
            await worker.drain()
        for name in names:
            await memory.session(name).clear()
        await append_messages(memory.session("last"), 40)
        await worker.drain()
        assert not await raw.exists(memory.store.keys.dictionaries)


async def test_unreadable_sessions_are_passed_over(store: Store, namespace: str, raw: Any, clock: Clock) -> None:
    async with open_told(store, namespace, clock) as (memory, worker):
        keys = [memory.store.keys.session(f"told {number}") for number in range(3)]
        await raw.hset(keys[0].originals, "0", b"\3damaged")
        await raw.hset(keys[1].state, "counters", "x")
        await raw.delete(keys[2].originals)
        await raw.set(keys[2].originals, "x")
        await fill_sessions(memory, worker, 7)
        assert await raw.hkeys(memory.store.keys.dictionaries) == [b"1"]


async def test_no_text_stays_in_the_memory_of_the_worker(store: Store, namespace: str, clock: Clock) -> None:
    async with open_told(store, namespace, clock) as (_, worker):
        assert set(worker._trainer._sessions.__dict__) == {"_bytes_of", "_size_bytes"}
        assert all(type(size_bytes) is int for size_bytes in worker._trainer._sessions._bytes_of.values())


def test_the_number_of_sessions_and_their_bytes_are_bounded() -> None:
    noted = SampledSessions()
    for number in range(2 * SESSION_LIMIT):
        noted.note(str(number), 10)
        assert len(noted) <= SESSION_LIMIT
    assert not noted.is_enough
    for number in range(300):
        noted.note(str(number % 100), 9_000)
        assert sum(noted._bytes_of.values()) == noted._size_bytes <= SAMPLE_BYTES
    assert list(noted._bytes_of)[-1] == "99", "the newest come last"
    assert noted.is_enough


async def test_no_more_is_loaded_than_the_limit_and_the_newest_count(
    store: Store, namespace: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_told(store, namespace, clock) as (memory, worker):
        noted = worker._trainer._sessions
        whole = await noted.load(memory.store)
        sizes = {each: sum(map(len, itertools.chain(*blocks))) for each, blocks in whole.items()}
        assert all(sizes[person] <= noted._bytes_of[person.name] + 16 * 200 for person in sizes)
        monkeypatch.setattr(samples, "SAMPLE_BYTES", sum(sizes.values()) - 1)
        assert await noted.load(memory.store) == {person: whole[person] for person in list(whole)[1:]}
        for person in sizes:
            noted._bytes_of[person.name] = 1
        assert {name: len(blocks) for name, blocks in (await noted.load(memory.store)).items()} == dict.fromkeys(
            sizes, 1
        )


async def test_sessions_are_read_again_a_day_later(store: Store, namespace: str, raw: Any, clock: Clock) -> None:
    async with open_told(store, namespace, clock) as (memory, worker):
        await fill_sessions(memory, worker, 7)
        loaded = await worker._trainer._sessions.load(memory.store)
        names = [*(f"told {number}" for number in range(5)), *(f"other {number}" for number in range(7))]
        assert list(loaded) == [Person(name, False) for name in names]
        for name in names:
            await memory.session(name).clear()
        clock.now_ms += RETRAIN_MS
        assert await worker._trainer._sessions.load(memory.store) == {}
