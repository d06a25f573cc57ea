"""Records with many writers, lost replies, outages, and every transport."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import fakeredis
import pytest
import redis
import redis.asyncio
from support.faulty import Fault, Faulty
from support.proxy import How, Proxy
from support.redis_server import RedisServer
from support.stores import LONG_DEADLINES, PATIENCE, Store, short_deadlines

from redismem import Memory, RecordConflict, Settings, StoreUnavailable, WrongShards
from redismem.blocking import memory as blocking
from redismem.protocol.record import calls
from redismem.protocol.record.calls import WriteOutcome
from redismem.record import Change, Record

PATIENT = Settings(deadline_s=60, reply_timeout_s=0.5)
LOST: tuple[How, ...] = ("reset", "close", "truncate", "freeze")


@contextlib.asynccontextmanager
async def open_memory(kind: str, url: str, namespace: str) -> AsyncIterator[Memory]:
    """Open a memory over the lane, or over a redis-py client."""
    if kind == "lane":
        async with Memory.connect(url, namespace=namespace, settings=PATIENT) as memory:
            yield memory
        return
    client = redis.asyncio.Redis.from_url(url, socket_timeout=0.5)
    async with client, Memory.connect(client=client, namespace=namespace, settings=PATIENT) as memory:
        yield memory


@pytest.mark.parametrize("kind", ["lane", "redis-py"])
async def test_a_compare_and_set_is_made_once_though_its_reply_is_lost(proxy: Proxy, namespace: str, kind: str) -> None:
    async with open_memory(kind, proxy.url, namespace) as memory:
        record = memory.record("r")
        await record.write(Change(sets={b"n": b"0"}))
        for number, how in enumerate(LOST):
            change = Change(equals={b"n": b"%d" % number}, sets={b"n": b"%d" % (number + 1)}, adds=[b"%d" % number])
            proxy.break_next(how, to=b"EVALSHA")
            assert await record.write(change) is False
            assert proxy.broken_count == number + 1
        assert await record.get(b"n") == [b"%d" % len(LOST)]
        assert len((await record.page()).found) == len(LOST)


async def test_the_blocking_memory_makes_a_compare_and_set_once_too(proxy: Proxy, namespace: str) -> None:
    def write() -> tuple[bool, list[bytes | None]]:
        with blocking.Memory.connect(proxy.url, namespace=namespace, settings=PATIENT) as memory:
            record = memory.record("r")
            record.write(Change(sets={b"n": b"0"}))
            proxy.break_next("reset", to=b"EVALSHA")
            return record.write(Change(equals={b"n": b"0"}, sets={b"n": b"1"})), record.get(b"n")

    assert await asyncio.to_thread(write) == (False, [b"1"])


async def test_a_write_sent_again_overwrites_nobody_and_renews_the_expiry(memory: Memory, raw: Any) -> None:
    record, other = memory.record("r", ttl_s=60, tag="t"), memory.record("other", tag="t")
    first = calls.write(
        [(record.keys, Change(absent=[b"n"], sets={b"n": b"1"}, adds=[b"n"]))], None, memory.store.sender
    )
    assert await memory.store.run(first) is WriteOutcome.CREATED
    for number in range(1, 16):
        change = Change(equals={b"n": b"%d" % number}, sets={b"n": b"%d" % (number + 1)}, removes=[b"n"])
        assert await record.write(change, (other, Change(sets={b"o": b"1"}))) is True
    await raw.pexpire(record.keys.record, 1_000)
    assert await memory.store.run(first) is WriteOutcome.DUPLICATE
    assert (await record.get(b"n"), (await record.page()).found) == ([b"16"], [])
    assert await raw.pttl(record.keys.record) > 50_000
    await record.write(Change(equals={b"n": b"16"}, sets={b"n": b"17"}))
    with pytest.raises(RecordConflict):  # the seventeenth: no longer known
        await memory.store.run(first)
    twin = calls.write(
        [(record.keys, Change(present=[b"n"], sets={b"n": b"1"})), (other.keys, Change())], None, memory.store.sender
    )
    assert [await memory.store.run(twin) for _ in range(2)] == [WriteOutcome.OK, WriteOutcome.DUPLICATE]


@pytest.mark.parametrize(("fault", "left"), [("lost after", b"new"), ("lost before", None)])
async def test_a_resent_clear_spares_the_record_that_was_begun_since(
    namespace: str, fault: Fault, left: bytes | None
) -> None:
    server = fakeredis.FakeServer()
    faulty, client = Faulty(server), fakeredis.FakeAsyncRedis(server=server)
    async with Memory.connect(client=client, namespace=namespace, settings=LONG_DEADLINES) as other:
        memory = Memory.connect(client=faulty._client, namespace=namespace, settings=LONG_DEADLINES)
        memory.store.transport = faulty
        record, same = memory.record("r", owner="ann"), other.record("r", owner="ann")
        await record.write(Change(sets={b"n": b"old"}))

        async def write(seconds: float) -> None:
            del seconds
            await same.write(Change(sets={b"n": b"new"}))

        faulty.sleep = write  # type: ignore[method-assign]
        faulty.faults.append(fault)
        assert await record.clear(equals={b"n": b"old" if left else b"new"})
        assert not faulty.faults
        assert await same.get(b"n") == [left]
        assert [entry.owner for entry in (await other.records()).records] == ["ann"] * (left is not None)
        await memory.aclose()
    await faulty.aclose()
    await client.aclose()


async def test_a_write_is_made_once_however_many_other_memories_make_meanwhile(namespace: str) -> None:
    server = fakeredis.FakeServer()
    faulty, client = Faulty(server), fakeredis.FakeAsyncRedis(server=server)
    async with Memory.connect(client=client, namespace=namespace, settings=LONG_DEADLINES) as other:
        memory = Memory.connect(client=faulty._client, namespace=namespace, settings=LONG_DEADLINES)
        memory.store.transport = faulty
        record, same = memory.record("r"), other.record("r")
        await record.write(Change())

        async def write(seconds: float) -> None:
            del seconds
            for number in range(1, 40):
                change = Change(equals={b"n": b"%d" % number}, sets={b"n": b"%d" % (number + 1)})
                await same.write(change)

        faulty.sleep = write  # type: ignore[method-assign]
        faulty.faults.append("lost after")
        assert await record.write(Change(absent=[b"n"], sets={b"n": b"1"})) is False
        assert await same.get(b"n") == [b"40"]
        await memory.aclose()
    await faulty.aclose()
    await client.aclose()


async def test_a_write_called_after_a_clear_begins_a_new_record(redis_server: RedisServer, namespace: str) -> None:
    async with Memory.connect(redis_server.url, namespace=namespace) as memory:
        record = memory.record("r")
        for value in (b"1", b"2"):
            change = Change(sets_once={b"n": value})
            existed, _, found = await asyncio.gather(record.clear(), record.write(change), record.get(b"n"))
            assert (existed, found) == (value == b"2", [value])


async def test_of_fifty_racers_for_one_value_one_wins(redis_server: RedisServer, namespace: str) -> None:
    async def race(record: Record) -> bool:
        try:
            return await record.write(Change(absent=[b"lock"], sets={b"lock": b"same"}))
        except RecordConflict:
            return False

    async with contextlib.AsyncExitStack() as stack:
        places = [open_memory(kind, redis_server.url, namespace) for kind in ("lane", "redis-py") * 5]
        memories = [await stack.enter_async_context(place) for place in places]
        for number in range(5):
            won = await asyncio.gather(*(race(memory.record(f"r{number}")) for memory in memories * 5))
            assert (len(won), sum(won)) == (50, 1)


async def test_each_acknowledged_increment_counts_once_over_a_lossy_line(
    proxy: Proxy, redis_server: RedisServer, namespace: str
) -> None:
    async def count_up(record: Record) -> None:
        """Increment until this writer has been acknowledged three times.

        The others make no more than 15 increments, so a record still knows one that is sent again.
        """
        made = 0
        while made < 3:
            (value,) = await record.get(b"n")
            assert value is not None
            with contextlib.suppress(RecordConflict):
                await record.write(Change(equals={b"n": value}, sets={b"n": b"%d" % (int(value) + 1)}))
                made += 1

    async with (
        open_memory("lane", proxy.url, namespace) as lossy,
        open_memory("redis-py", proxy.url, namespace) as other,
        open_memory("lane", redis_server.url, namespace) as sound,
    ):
        await sound.record("r").write(Change(sets={b"n": b"0"}))
        proxy.break_next("reset", 6, to=b"EVALSHA")
        await asyncio.gather(*(count_up(memory.record("r")) for memory in (lossy, other, sound) * 2))
        assert await sound.record("r").get(b"n") == [b"18"]
        assert proxy.broken_count == 6


async def test_a_process_with_other_shards_is_refused_once_it_creates_a_record(
    store: Store, raw: Any, namespace: str
) -> None:
    """Redis was emptied, and a process with another number of shards has begun the namespace."""
    async with store.memory(namespace, Settings(shards=2)) as stale:
        await stale.record("a").write(Change())
        keys = [key async for key in raw.scan_iter(f"rm:{{{namespace}*")]
        await raw.delete(*keys)
        async with store.memory(namespace, Settings(shards=4)) as other:
            await other.record("a").write(Change(sets={b"n": b"1"}))
            stale.store.agreement._look_again_at_s = 0.0
            for call in (stale.record("b").write(Change()), stale.record("a").get(b"n"), stale.records()):
                with pytest.raises(WrongShards):
                    await call
            assert await other.record("a").get(b"n") == [b"1"]


async def test_records_are_refused_while_redis_is_away_even_with_the_fallback(proxy: Proxy, namespace: str) -> None:
    settings = Settings(**PATIENCE, fallback_after_s=20)
    async with Memory.connect(proxy.url, namespace=namespace, settings=settings, fallback=True) as memory:
        record = memory.record("r")
        await record.write(Change(sets={b"n": b"1"}, adds=[b"n"]))
        await memory.session("s").append({"role": "user", "content": "a"})
        await proxy.refuse()
        with short_deadlines(memory):
            for call in (
                record.write(Change(sets={b"n": b"2"})),
                *(record.get(b"n"), record.newest(), record.page(), record.walk(b"n"), record.drop(b"n")),
                *(record.clear(), record.exists(), record.touch(), memory.records()),
            ):
                with pytest.raises(StoreUnavailable):
                    await call
            assert (await memory.session("s").append({"role": "user", "content": "b"})).degraded
        await proxy.accept_again()
