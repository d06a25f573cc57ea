"""The session limit and the timeout: which sessions go, which stay, and what is handed over. On both stores."""

from __future__ import annotations

import asyncio
import json
import stat
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.clock import T0, Clock
from support.examples import queue_members
from support.stores import Store
from support.writers import Echo, chat_message, fill

from redismem import Memory, Settings
from redismem.context.context import Context
from redismem.protocol.layout import counters
from redismem.workers.archive import JsonlArchive
from redismem.workers.eviction import Eviction
from redismem.workers.summaries import Worker

TIMEOUT_MS = 86_400_000


class Archive:
    """An on_evict that records transcripts, after running the test's hook."""

    def __init__(self) -> None:
        self.contexts: dict[str, Context] = {}
        self.times: Counter[str] = Counter()
        self.failing = False
        self.before: Any = None

    async def __call__(self, session_id: str, context: Context) -> None:
        if self.failing:
            raise OSError("the disk is full")
        if self.before is not None:
            await self.before(session_id)
        self.contexts[session_id] = context
        self.times[session_id] += 1


async def begin(memory: Memory, clock: Clock, count: int, first: int = 0) -> None:
    """Create sessions one second apart, oldest first, fewer at a time than the client has connections."""
    numbers = range(first, first + count)
    for at in range(0, count, 50):
        these = numbers[at : at + 50]
        appends = [memory.session(f"s-{number}").append(chat_message(number)) for number in these]
        await asyncio.gather(*map(clock.run_at, (T0 + number * 1_000 for number in these), appends))


async def test_the_oldest_goes_when_one_too_many_comes(
    store: Store, namespace: str, tmp_path: Path, clock: Clock
) -> None:
    archive, file = Archive(), JsonlArchive(tmp_path / "archive.jsonl")

    async def both(session_id: str, context: Context) -> None:
        await archive(session_id, context)
        await file(session_id, context)

    async with store.memory(namespace, Settings(max_sessions=200)) as memory:
        eviction = Eviction(memory.store, both)
        oldest = memory.session("s-7")
        await begin(memory, clock, 200)
        await clock.run_at(T0 + 2_000_000, memory.session("s-0").touch())
        for number in range(1, 7):
            await clock.run_at(T0 + 2_000_000, memory.session(f"s-{number}").append(chat_message(2)))
        await clock.run_at(T0 + 7_000, oldest.merge({"name": "Ada"}))
        await clock.run_at(T0 + 7_500, oldest.append(chat_message(2)))
        assert await clock.run_at(T0 + 2_000_000, eviction.enforce()) == 0, "two hundred are within the limit"
        await begin(memory, clock, 1, first=200)
        assert await clock.run_at(T0 + 2_000_000, eviction.enforce()) == 1
        assert await queue_members(memory, "active") == {f"s-{number}" for number in range(201)} - {"s-7"}
        assert not await oldest.exists()
    assert archive.times == {"s-7": 1}
    handed = archive.contexts["s-7"]
    assert [message.to_openai() for message in handed.messages] == [chat_message(7), chat_message(2)]
    assert handed.state.params == {"name": "Ada"}
    (line,) = (tmp_path / "archive.jsonl").read_text().splitlines()
    kept = json.loads(line)
    assert (kept["session_id"], kept["messages"], kept["epoch"]) == (
        "s-7",
        [chat_message(7), chat_message(2)],
        handed.epoch,
    )
    assert kept["state"]["params"] == {"name": "Ada"}


async def test_nothing_of_an_evicted_session_is_left(store: Store, namespace: str, raw: Any, clock: Clock) -> None:
    async with store.memory(namespace, Settings(shards=1, max_sessions=1, keep_originals=True)) as memory:
        archive = Archive()
        await fill(memory.session("old"), 30)
        await clock.run_at(T0, Worker(memory.store, Echo()).drain())
        await fill(memory.session("old"), 6)
        await clock.run_at(T0 + 1_000, fill(memory.session("new"), 1))
        assert await clock.run_at(T0 + 1_000, Eviction(memory.store, archive).enforce()) == 1
        handed = archive.contexts["old"]
        assert [message.seq for message in handed.messages] == list(range(1, 37)), "with the originals"
        assert len(handed.summaries) == 1
        left = [key async for key in raw.scan_iter(match=f"rm:{{{namespace}:*")]
        assert not any(b"old" in key for key in left)
        queues = [key for key in left if await raw.type(key) == b"zset"]
        assert {member for key in queues for member in await raw.zrange(key, 0, -1)} == {b"new"}


