"""The owner of a session: stored with its first write, shown, indexed, and gone with it."""

from __future__ import annotations

from typing import Any

import pytest
from support.clock import T0, Clock
from support.edited import is_sound
from support.stores import Store
from support.writers import chat_message

from redismem import InvalidSessionId, Memory, Policy, Settings
from redismem.blocking import memory as blocking
from redismem.inspection import quarantine
from redismem.inspection.check import check
from redismem.protocol.owners import owner_score
from redismem.workers.eviction import Eviction

ONE_SHARD = Settings(shards=1)


async def owned(memory: Memory, raw: Any) -> dict[str, int]:
    """Return the entries of the index of owners."""
    (shard,) = memory.store.keys.shards()
    return {name.decode(): int(score) for name, score in await raw.zrange(shard.owners, 0, -1, withscores=True)}


async def test_the_first_write_stores_it_and_handles_without_one_keep_it(
    store: Store, namespace: str, raw: Any
) -> None:
    async with store.memory(namespace, ONE_SHARD) as memory:
        await memory.session("a", owner="ann", policy=Policy(exempt=True)).append(chat_message(1))
        await memory.session("b", owner="bob @home ~w").merge({"a": 1})
        await memory.session("c").append_and_read(chat_message(1))
        for session_id, owner in (("a", "ann"), ("a", None), ("b", None), ("c", None)):
            await memory.session(session_id, owner=owner).append_and_read(chat_message(2))
        infos = [await memory.session(session_id).info() for session_id in ("a", "b", "c")]
        assert [info.owner for info in infos] == ["ann", "bob @home ~w", None]
        assert [info.policy for info in infos] == [Policy(exempt=True), Policy(), Policy()]
        assert await owned(memory, raw) == {"a": owner_score("ann"), "b": owner_score("bob @home ~w")}
        assert await is_sound(memory)


async def test_a_session_without_an_owner_sends_and_stores_nothing_more(store: Store, namespace: str, raw: Any) -> None:
    async with store.memory(namespace, ONE_SHARD) as memory:
        await memory.session("a").append(chat_message(1))
        assert b"owner" not in await raw.hgetall(memory.store.keys.session("a").state)
        assert await owned(memory, raw) == {}


@pytest.mark.parametrize("owner", ["", " ", "ann\n", "x" * 257, 7])
async def test_an_invalid_owner_is_refused_without_io(store: Store, namespace: str, owner: Any) -> None:
    async with store.memory(namespace, ONE_SHARD) as memory:
        for policy in (None, Policy()):
            with pytest.raises(InvalidSessionId, match="an owner is a string"):
                memory.session("a", owner=owner, policy=policy)


async def test_it_goes_with_the_session_and_a_new_one_may_have_another(
    store: Store, namespace: str, raw: Any, clock: Clock
) -> None:
    async with store.memory(namespace, Settings(shards=1, max_sessions=2)) as memory:
        for number, session_id in enumerate(("evicted", "cleared", "stays")):
            await clock.run_at(T0 + number, memory.session(session_id, owner="ann").append(chat_message(1)))
        await memory.session("cleared").clear()
        assert await Eviction(memory.store).enforce() == 0
        await memory.session("cleared", owner="bob").append(chat_message(1))
        assert await Eviction(memory.store).enforce() == 1
        assert await owned(memory, raw) == {"cleared": owner_score("bob"), "stays": owner_score("ann")}
        assert await is_sound(memory)


async def test_the_sweep_removes_entries_of_sessions_that_no_other_index_has(
    store: Store, namespace: str, raw: Any
) -> None:
    """A session without an owner may have removed the other entries when it began."""
    async with store.memory(namespace, ONE_SHARD) as memory:
        for session_id in ("expired", "alive"):
            await memory.session(session_id, owner="ann").append(chat_message(1))
        keys = memory.store.keys.session("expired")
        await raw.delete(keys.state, keys.messages)
        await raw.zrem(keys.shard.active, "expired")
        assert await Eviction(memory.store).sweep() == (1, 0)
        assert await owned(memory, raw) == {"alive": owner_score("ann")}


async def test_check_reports_an_index_that_disagrees(store: Store, namespace: str, raw: Any) -> None:
    async with store.memory(namespace, ONE_SHARD) as memory:
        await memory.session("a", owner="ann").append(chat_message(1))
        await memory.session("b").append(chat_message(1))
        shard = memory.store.keys.session("a").shard
        await raw.zadd(shard.owners, {"a": 5, "b": 6})
        found = [(each.session_id, each.invariant) async for each in check(memory.store)]
        assert found == [("a", "I12"), ("b", "I12")]


async def test_edits_keep_it_and_so_does_a_restored_session(store: Store, namespace: str, raw: Any) -> None:
    async with store.memory(namespace, ONE_SHARD) as memory:
        session = memory.session("a", owner="ann")
        await session.append(*map(chat_message, range(6)))
        await session.pop(1)
        await session.prune(3)
        assert (await session.info()).owner == "ann"
        await raw.hset(memory.store.keys.session("a").state, "summary:1", b"\xc1")
        assert await session.set_aside()
        assert await owned(memory, raw) == {}
        await quarantine.restore(memory.store, await quarantine.find(memory.store, "a", None), salvage=True)
        assert (await session.info()).owner == "ann"
        assert await owned(memory, raw) == {"a": owner_score("ann")}
        assert await is_sound(memory)


async def test_an_unreadable_owner_is_a_fault_of_a_session_in_quarantine(
    store: Store, namespace: str, raw: Any
) -> None:
    async with store.memory(namespace, ONE_SHARD) as memory:
        session, keys = memory.session("a"), memory.store.keys.session("a")
        await memory.session("a", owner="ann").append(chat_message(1))
        await raw.hset(keys.state, mapping={"owner": b"5 \xff", "counters": b"broken"})
        assert await session.set_aside()
        copy = await quarantine.find(memory.store, "a", None)
        restored = await quarantine.restore(memory.store, copy, salvage=True)
        assert "the owner cannot be read" in restored.faults
        assert (await session.info()).owner is None


def test_the_blocking_memory_takes_it_too(namespace: str) -> None:
    with blocking.Memory.connect("memory://", namespace=namespace) as memory:
        memory.session("a", owner="ann").append(chat_message(1))
        assert memory.session("a").info().owner == "ann"
