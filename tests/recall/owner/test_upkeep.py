"""The index of an owner equals the owner's sessions after every change, and after a crash in the middle of one."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import redis.asyncio
from support.clock import T0, Clock
from support.damage import put_block_aside
from support.redis_server import RedisServer
from support.stores import Store
from support.writers import Echo, chat_message

from redismem import Memory, Session, Settings
from redismem.events import Op
from redismem.inspection.owners import check_owners
from redismem.originals.signatures import decode_signature, split_signatures, stem_hash
from redismem.protocol.layout import EvictionReason
from redismem.protocol.owner.calls import LONGEST_MS, owner_keys
from redismem.protocol.owner.entries import decode_entry, decode_name
from redismem.protocol.queue.calls import queue_eviction
from redismem.recall.owner.upkeep import OwnerIndex
from redismem.text.stems import stems
from redismem.workers.eviction import Eviction
from redismem.workers.outcomes import SummaryOutcome
from redismem.workers.owner_indexes import OwnerChecks
from redismem.workers.summaries import Worker

SETTINGS = Settings(shards=2, threshold=8, recent_limit=4, keep_originals=True)
ODD_ID = "b:7:x:"
SECRET, BEGIN_SECRET = "xylophone", "quagga"


async def read_index(memory: Memory, raw: Any, owner: str) -> dict[str, dict[int, bytes]]:
    """Return the signatures in an owner's index, by session and block."""
    found: dict[str, dict[int, bytes]] = {}
    stored = await raw.hgetall(owner_keys(memory.store.keys, owner).index)
    for name, value in stored.items():
        if (decoded := decode_name(name)) is not None:
            part, session_id = decoded
            found.setdefault(session_id, {}).update(decode_entry(part, value).signatures)
    return found


async def stored_signatures(memory: Memory, raw: Any, session_id: str) -> dict[int, bytes]:
    fields = await raw.hgetall(memory.store.keys.session(session_id).originals)
    signed = {int(name[1:]): split_signatures(value) for name, value in fields.items() if name[:1] == b"s"}
    return {first + at: each for first, signatures in signed.items() for at, each in enumerate(signatures)}


def holds(signatures: dict[int, bytes], word: str) -> bool:
    (stem,) = stems(word)
    return any(stem_hash(stem) in decode_signature(signature).hashes for signature in signatures.values())


async def begin(memory: Memory, session_id: str, owner: str | None, count: int = 40) -> Session:
    session = memory.session(session_id, owner=owner)
    texts = {3: BEGIN_SECRET, 5: SECRET, count - 1: SECRET}
    await session.append(*(chat_message(seq, texts.get(seq, "message")) for seq in range(1, count + 1)))
    return session


async def clear(session: Session) -> None:
    await session.clear()


async def forget(session: Session) -> None:
    await session.forget(3, 5, 39)


async def rewrite(session: Session) -> None:
    await session.rewrite(2, [chat_message(1)])


async def prune(session: Session) -> None:
    await session.prune(0)


async def archive(session: Session) -> None:
    await session.forget(3, 5, 39)
    await session.archive(2)


async def evict(session: Session) -> None:
    keys = session._calls.keys
    await session._store.run(queue_eviction(keys.shard, [(keys, "-")], EvictionReason.LIMIT, None, kept=False))
    assert await Eviction(session._store).evict(session.id)


WAYS: list[Callable[[Session], Awaitable[None]]] = [clear, forget, rewrite, prune, archive, evict]


@pytest.mark.parametrize("way", WAYS)
async def test_no_removal_leaves_a_word_in_the_index(
    store: Store, namespace: str, raw: Any, way: Callable[[Session], Awaitable[None]]
) -> None:
    async with store.memory(namespace, SETTINGS) as memory:
        for session_id, owner in (("a", "ann"), (ODD_ID, "ann"), ("c", "bob"), ("d", None)):
            await begin(memory, session_id, owner)
        await Worker(memory.store, Echo()).drain()
        index = await read_index(memory, raw, "ann")
        assert index == {name: await stored_signatures(memory, raw, name) for name in ("a", ODD_ID)}
        assert all(holds(index[name], word) for name in index for word in (SECRET, BEGIN_SECRET))
        await way(memory.session(ODD_ID))
        after, left = await read_index(memory, raw, "ann"), await stored_signatures(memory, raw, ODD_ID)
        assert after == ({"a": index["a"]} | ({ODD_ID: left} if left else {}))
        assert not any(holds(after.get(ODD_ID, {}), word) for word in (SECRET, BEGIN_SECRET))
        assert (await read_index(memory, raw, "bob")).keys() == {"c"}
        await memory.session("c").clear()
        assert not await raw.exists(owner_keys(memory.store.keys, "bob").index), "an index without entries goes"
        await memory.forget(owner="ann")
        assert [key async for key in raw.scan_iter(f"rm:{{{namespace}:*}}:index*")] == []


