"""Dictionaries of a namespace: trained beside the summaries, used once they are settled, and never missed silently."""

from __future__ import annotations

import asyncio
import random
import signal
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio
from support.clock import T0, Clock
from support.dictionaries import (
    OTHER_WORDS,
    append_messages,
    block_dictionaries,
    doctor,
    fill_sessions,
    make_message,
    open_trained,
    open_with,
    texts,
    train_content,
)
from support.pods import start_pod
from support.quarantined import quarantine_of
from support.redis_server import RedisServer
from support.stores import Store
from support.writers import Echo

from redismem.inspection.check import check, check_session
from redismem.originals.dictionaries import SETTLED_MS, Dictionary
from redismem.protocol.namespace import dictionaries
from redismem.workers import samples
from redismem.workers.archive import JsonlArchive, read_archive
from redismem.workers.dictionaries import MAX_DICTIONARIES, Trainer
from redismem.workers.eviction import Eviction
from redismem.workers.summaries import Worker

TESTS = Path(__file__).parents[1]
DAY_MS = 86_400_000


@pytest.fixture(autouse=True)
def _soon_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the limits: a test does not write a quarter of a megabyte."""
    monkeypatch.setattr(samples, "MIN_SAMPLE_BYTES", 10_000)
    monkeypatch.setattr(samples, "MIN_SESSIONS", 5)


async def test_it_is_trained_and_used_a_minute_later(store: Store, namespace: str, raw: Any, clock: Clock) -> None:
    async with open_with(store, namespace) as memory:
        worker, session = Worker(memory.store, Echo()), memory.session("a")
        await append_messages(session, 60)
        await worker.drain()
        await fill_sessions(memory, worker)
        (version,) = await raw.hkeys(memory.store.keys.dictionaries)
        assert version == b"1"
        assert await raw.pttl(memory.store.keys.dictionaries) == -1
        await append_messages(session, 26, begin=60)
        await worker.drain()
        assert set(await block_dictionaries(memory, raw, "a")) == {None}, "a failover may lose it still"
        clock.now_ms += SETTLED_MS
        await append_messages(session, 60, begin=86)
        await worker.drain()
        assert await block_dictionaries(memory, raw, "a") == [None, 1, 1], "blocks that are merged are written anew"
        assert await texts(session) == [make_message(number, "minea")["content"] for number in range(146)]
        assert [violation async for violation in check(memory.store)] == []
        assert "present" in (await doctor(memory)).text
        assert b"mineother" not in await raw.hget(memory.store.keys.dictionaries, "1")


async def test_whatever_is_done_with_originals_works_with_one(
    store: Store, namespace: str, raw: Any, clock: Clock, tmp_path: Path
) -> None:
    async with open_trained(store, namespace, clock) as (memory, worker), open_with(store, namespace) as fresh:
        session, there = memory.session("a"), fresh.session("a")
        await session.append({"role": "user", "content": "The dog is Biscuit."}, pin=True)
        await append_messages(session, 70)
        await worker.drain()
        assert set(await block_dictionaries(memory, raw, "a")) == {1}
        wanted = await texts(session)
        assert len(wanted) == 71
        assert await texts(there) == wanted
        (found,) = [each for each in await there.recall(f"{wanted[7]}", limit=1) if each.seq == 8]
        assert found.content == wanted[7]
        await there.replace(1, {"role": "user", "content": "The dog is Rex."})
        await there.unpin(1)
        assert (await there.messages(include_originals=True))[0].content == "The dog is Rex."
        assert set(await block_dictionaries(memory, raw, "a")) == {1}
        assert await check_session(fresh.store, "a") == []
        clock.now_ms += 10 * DAY_MS
        await Eviction(fresh.store, JsonlArchive(tmp_path / "archive")).enforce()
        archived = next(each for each in read_archive(tmp_path / "archive") if each.session_id == "a")
        assert [message.content for message in archived.messages] == ["The dog is Rex.", *wanted[1:]]
        assert not await there.exists()


async def test_prune_and_clear_leave_the_dictionary(store: Store, namespace: str, raw: Any, clock: Clock) -> None:
    async with open_trained(store, namespace, clock) as (memory, worker):
        session = memory.session("a")
        for removed in (session.prune(2), session.clear()):
            await append_messages(session, 60)
            await worker.drain()
            assert 1 in await block_dictionaries(memory, raw, "a")
            await removed
            assert await block_dictionaries(memory, raw, "a") == []
        assert await raw.hlen(memory.store.keys.dictionaries) == 1


async def test_none_is_trained_or_used_where_that_is_off(store: Store, namespace: str, raw: Any, clock: Clock) -> None:
    async with open_trained(store, namespace, clock) as (memory, _):
        await append_messages(memory.session("a"), 40)
        async with open_with(store, namespace, train_dictionaries=False) as other:
            worker = Worker(other.store, Echo())
            await worker.drain()
            assert set(await block_dictionaries(memory, raw, "a")) == {None}
            assert await texts(other.session("other 1")) == await texts(memory.session("other 1"))
    async with open_with(store, f"{namespace}-off", train_dictionaries=False) as memory:
        await fill_sessions(memory, Worker(memory.store, Echo()))
        assert not await raw.exists(memory.store.keys.dictionaries)


@pytest.mark.parametrize("fault", ["missing", "foreign", "broken"])
async def test_blocks_wait_for_their_dictionary(
    fault: str, store: Store, namespace: str, raw: Any, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_with(store, namespace) as memory:
        await append_messages(memory.session("a"), 81)
        worker = Worker(memory.store, Echo())
        await worker.drain()
        await fill_sessions(memory, worker)
        clock.now_ms += SETTLED_MS
        await append_messages(memory.session("a"), 40, begin=81)
        await worker.drain()
        assert await block_dictionaries(memory, raw, "a") == [None, 1, 1, 1, 1]
        key = memory.store.keys.dictionaries
    good = await raw.hget(key, "1")
    if fault == "missing":
        await raw.hdel(key, "1")
    else:
        await raw.hset(key, "1", b"\0" * 8 + (train_content() if fault == "foreign" else b"x"))
    async with open_with(store, namespace) as memory:
        session = memory.session("a")
        (violation, *others) = await check_session(memory.store, "a")
        assert violation.invariant == "I15"
        assert "block 4 of the originals cannot be read: a block of originals needs dictionary 1, " in violation.text
        assert len(others) == 3
        said = {"missing": "none trained", "foreign": "1 of 1 present", "broken": "missing or unreadable: 1 of 1"}
        assert (await doctor(memory)).text == said[fault]
        read = await texts(session)
        window = len((await session.read()).messages)
        wanted = [make_message(number, "minea")["content"] for number in range(121)]
        assert read == wanted[:64] + wanted[121 - window :]
        assert await texts(session) == read
        assert await block_dictionaries(memory, raw, "a") == [None, 1, 1, 1, 1], "they wait for it"
        (line,) = [record for record in caplog.records if getattr(record, "error", "") == "DictionaryMissing"]
        assert "needs dictionary 1, " in line.message
    await raw.hset(key, "1", good)
    async with open_with(store, namespace) as memory:
        assert await texts(memory.session("a")) == wanted
        assert await check_session(memory.store, "a") == []


async def test_the_begun_block_does_not_wait_as_another_is_written_in_its_place(
    store: Store, namespace: str, raw: Any, clock: Clock
) -> None:
    async with open_trained(store, namespace, clock) as (memory, worker), open_with(store, namespace) as fresh:
        await append_messages(memory.session("a"), 30)
        await worker.drain()
        assert await block_dictionaries(memory, raw, "a") == [1, 1]
        await raw.hdel(memory.store.keys.dictionaries, "1")
        await append_messages(fresh.session("a"), 30, begin=30)
        await Worker(fresh.store, Echo()).drain()
        assert (await block_dictionaries(memory, raw, "a"))[:2] == [1, None]
        (aside,) = [key async for key in raw.scan_iter(quarantine_of(fresh.store.keys.session("a")) + b":*:originals")]
        assert await raw.hkeys(aside) == [b"1"]


async def test_one_that_a_failover_lost_is_put_back_by_who_knows_it(
    store: Store, namespace: str, raw: Any, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_trained(store, namespace, clock) as (memory, worker):
        await append_messages(memory.session("a"), 40)
        await worker.drain()
        key = memory.store.keys.dictionaries
        lost = await raw.hget(key, "1")
        await raw.delete(key)
        clock.now_ms += 60_000
        await append_messages(memory.session("b"), 40)
        await worker.drain()
        assert await raw.hget(key, "1") == lost
        assert "dictionary 1 was missing from Redis and was restored" in caplog.text
        async with open_with(store, namespace) as fresh:
            assert await texts(fresh.session("a")) == await texts(memory.session("a"))


async def test_two_that_train_at_once_agree_on_one(store: Store, namespace: str, raw: Any, clock: Clock) -> None:
    async with open_with(store, namespace) as memory, open_with(store, namespace) as other:
        async with open_with(store, namespace, train_dictionaries=False) as third:
            await fill_sessions(third, Worker(third.store, Echo()))
        trainers = Trainer(memory.store), Trainer(other.store)
        for trainer in trainers:
            for number in range(6):
                trainer.note(f"other {number}", [b"x" * 5_000])
            assert await trainer.dictionary(clock.now_ms) is None
        assert sorted(await asyncio.gather(*(trainer.train() for trainer in trainers))) == [False, True]
        assert await raw.hkeys(memory.store.keys.dictionaries) == [b"1"]
        clock.now_ms += SETTLED_MS
        used = [await trainer.dictionary(clock.now_ms) for trainer in trainers]
        assert {each.content for each in used if each} == {(await raw.hget(memory.store.keys.dictionaries, "1"))[8:]}
        assert not any([await trainer.train() for trainer in trainers]), "not again so soon"


async def test_another_comes_a_day_later_and_only_if_it_is_better(
    store: Store, namespace: str, raw: Any, clock: Clock
) -> None:
    async with open_trained(store, namespace, clock) as (memory, worker):
        key = memory.store.keys.dictionaries
        clock.now_ms += DAY_MS
        await append_messages(memory.session("more"), 40, begin=9_000)
        await worker.drain()
        assert await raw.hkeys(key) == [b"1"], "it would be the same"
        clock.now_ms += DAY_MS
        worker = Worker(memory.store, Echo())  # another process
        for number in range(6):
            chosen = random.Random(number)
            news = [{"role": "user", "content": " ".join(chosen.choices(OTHER_WORDS, k=14))} for _ in range(50)]
            await memory.session(f"new {number}").append(*news)
            await worker.drain()
            clock.now_ms += DAY_MS
        assert sorted(await raw.hkeys(key)) == [b"1", b"2"]
        clock.now_ms += SETTLED_MS
        await append_messages(memory.session("a"), 40)
        await worker.drain()
        assert set(await block_dictionaries(memory, raw, "a")) == {2}
        assert set(await block_dictionaries(memory, raw, "other 3")) <= {None, 1}
        async with open_with(store, namespace) as fresh:
            for name in ("a", "other 3", "new 2", "new 5"):
                assert await texts(fresh.session(name)) == await texts(memory.session(name))


async def test_there_are_never_too_many(store: Store, namespace: str, raw: Any, clock: Clock) -> None:
    async with open_with(store, namespace) as memory:
        for version in range(1, MAX_DICTIONARIES + 1):
            await memory.store.run(
                dictionaries.add(memory.store.keys, Dictionary(version, T0 - DAY_MS, train_content()))
            )
        await fill_sessions(memory, Worker(memory.store, Echo()))
        assert await raw.hlen(memory.store.keys.dictionaries) == MAX_DICTIONARIES
        assert not await memory.store.run(dictionaries.add(memory.store.keys, Dictionary(3, 0, train_content(1))))
        assert (await raw.hget(memory.store.keys.dictionaries, "3"))[8:] == train_content(), "none is ever changed"


async def test_a_key_of_a_foreign_type_keeps_no_summary_from_being_made(
    store: Store, namespace: str, raw: Any, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_with(store, namespace) as memory:
        await raw.set(memory.store.keys.dictionaries, "x")
        await fill_sessions(memory, Worker(memory.store, Echo()))
        assert len(await texts(memory.session("other 5"))) == 40
        assert "the dictionaries cannot be read" in caplog.text
        assert "no dictionary was trained" in caplog.text


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_worker_that_is_killed_while_it_trains_loses_nothing(
    when: str, redis_server: RedisServer, namespace: str
) -> None:
    store = Store(lambda: redis.asyncio.Redis(port=redis_server.port), None)
    async with open_with(store, namespace) as memory, store.client() as raw:
        names = [f"other {number}" for number in range(6)]
        for name in names:
            await append_messages(memory.session(name), 40)
        with start_pod("train", redis_server.url, namespace, when) as pod:
            assert await asyncio.to_thread(pod.wait, 60) == -signal.SIGKILL
        assert await raw.hlen(memory.store.keys.dictionaries) == (when == "after")
        worker = Worker(memory.store, Echo())
        for name in (*names, "a"):
            await append_messages(memory.session(name), 40, begin=40)
            await worker.drain()
        assert await raw.hkeys(memory.store.keys.dictionaries) == [b"1"], "another trains it, if nobody has"
        for name in names:
            secret = "mine" + name.replace(" ", "")
            assert await texts(memory.session(name)) == [
                make_message(number, secret)["content"] for number in range(80)
            ]
        assert [violation async for violation in check(memory.store)] == []