async def test_idle_sessions_are_marked_and_go(store: Store, namespace: str, raw: Any, clock: Clock) -> None:
    async with store.memory(namespace, Settings(shards=2, tick_s=0.01, lease_s=0.05)) as memory:
        archive = Archive()
        eviction = Eviction(memory.store, archive)
        await begin(memory, clock, 10)
        now_ms = T0 + TIMEOUT_MS + 4_001
        assert await clock.run_at(now_ms, memory.count()) == 5, (
            "a session past its timeout counts no more, with or without a worker"
        )
        assert await clock.run_at(now_ms, eviction.queue_idle()) == 5
        idle = {f"s-{number}" for number in range(5)}
        assert await queue_members(memory, "evictions") == idle
        for number in range(10):
            reason = counters(await raw.hget(memory.store.keys.session(f"s-{number}").state, "counters")).evicting
            assert reason == ("idle" if number < 5 else None)
        assert await clock.run_at(now_ms, eviction.queue_idle()) == 0, "once is enough"
        assert await clock.run_at(now_ms, eviction.drain()) == 5
        assert set(archive.times) == idle
        assert await queue_members(memory, "active") == {f"s-{number}" for number in range(5, 10)}


@pytest.mark.parametrize("touching", ["append", "touch", "merge"])
async def test_a_session_in_use_again_leaves_the_queue(
    store: Store, namespace: str, touching: str, clock: Clock
) -> None:
    async with store.memory(namespace, Settings(shards=2)) as memory:
        eviction, session = Eviction(memory.store), memory.session("s-0")
        await begin(memory, clock, 2)
        now_ms = T0 + TIMEOUT_MS + 10_000
        assert await clock.run_at(now_ms, eviction.queue_idle()) == 2
        if touching == "append":
            await clock.run_at(now_ms, session.append(chat_message(2)))
        elif touching == "touch":
            await clock.run_at(now_ms, session.touch())
        else:
            await clock.run_at(now_ms, session.update(merge={"a": 1}))
        assert await queue_members(memory, "evictions") == {"s-1"}
        assert await clock.run_at(now_ms, eviction.enforce()) == 1
        assert await queue_members(memory, "active") == {"s-0"}


async def test_a_message_while_the_transcript_is_handed_over_saves_the_session(
    store: Store, namespace: str, clock: Clock
) -> None:
    async with store.memory(namespace, Settings(shards=2, max_sessions=1)) as memory:
        archive = Archive()
        eviction = Eviction(memory.store, archive)
        await begin(memory, clock, 2)

        async def append(session_id: str) -> None:
            await clock.run_at(T0 + 500, memory.session(session_id).append(chat_message(2)))

        archive.before = append
        assert await clock.run_at(T0 + 2_000, eviction.enforce()) == 0
        assert len((await memory.session("s-0").read()).messages) == 2
        archive.before = None
        assert await clock.run_at(T0 + 2_000, eviction.enforce()) == 1
        assert archive.times == {"s-0": 2}
        assert len(archive.contexts["s-0"].messages) == 2, "the last one handed over is whole"
        assert await queue_members(memory, "active") == {"s-1"}


async def test_a_session_stays_until_it_could_be_handed_over(store: Store, namespace: str, clock: Clock) -> None:
    async with store.memory(namespace, Settings(shards=2, max_sessions=3)) as memory:
        archive = Archive()
        archive.failing = True
        eviction = Eviction(memory.store, archive)
        await begin(memory, clock, 5)
        for after_ms in (0, 1_000, 31_000):
            assert await clock.run_at(T0 + 10_000 + after_ms, eviction.enforce()) == 0
            assert len(await queue_members(memory, "active")) == 5
            assert await queue_members(memory, "evictions") == {"s-0", "s-1"}, "no others are chosen in their place"
        archive.failing = False
        assert await clock.run_at(T0 + 41_000, eviction.enforce()) == 0, "held a while since the last attempt"
        assert await clock.run_at(T0 + 72_000, eviction.enforce()) == 2
        assert await queue_members(memory, "active") == {"s-2", "s-3", "s-4"}


async def test_two_that_enforce_one_limit_evict_no_more_than_one_would(
    store: Store, namespace: str, clock: Clock
) -> None:
    async with store.memory(namespace, Settings(shards=4, max_sessions=25)) as memory:
        archive = Archive()
        await begin(memory, clock, 60)
        both = [Eviction(memory.store, archive), Eviction(memory.store, archive)]
        evicted = await asyncio.gather(*(clock.run_at(T0 + 200_000, eviction.enforce()) for eviction in both))
        assert sum(evicted) == 35
        assert archive.times == dict.fromkeys((f"s-{number}" for number in range(35)), 1)
        assert await queue_members(memory, "active") == {f"s-{number}" for number in range(35, 60)}