async def test_an_update_that_a_clear_overtakes_takes_back_what_it_wrote(
    store: Store, namespace: str, raw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with store.memory(namespace, SETTINGS) as memory:
        session, index = await begin(memory, "a", "ann"), OwnerIndex(memory.store, "ann")
        await Worker(memory.store, Echo()).drain()
        await index.drop()
        run, overtaken = memory.store.run, list[bool]()

        async def overtake(call: Any, **options: Any) -> Any:
            if call.op is Op.INDEX_OWNER and not overtaken:
                overtaken.append(True)
                await session.clear()
            return await run(call, **options)

        monkeypatch.setattr(memory.store, "run", overtake)
        await index.update("a")
        assert overtaken
        assert await read_index(memory, raw, "ann") == {}


async def test_check_reports_an_index_that_disagrees_unless_a_worker_is_about_to_check_it(
    store: Store, namespace: str, raw: Any
) -> None:
    async with store.memory(namespace, SETTINGS) as memory:
        for session_id in ("a", "b", "c"):
            await begin(memory, session_id, "ann")
        await Worker(memory.store, Echo()).drain()
        keys = owner_keys(memory.store.keys, "ann")
        a, b = (memory.store.keys.session(name) for name in ("a", "b"))
        await raw.hset(a.state, "edited", "other")
        await raw.hset(b.originals, "s0", b"other")
        assert [each async for each in check_owners(memory.store)] == []
        await raw.zadd(keys.indexes, {"ann": 5})
        found = sorted([(each.session_id, each.invariant) async for each in check_owners(memory.store)])
        assert found == [("a", "O1"), ("b", "O2")]


async def test_a_session_in_quarantine_leaves_the_index_at_the_next_check(
    store: Store, namespace: str, raw: Any
) -> None:
    async with store.memory(namespace, SETTINGS) as memory:
        session = await begin(memory, "a", "ann")
        await Worker(memory.store, Echo()).drain()
        keys = owner_keys(memory.store.keys, "ann")
        await raw.zadd(keys.indexes, {"ann": 1 << 45})
        await raw.hset(memory.store.keys.session("a").state, "counters", b"broken")
        assert await session.set_aside()
        now_ms, due_ms = await memory.server_time_ms(), int(await raw.zscore(keys.indexes, "ann"))
        assert due_ms <= now_ms + 60_000
        await OwnerChecks(memory.store).check("ann", due_ms, now_ms)
        assert not await raw.exists(keys.index, keys.indexes)


async def test_a_block_in_quarantine_leaves_the_index_at_once(store: Store, namespace: str, raw: Any) -> None:
    async with store.memory(namespace, SETTINGS) as memory:
        for session_id, owner in (("a", "ann"), ("b", "ann"), ("d", None)):
            await begin(memory, session_id, owner)
        await Worker(memory.store, Echo()).drain()
        before = await read_index(memory, raw, "ann")
        assert holds({0: before["a"][0]}, SECRET)
        for session_id in ("a", "d"):
            await raw.hset(memory.store.keys.session(session_id).originals, "0", b"broken")
            await put_block_aside(memory, session_id, 0)
            assert await raw.hget(memory.store.keys.session(session_id).originals, "0") is None, "in quarantine"
        left = {"a": {number: each for number, each in before["a"].items() if number}, "b": before["b"]}
        assert await read_index(memory, raw, "ann") == left
        assert left["a"] == await stored_signatures(memory, raw, "a")


CLEAR_AND_DIE = """
import os, signal, sys
from redismem import Settings
from redismem.blocking import memory
from redismem.recall.owner.upkeep import OwnerIndex

OwnerIndex.update = lambda self, session_id: os.kill(os.getpid(), signal.SIGKILL)
with memory.Memory.connect(sys.argv[1], namespace=sys.argv[2], settings=Settings(shards=2)) as opened:
    opened.session("a").clear()
"""


async def test_a_worker_mends_what_a_killed_process_left(redis_server: RedisServer, namespace: str) -> None:
    later_ms = 0
    memory = Memory.connect(
        redis_server.url, namespace=namespace, settings=SETTINGS, clock=lambda: int(time.time() * 1000) + later_ms
    )
    async with memory, redis.asyncio.Redis(port=redis_server.port) as raw:
        for session_id in ("a", "z"):
            await begin(memory, session_id, "ann")
        await Worker(memory.store, Echo()).drain()
        later_ms = 61_000
        assert await OwnerChecks(memory.store).check_due() == 1
        assert await OwnerChecks(memory.store).check_due() == 0, "nothing has changed since"
        command = [sys.executable, "-c", CLEAR_AND_DIE, redis_server.url, namespace]
        assert (await asyncio.to_thread(subprocess.run, command, check=False)).returncode == -9
        assert not await memory.session("a").exists()
        assert (await read_index(memory, raw, "ann")).keys() == {"a", "z"}
        later_ms = 122_000
        assert await OwnerChecks(memory.store).check_due() == 1
        assert (await read_index(memory, raw, "ann")).keys() == {"z"}


COMMIT_AND_DIE = """
import asyncio, os, signal, sys, time
from redismem import Memory, Settings
from redismem.models import Draft
from redismem.recall.owner.upkeep import OwnerIndex
from redismem.workers.summaries import Worker

class Echo:
    async def compact(self, messages, previous):
        return Draft("a summary", 0, 0, "echo")

async def die(self, session_id):
    os.kill(os.getpid(), signal.SIGKILL)

async def main():
    OwnerIndex.update = die
    settings = Settings(shards=2, threshold=8, recent_limit=4, keep_originals=True)
    clock = lambda: int(time.time() * 1000) + int(sys.argv[3])
    async with Memory.connect(sys.argv[1], namespace=sys.argv[2], settings=settings, clock=clock) as memory:
        await Worker(memory.store, Echo()).drain()

asyncio.run(main())
"""


@pytest.mark.parametrize("has_index", [False, True])
async def test_a_summary_whose_worker_died_is_searchable_within_a_minute(
    redis_server: RedisServer, namespace: str, *, has_index: bool
) -> None:
    later_ms = 0
    memory = Memory.connect(
        redis_server.url, namespace=namespace, settings=SETTINGS, clock=lambda: int(time.time() * 1000) + later_ms
    )
    async with memory, redis.asyncio.Redis(port=redis_server.port) as raw:
        if has_index:
            await begin(memory, "z", "ann")
            await Worker(memory.store, Echo()).drain()
            later_ms = 61_000
            assert await OwnerChecks(memory.store).check_due() == 1
        session = await begin(memory, "a", "ann")
        command = [sys.executable, "-c", COMMIT_AND_DIE, redis_server.url, namespace, str(later_ms)]
        assert (await asyncio.to_thread(subprocess.run, command, check=False)).returncode == -9
        assert (await session.read()).summaries, "committed"
        assert not (await read_index(memory, raw, "ann")).get("a")
        later_ms += 61_000
        assert await OwnerChecks(memory.store).check_due() == 1
        index = await read_index(memory, raw, "ann")
        assert index.keys() == ({"a", "z"} if has_index else {"a"})
        assert index["a"] == await stored_signatures(memory, raw, "a")
        assert await OwnerChecks(memory.store).check_due() == 0, "it is done, and not announced any more"


async def pop(session: Session) -> None:
    await session.pop(1)


async def forget_person(session: Session) -> None:
    await Memory(session._store).forget(owner="ann")


@pytest.mark.parametrize("meanwhile", [pop, clear, forget_person])
async def test_a_refused_summary_leaves_nothing_in_the_index(
    store: Store, namespace: str, raw: Any, clock: Clock, meanwhile: Callable[[Session], Awaitable[None]]
) -> None:
    async with store.memory(namespace, SETTINGS) as memory:
        session = await begin(memory, "a", "ann")

        class Slow(Echo):
            async def compact(self, messages: Any, previous: str | None) -> Any:
                await meanwhile(session)
                return await super().compact(messages, previous)

        assert await Worker(memory.store, Slow()).attend("a") is not SummaryOutcome.OK
        keys = owner_keys(memory.store.keys, "ann")
        assert not await raw.exists(keys.index, keys.indexes)
        # The worker may die before it takes the announcement back: a check does so, and else it expires.
        await OwnerIndex(memory.store, "ann").announce("a", "gone", clock.now_ms)
        assert await raw.pexpiretime(keys.index) == T0 + LONGEST_MS
        clock.now_ms += 61_000
        assert await OwnerChecks(memory.store).check_due() == 1
        assert not await raw.exists(keys.index, keys.indexes)
