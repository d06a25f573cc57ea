"""The first call of a memory that was not entered, and the namespace's record after a flush."""

from __future__ import annotations

import logging
from time import monotonic
from typing import Any

import pytest
from support.checks import user
from support.conversations import contents
from support.faulty import Faulty
from support.proxy import Proxy
from support.stored import keys_of, read_namespace
from support.stores import Store
from support.writers import Echo, chat_message

from redismem import Memory, Settings, StoreUnavailable, WrongShards
from redismem.events import Event
from redismem.protocol.keys import Keys
from redismem.workers.eviction import Eviction
from redismem.workers.summaries import Worker


async def test_the_first_call_ends_within_its_deadline_too(proxy: Proxy, direct_memory: Memory) -> None:
    """Each reply comes in time by itself, but the check of the shards counts towards the deadline too."""
    settings = Settings(deadline_s=0.6, reply_timeout_s=0.6)
    memory = Memory.connect(proxy.url, namespace=direct_memory.store.keys.namespace + "-new", settings=settings)
    proxy.break_next("delay", float("inf"), delay_s=0.4)
    with pytest.raises(StoreUnavailable):
        await memory.session("s").append(user("a"))
    proxy.heal()
    await memory.aclose()


async def test_the_record_is_written_again_after_a_flush(store: Store, raw: Any, namespace: str) -> None:
    """Otherwise the next process could record another number of shards, while this one keeps its own."""
    async with store.memory(namespace, Settings(shards=2)) as memory:
        await memory.session("a").append(chat_message(1))
        record = Keys(namespace, 2).record
        await _empty(raw, namespace)
        await memory.session("a").append(chat_message(1))
        await Eviction(memory.store).enforce()
        written = await raw.hgetall(record)
        assert written == {b"layout": b"1", b"shards": b"2", b"idle_timeout_ms": b"86400000", b"keep_originals": b"1"}
    other = Settings(shards=4)
    with pytest.raises(WrongShards):
        async with store.memory(namespace, other):
            raise AssertionError("it was let in")


@pytest.mark.parametrize("create", ["append", "append_and_read", "merge"])
async def test_a_process_with_other_shards_is_refused_once_it_creates_a_session_anew(
    store: Store, raw: Any, namespace: str, create: str
) -> None:
    """Redis was emptied, and a process with another number of shards has begun the namespace."""
    async with store.memory(namespace, Settings(shards=2)) as stale:
        await stale.session("a").append(chat_message(1))
        await _empty(raw, namespace)
        async with store.memory(namespace, Settings(shards=4)) as other:
            await other.session("a").append(chat_message(2))
            stale.store.agreement._look_again_at_s = 0.0
            session = stale.session("a")
            with pytest.raises(WrongShards, match="4 shards, the settings say 2"):
                await (
                    session.update(merge={"x": 1}) if create == "update" else getattr(session, create)(chat_message(3))
                )
            before = await read_namespace(raw, namespace)
            for refused in (session.append(chat_message(4)), session.read(), stale.session("b").merge({"x": 1})):
                with pytest.raises(WrongShards):
                    await refused
            assert await read_namespace(raw, namespace) == before
            assert contents((await other.session("a").read()).messages) == [chat_message(2)["content"]]


async def test_the_first_session_after_a_flush_records_the_namespace_again(
    store: Store, raw: Any, namespace: str
) -> None:
    async with store.memory(namespace, Settings(shards=2)) as memory:
        await _empty(raw, namespace)
        memory.store.agreement._look_again_at_s = 0.0
        await memory.session("a").append(chat_message(1))
        with pytest.raises(WrongShards):
            async with store.memory(namespace, Settings(shards=4)):
                raise AssertionError("it was let in")


async def test_many_new_sessions_cost_one_look_at_the_record(store: Store, namespace: str) -> None:
    events: list[Event] = []
    async with store.memory(namespace, on_event=events.append) as memory:
        memory.store.agreement._look_again_at_s = 0.0
        begun_s = monotonic()
        for number in range(50):
            await memory.session(f"s{number}").append(chat_message(1))
        looks_count = [event.op for event in events].count("recorded")
        assert 2 <= looks_count <= 2 + (monotonic() - begun_s)


async def test_an_append_that_was_made_stays_made_if_the_record_cannot_be_read(
    degradable: Memory, faulty: Faulty, caplog: pytest.LogCaptureFixture
) -> None:
    await degradable.session("a").append(chat_message(1))
    degradable.store.agreement._look_again_at_s = 0.0
    faulty.lost_part = degradable.store.keys.record
    receipt = await degradable.session("b").append(chat_message(1))
    assert (receipt.created, receipt.degraded) == (True, False)
    assert "could not be checked again" in caplog.text
    faulty.heal()


async def _empty(raw: Any, namespace: str) -> None:
    await raw.delete(*await keys_of(raw, namespace))


async def test_workers_refuse_a_namespace_with_another_number_of_shards(store: Store, raw: Any, namespace: str) -> None:
    async with store.memory(namespace, Settings(shards=2, max_sessions=1)) as memory:
        for name in "abc":
            await memory.session(name).append(chat_message(1))
        await raw.hset(Keys(namespace, 2).record, "shards", 4)
        with pytest.raises(WrongShards):
            await Eviction(memory.store).enforce()
        assert [await memory.session(name).exists() for name in "abc"] == [True] * 3


async def test_an_overdue_session_of_another_layout_is_logged_once(
    memory: Memory, raw: Any, caplog: pytest.LogCaptureFixture
) -> None:
    for name in "ab":
        await memory.session(name).append(*map(chat_message, range(12)))
        await raw.hset(memory.store.keys.session(name).state, "counters", "v2 1 12 9 5 6")
    worker = Worker(memory.store, Echo())
    with caplog.at_level(logging.WARNING, "redismem"):
        for _ in range(3):
            await worker.drain()
    assert worker.outcomes == {"unavailable": 6}
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == 2, "once a session, not each tick"
    await raw.hset(memory.store.keys.session("a").state, "counters", "v3 1 12 9 5 6")
    with caplog.at_level(logging.WARNING, "redismem"):
        await worker.drain()
    assert len(caplog.records) == 3, "once a layout"