async def test_what_others_evict_meanwhile_is_not_evicted_again(store: Store, namespace: str, clock: Clock) -> None:
    async with store.memory(namespace, Settings(shards=1, max_sessions=5)) as memory:
        await begin(memory, clock, 8)
        slow, quick = Eviction(memory.store), Eviction(memory.store)
        whole_excess = slow._count_excess

        async def excess() -> int:
            found = await whole_excess()
            await clock.run_at(T0 + 10_000, quick.enforce())
            return found

        slow._count_excess = excess  # type: ignore[method-assign]
        await clock.run_at(T0 + 10_000, slow.enforce())
        assert await queue_members(memory, "active") == {f"s-{number}" for number in range(3, 8)}


async def test_the_oldest_are_all_in_one_shard(store: Store, namespace: str, clock: Clock) -> None:
    async with store.memory(namespace, Settings(max_sessions=31)) as memory:
        shard = memory.store.keys.shard_of("s-0")
        names = [f"s-{number}" for number in range(2_000)]
        old = [name for name in names if memory.store.keys.shard_of(name) == shard]
        new = [name for name in names if memory.store.keys.shard_of(name) != shard][:30]
        for at, name in enumerate([*old, *new]):
            await clock.run_at(T0 + at * 1_000, memory.session(name).append(chat_message(1)))
        assert len(old) >= 20
        assert await clock.run_at(T0 + 10_000_000, Eviction(memory.store).enforce()) == len(old) - 1
        assert await queue_members(memory, "active") == {old[-1], *new}


async def test_sessions_that_expired_by_themselves_leave_the_index(
    store: Store, namespace: str, raw: Any, clock: Clock
) -> None:
    async with store.memory(namespace, Settings(shards=2, max_sessions=3)) as memory:
        await begin(memory, clock, 6)
        for number in range(3):
            keys = memory.store.keys.session(f"s-{number}")
            await raw.delete(keys.state, keys.messages)
        eviction = Eviction(memory.store)
        assert await clock.run_at(T0 + 10_000, eviction.enforce()) == 0
        assert await queue_members(memory, "active") == {"s-3", "s-4", "s-5"}
        keys = memory.store.keys.session("s-3")
        await raw.delete(keys.state, keys.messages)
        assert await clock.run_at(T0 + 10_000, eviction.sweep()) == (1, 0)
        assert await queue_members(memory, "active") == {"s-4", "s-5"}


async def test_the_sweep_puts_back_what_was_torn(store: Store, namespace: str, raw: Any) -> None:
    async with store.memory(namespace, Settings(shards=2)) as memory:
        for name in "abc":
            await fill(memory.session(name), 11)
        await raw.zrem(memory.store.keys.session("a").shard.overdue, "a")
        await raw.zrem(memory.store.keys.session("b").shard.active, "b")
        assert await Eviction(memory.store).sweep() == (0, 2)
        assert await queue_members(memory, "active") == {"a", "b", "c"}
        assert await Worker(memory.store, Echo()).drain() == 3
        assert await Eviction(memory.store).sweep() == (0, 0)


async def test_sweeps_go_on_where_the_last_one_ended(store: Store, namespace: str, raw: Any, clock: Clock) -> None:
    """A shard has more sessions than one query of its index returns."""
    count = 220
    async with store.memory(namespace, Settings(shards=1)) as memory:
        await begin(memory, clock, count)
        eviction = Eviction(memory.store)
        for _ in range(2):  # once through, and from the start again
            for number in range(count):
                await raw.hset(memory.store.keys.session(f"s-{number}").state, "queued", "overdue")
            mended = 0
            for _ in range(10):
                mended += (await eviction.sweep())[1]
            assert mended == count
            await raw.delete(memory.store.keys.session("s-0").shard.overdue)


async def test_eviction_ends_when_it_is_told_to(store: Store, namespace: str, clock: Clock) -> None:
    async with store.memory(namespace, Settings(shards=1, max_sessions=1)) as memory:
        archive = Archive()
        eviction = Eviction(memory.store, archive, concurrency=1)
        await begin(memory, clock, 20)

        async def stop(session_id: str) -> None:
            eviction.stop()

        archive.before = stop
        assert await clock.run_at(T0 + 30_000, eviction.enforce()) == 1
        assert len(await queue_members(memory, "active")) == 19


async def test_the_archive_takes_any_message_and_is_private(
    store: Store, namespace: str, tmp_path: Path, clock: Clock
) -> None:
    path = tmp_path / "archive.jsonl"
    odd = {"role": "user", "content": "\ud800 line\nbreak \u2028 \x00", "n": 10**30, "f": 1.0}
    async with store.memory(namespace, Settings(shards=2, max_sessions=1)) as memory:
        await clock.run_at(T0, memory.session("old").append(odd))
        await clock.run_at(T0 + 1_000, memory.session("new").append(chat_message(1)))
        assert await clock.run_at(T0 + 1_000, Eviction(memory.store, JsonlArchive(path)).enforce()) == 1
    (line,) = path.read_bytes().splitlines()
    assert json.loads(line)["messages"] == [odd]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
