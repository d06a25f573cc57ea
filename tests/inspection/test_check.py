"""The check finds every kind of damage, and nothing in what is whole, on both stores; it writes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from support.checks import CANARY, user
from support.damage import HARM, no_entry
from support.stored import everything, set_counters

from redismem import Memory, Settings
from redismem.inspection import check, invariants
from redismem.models import Draft
from redismem.protocol.layout import EvictionReason
from redismem.protocol.queue import calls as queue_calls
from redismem.protocol.queue.calls import Job, QueueCalls
from redismem.store.store import Store
from redismem.workers.summaries import Worker

SETTINGS = Settings(shards=2, threshold=4, recent_limit=2, summaries_limit=2, max_window_count=10, max_attempts=3)


class Telling:
    """A strategy without a model."""

    async def compact(self, messages: Sequence[Any], previous: str | None) -> Draft:
        return Draft(f"{CANARY} summary", 1, 1, "none")


@pytest.fixture
async def memory(store: Any, namespace: str) -> Any:
    async with store.memory(namespace, SETTINGS) as memory:
        yield memory


async def found(memory: Memory, *also: str) -> list[invariants.Violation]:
    return [violation async for violation in check.check(memory.store, also)]


async def claimed(memory: Memory, session_id: str) -> tuple[QueueCalls, Job]:
    calls = QueueCalls(memory.store.keys.session(session_id), SETTINGS)
    job = await memory.store.run(calls.claim())
    assert isinstance(job, Job)
    return calls, job


async def filled(memory: Memory) -> None:
    """Sessions in every place that one can be in."""
    for session_id in ("window", "overdue", "leased", "backoff", "dead", "dropped", "summarised", "chosen", "state"):
        if session_id == "state":
            await memory.session(session_id).merge({"a": 1})
            continue
        session = memory.session(session_id)
        for number in range(2 if session_id in ("window", "chosen") else 6):
            await session.append(user(number), id=f"{number}")
        if session_id == "summarised":
            for _ in range(4):
                await Worker(memory.store, Telling()).attend(session_id)
                await session.append(*[user()] * 3)
            await Worker(memory.store, Telling()).attend(session_id)
        elif session_id in ("leased", "backoff", "dead", "dropped"):
            calls, job = await claimed(memory, session_id)
            if session_id != "leased":
                dead = session_id != "backoff"
                await memory.store.run(calls.release(job.fence, 60_000, counts=True, dead=dead))
            if session_id == "dropped":
                await memory.store.run(calls.requeue(again=False))
    keys = memory.store.keys.session("chosen")
    active_ms = (await memory.session("chosen").info()).active_ms
    choose = queue_calls.queue_eviction(keys.shard, [(keys, active_ms)], EvictionReason.LIMIT, None, False)
    assert (await memory.store.run(choose))[0] == 1


async def test_nothing_is_found_in_what_is_whole_and_nothing_is_written(memory: Memory, raw: Any) -> None:
    await filled(memory)
    summarised = await memory.session("summarised").read()
    assert summarised.summaries
    before = await everything(raw, memory.store.keys.namespace)
    assert await found(memory) == []
    assert await everything(raw, memory.store.keys.namespace) == before


async def test_a_session_that_has_expired_is_no_violation(memory: Memory, raw: Any) -> None:
    await filled(memory)
    for session_id in ("overdue", "leased", "dead", "chosen"):
        keys = memory.store.keys.session(session_id)
        await raw.delete(keys.state, keys.messages)
    assert await found(memory) == []


async def test_a_pop_makes_nothing_wait_that_was_dropped(memory: Memory) -> None:
    """The place of the pop is behind the last message at which the session was dropped, and is no message."""
    await filled(memory)
    assert len(await memory.session("dropped").pop(1)) == 1
    assert (await memory.session("dropped").info()).queued is None
    assert await found(memory) == []
    await memory.session("dropped").append(user("another"))
    assert (await memory.session("dropped").info()).queued == "overdue"
    assert await found(memory) == []


@pytest.mark.parametrize("harm", HARM)
async def test_damage_is_found_named_and_told_without_any_content(memory: Memory, raw: Any, harm: str) -> None:
    await filled(memory)
    invariant, session_id, damage = HARM[harm]
    await damage(raw, memory.store.keys.session(session_id))
    violations = await found(memory)
    assert invariant in {violation.invariant for violation in violations}
    assert {violation.session_id for violation in violations} == {session_id}
    assert CANARY not in repr(violations)
    assert [violation.text for violation in violations if len(violation.text) < 10] == []


async def test_appends_remembered_are_read_in_their_order_however_often_the_fields_have_gone_round(
    store: Any, namespace: str, raw: Any
) -> None:
    """Only the last 16 count: an older entry may stand there twice, a newer one may not."""
    async with store.memory(namespace, Settings(shards=1, strategy="none")) as memory:
        keys = memory.store.keys.session("a")
        for number in range(45):
            await memory.session("a").append(user(number))
            if number < 20:
                continue
            assert await found(memory) == []
            fields = await raw.hgetall(keys.state)
            newest = fields[b"ids_a"]
            letters = b"bcdbc"[b"bcd".index(newest[:1]) :][:3]
            entries = b"".join(fields[b"ids_%c" % letter] for letter in letters) + newest[1:]
            for back in (16, 17) if len(entries) > 192 else (16,):
                token = entries[-12 * back :][:8]
                changed = newest[:-12] + token + newest[-4:]
                await raw.hset(keys.state, "ids_a", changed)
                assert [each.invariant for each in await found(memory)] == (["I2"] if back == 16 else []), number
            await raw.hset(keys.state, "ids_a", newest)


async def test_a_counter_rolled_back_by_one_is_found(memory: Memory, raw: Any) -> None:
    await memory.session("a").append(user())
    assert await found(memory) == []
    await raw.decr(memory.store.keys.session("a").shard.fences)
    assert [violation.invariant for violation in await found(memory)] == ["I5"]


async def test_a_session_in_no_index_is_found_by_its_name(memory: Memory, raw: Any) -> None:
    await filled(memory)
    await no_entry("active")(raw, memory.store.keys.session("window"))
    assert await found(memory) == []
    assert [(each.session_id, each.invariant) for each in await found(memory, "window", "nobody")] == [
        ("window", "I12")
    ]


async def test_many_sessions_are_read_page_by_page(store: Any, namespace: str, raw: Any) -> None:
    async with store.memory(namespace, Settings(shards=1)) as memory:
        for number in range(1, 601):
            await memory.session(f"s{number}").merge({"a": 1})
        for session_id in ("s1", "s300", "s600"):
            await set_counters(raw, memory.store.keys.session(session_id).state, tokens=5)
        assert {each.session_id for each in await found(memory)} == {"s1", "s300", "s600"}


async def test_what_is_whole_at_the_second_look_is_not_reported(
    memory: Memory, raw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await memory.session("a").append(user())
    await memory.session("b").append(user())
    sound = await raw.hget(memory.store.keys.session("a").state, "counters")
    for name in "ab":
        await set_counters(raw, memory.store.keys.session(name).state, tokens=1)
    looked = check.check_session

    async def mended(store: Store, session_id: str) -> list[invariants.Violation]:
        await raw.hset(store.keys.session("a").state, "counters", sound)
        return await looked(store, session_id)

    monkeypatch.setattr(check, "check_session", mended)
    assert [violation.session_id for violation in await found(memory)] == ["b"]


async def test_writers_and_workers_meanwhile_do_no_harm(memory: Memory) -> None:
    busy = True

    async def talk(session_id: str) -> None:
        session = memory.session(session_id)
        number = 0
        while busy:
            number += 1
            await session.append(user(number), user(number))
            if number % 3 == 0:
                await Worker(memory.store, Telling()).attend(session_id)
            if number % 7 == 0:
                await (session.clear() if number % 2 else session.prune(1))

    talking = [asyncio.create_task(talk(f"t{number}")) for number in range(6)]
    try:
        checks = [violation for _ in range(15) for violation in await found(memory)]
    finally:
        busy = False
        await asyncio.gather(*talking)
    assert checks == await found(memory) == []
