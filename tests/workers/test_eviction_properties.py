"""Invariants of clearing, activity and eviction, one property per test, on a real server."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from support.clock import T0, Clock
from support.examples import (
    OpenMemory,
    ages,
    append,
    batches,
    create_sessions,
    payloads,
    queue_members,
    read_stored,
    texts,
    values,
)
from support.writers import Echo, chat_message

from redismem.context.context import Context
from redismem.protocol.layout import counters
from redismem.workers.eviction import Eviction
from redismem.workers.summaries import Worker


@given(counts=batches, params=st.dictionaries(texts.filter(bool), values, max_size=3), chosen=st.booleans())
async def test_clear_complete(
    open_memory: OpenMemory, client: Any, counts: list[int], params: dict[str, Any], chosen: bool, clock: Clock
) -> None:
    async with open_memory(keep_originals=True, threshold=4, recent_limit=2) as memory:
        session = memory.session("a")
        await append(session, counts)
        await clock.run_at(T0, Worker(memory.store, Echo()).drain())
        await clock.run_at(T0, session.append(*map(chat_message, range(5)), merge=params, waiting="x"))
        if chosen:
            await clock.run_at(T0 + 10**9, Eviction(memory.store).queue_idle())
        assert await session.clear()
        assert await read_stored(client, session, memory) == [{}, [], {}, None, None, None, None, None]
        assert (await session.read()).to_openai() == []
        assert not await session.exists()
        assert not await session.clear()


@given(counts=batches, params=st.dictionaries(texts.filter(bool), values, max_size=3), put=payloads)
async def test_fresh_session(
    open_memory: OpenMemory, counts: list[int], params: dict[str, Any], put: dict[str, Any]
) -> None:
    async with open_memory(keep_originals=True, threshold=4, recent_limit=2) as memory:
        session = memory.session("a")
        never = await session.read()
        assert (never.summaries, never.messages, never.epoch, never.total_messages) == ([], [], "", 0)
        await append(session, counts)
        await session.update(merge=params, last_intent="x")
        await Worker(memory.store, Echo()).drain()
        old = await session.read()
        await session.clear()
        context = await session.append_and_read(put)
        assert context.receipt is not None
        assert context.receipt.created
        assert [message.to_openai() for message in context.messages] == [put]
        assert (context.summaries, context.first_seq, context.total_messages) == ([], 1, 1)
        assert (context.state.params, context.state.last_intent, context.summary_version) == ({}, None, "")
        assert context.epoch != old.epoch
        assert [message.to_openai() for message in await session.messages(include_originals=True)] == [put]


@given(idle_s=ages, idle_timeout_s=st.integers(31, 60))
async def test_inactive_marked(
    open_memory: OpenMemory, client: Any, clock: Clock, idle_s: list[int], idle_timeout_s: int
) -> None:
    async with open_memory(idle_timeout_s=idle_timeout_s, tick_s=0.5, lease_s=1) as memory:
        names = await create_sessions(memory, clock, [T0 - age * 1_000 for age in idle_s])
        inactive = {name for name, age in zip(names, idle_s, strict=True) if age > idle_timeout_s}
        assert await Eviction(memory.store).queue_idle() == len(inactive)
        assert await queue_members(memory, "evictions") == inactive
        for name in names:
            marked = counters(await client.hget(memory.store.keys.session(name).state, "counters")).evicting
            assert marked == ("idle" if name in inactive else None)
        assert await memory.count() == sum(age < idle_timeout_s for age in idle_s)


@given(idle_s=ages, idle_timeout_s=st.integers(31, 60))
async def test_cleanup_removes_idle_and_leaves_active(
    open_memory: OpenMemory, clock: Clock, idle_s: list[int], idle_timeout_s: int
) -> None:
    async with open_memory(idle_timeout_s=idle_timeout_s, tick_s=0.5, lease_s=1) as memory:
        handed = []

        async def on_evict(session_id: str, context: Context) -> None:
            handed.append((session_id, len(context.messages)))

        names = await create_sessions(memory, clock, [T0 - age * 1_000 for age in idle_s])
        active = {name for name, age in zip(names, idle_s, strict=True) if age <= idle_timeout_s}
        assert await Eviction(memory.store, on_evict).enforce() == len(names) - len(active)
        assert await queue_members(memory, "active") == active
        assert sorted(handed) == sorted((name, 1) for name in names if name not in active)
        for name in names:
            assert await memory.session(name).exists() == (name in active)


@given(
    steps=st.lists(
        st.tuples(st.integers(0, 5_000), st.sampled_from(["append", "update", "touch", "read", "drain"])), max_size=8
    )
)
async def test_activity_tracked(open_memory: OpenMemory, steps: list[tuple[int, str]], clock: Clock) -> None:
    async with open_memory(threshold=2, recent_limit=1) as memory:
        session, worker = memory.session("a"), Worker(memory.store, Echo())
        now_ms = last_ms = T0
        await clock.run_at(now_ms, session.append(chat_message(0)))
        for later_ms, step in steps:
            now_ms += later_ms
            if step == "append":
                await clock.run_at(now_ms, session.append(chat_message(1)))
            elif step == "update":
                await clock.run_at(now_ms, session.update(merge={"a": now_ms}))
            elif step == "touch":
                assert await clock.run_at(now_ms, session.touch())
            elif step == "read":
                await session.read()
            else:
                await clock.run_at(now_ms, worker.drain())
            last_ms = last_ms if step in ("read", "drain") else now_ms
            known = await session.info()
            assert last_ms - 1_000 < known.active_ms <= last_ms, "within a second, by those who talk and no others"
            (entry,) = (await clock.run_at(now_ms, memory.sessions())).sessions
            assert entry.active_ms == known.active_ms
            assert known.expires_ms >= last_ms + memory.settings.idle_timeout_ms - 1_000


@given(order=st.permutations(range(6)), limit=st.integers(1, 7), touched=st.sets(st.integers(0, 5), max_size=3))
async def test_limit_evicts_the_oldest(
    open_memory: OpenMemory, order: list[int], limit: int, touched: set[int], clock: Clock
) -> None:
    async with open_memory(max_sessions=limit) as memory:
        active_ms = [T0 + place * 2_000 for place in order]
        names = await create_sessions(memory, clock, active_ms)
        for number in touched:
            active_ms[number] += 10**6
            await clock.run_at(active_ms[number], memory.session(names[number]).append(chat_message(2)))
        by_age = sorted(names, key=lambda name: active_ms[names.index(name)])
        gone = by_age[: max(0, len(names) - limit)]
        assert await clock.run_at(T0 + 2 * 10**6, Eviction(memory.store).enforce()) == len(gone)
        assert await queue_members(memory, "active") == set(names) - set(gone)
