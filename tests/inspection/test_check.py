"""The check finds every kind of damage and nothing in intact sessions, on both stores; it writes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from support.checks import CANARY, user
from support.damage import HARM, delete_entry
from support.stored import read_namespace, set_counters
from support.turns import put_turn

from redismem import Memory, Settings
from redismem.inspection import check, invariants
from redismem.models import Draft
from redismem.protocol.layout import EvictionReason
from redismem.protocol.queue import calls as queue_calls
from redismem.protocol.queue.calls import Job, QueueCalls
from redismem.store.store import Store
from redismem.workers.summaries import Worker

STATES = ("window", "overdue", "leased", "backoff", "dead", "dropped", "summarised", "chosen", "state")
SETTINGS = Settings(shards=2, threshold=4, recent_limit=2, summaries_limit=2, max_window_count=10, max_attempts=3)


class FixedSummary:
    """A strategy without a model."""

    async def compact(self, messages: Sequence[Any], previous: str | None) -> Draft:
        return Draft(f"{CANARY} summary", 1, 1, "none")


@pytest.fixture
async def memory(store: Any, namespace: str) -> Any:
    async with store.memory(namespace, SETTINGS) as memory:
        yield memory


async def find_violations(memory: Memory, *also: str) -> list[invariants.Violation]:
    return [violation async for violation in check.check(memory.store, also)]


async def claim(memory: Memory, session_id: str) -> tuple[QueueCalls, Job]:
    calls = QueueCalls(memory.store.keys.session(session_id), SETTINGS)
    job = await memory.store.run(calls.claim())
    assert isinstance(job, Job)
    return calls, job


async def fill(memory: Memory, *names: str) -> None:
    """Create the session of each name, by default one in every state and queue."""
    for session_id in names or STATES:
        if session_id == "state":
            await memory.session(session_id).merge({"a": 1})
            continue
        session = memory.session(session_id)
        for number in range(2 if session_id in ("window", "chosen") else 6):
            await session.append(user(number), id=f"{number}")
        if session_id == "summarised":
            for _ in range(4):
                await Worker(memory.store, FixedSummary()).attend(session_id)
                await session.append(*[user()] * 3)
            await Worker(memory.store, FixedSummary()).attend(session_id)
        elif session_id in ("leased", "backoff", "dead", "dropped"):
            calls, job = await claim(memory, session_id)
            if session_id != "leased":
                dead = session_id != "backoff"
                await memory.store.run(calls.release(job.fence, 60_000, counts=True, dead=dead))
            if session_id == "dropped":
                await memory.store.run(calls.requeue(again=False))
    if names and "chosen" not in names:
        return
    keys = memory.store.keys.session("chosen")
    active_ms = (await memory.session("chosen").info()).active_ms
    choose = queue_calls.queue_eviction(keys.shard, [(keys, active_ms)], EvictionReason.LIMIT, None, False)
    assert (await memory.store.run(choose))[0] == 1


async def test_intact_sessions_have_no_violations_and_the_check_writes_nothing(memory: Memory, raw: Any) -> None:
    await fill(memory)
    summarised = await memory.session("summarised").read()
    assert summarised.summaries
    before = await read_namespace(raw, memory.store.keys.namespace)
    assert await find_violations(memory) == []
    assert await read_namespace(raw, memory.store.keys.namespace) == before


@pytest.mark.parametrize("status", ["r", "d"])
async def test_intact_turns_have_no_violations(memory: Memory, raw: Any, status: str) -> None:
    await fill(memory, "window")
    keys = memory.store.keys.session("window")
    await put_turn(raw, keys, status)
    assert await find_violations(memory) == []
    await raw.setrange(keys.turned, 0, b"of another life." + b"?" * 16)
    assert await find_violations(memory) == [], "nothing reads the ended turns of an earlier life"


async def test_an_expired_session_is_no_violation(memory: Memory, raw: Any) -> None:
    await fill(memory)
    for session_id in ("overdue", "leased", "dead", "chosen"):
        keys = memory.store.keys.session(session_id)
        await raw.delete(keys.state, keys.messages)
    assert await find_violations(memory) == []


async def test_a_session_off_the_dead_list_waits_again_after_a_pop(memory: Memory) -> None:
    """Its window is another one, so the summary that failed before may succeed."""
    await fill(memory)
    assert (await memory.session("dropped").info()).queued is None
    assert len(await memory.session("dropped").pop(1)) == 1
    assert (await memory.session("dropped").info()).queued == "overdue"
    assert await find_violations(memory) == []


@pytest.mark.parametrize("harm", HARM)
async def test_damage_is_reported_by_invariant_and_without_content(memory: Memory, raw: Any, harm: str) -> None:
    invariant, session_id, damage = HARM[harm]
    await fill(memory, *{session_id, "overdue"})
    await damage(raw, memory.store.keys.session(session_id))
    violations = await find_violations(memory)
    assert invariant in {violation.invariant for violation in violations}
    assert {violation.session_id for violation in violations} == {session_id}
    assert CANARY not in repr(violations)
    assert [violation.text for violation in violations if len(violation.text) < 10] == []


async def test_remembered_appends_are_read_in_order_after_any_number_of_rotations(
    store: Any, namespace: str, raw: Any
) -> None:
    """Only the last 16 entries must differ; older entries may repeat."""
    async with store.memory(namespace, Settings(shards=1, strategy="none")) as memory:
        keys = memory.store.keys.session("a")
        for number in range(45):
            await memory.session("a").append(user(number))
            if number < 20:
                continue
            assert await find_violations(memory) == []
            fields = await raw.hgetall(keys.state)
            newest = fields[b"ids_a"]
            letters = b"bcdbc"[b"bcd".index(newest[:1]) :][:3]
            entries = b"".join(fields[b"ids_%c" % letter] for letter in letters) + newest[1:]
            for back in (16, 17) if len(entries) > 192 else (16,):
                token = entries[-12 * back :][:8]
                changed = newest[:-12] + token + newest[-4:]
                await raw.hset(keys.state, "ids_a", changed)
                assert [violation.invariant for violation in await find_violations(memory)] == (
                    ["I2"] if back == 16 else []
                ), number
            await raw.hset(keys.state, "ids_a", newest)


async def test_a_counter_rolled_back_by_one_is_found(memory: Memory, raw: Any) -> None:
    await memory.session("a").append(user())
    assert await find_violations(memory) == []
    await raw.decr(memory.store.keys.session("a").shard.fences)
    assert [violation.invariant for violation in await find_violations(memory)] == ["I5"]


async def test_originals_that_reach_into_the_window_are_reported(memory: Memory, raw: Any) -> None:
    """Readers of the originals and of the window would get a message twice."""
    await fill(memory)
    keys = memory.store.keys.session("summarised")
    last_seq = (await memory.session("summarised").read()).first_seq - 1
    await raw.lpush(keys.messages, await raw.lindex(keys.messages, 0))
    await set_counters(raw, keys.state, first_seq=last_seq)
    said = f"originals end at {last_seq}, but the window begins at {last_seq}"
    assert ("I6", said) in {(violation.invariant, violation.text) for violation in await find_violations(memory)}


async def test_a_session_in_no_index_is_found_by_its_name(memory: Memory, raw: Any) -> None:
    await fill(memory)
    await delete_entry("active")(raw, memory.store.keys.session("window"))
    assert await find_violations(memory) == []
    assert [
        (violation.session_id, violation.invariant) for violation in await find_violations(memory, "window", "nobody")
    ] == [("window", "I12")]


async def test_many_sessions_are_read_page_by_page(store: Any, namespace: str, raw: Any) -> None:
    async with store.memory(namespace, Settings(shards=1)) as memory:
        for number in range(1, 301):
            await memory.session(f"s{number}").merge({"a": 1})
        for session_id in ("s1", "s150", "s300"):
            await set_counters(raw, memory.store.keys.session(session_id).state, tokens=5)
        assert {violation.session_id for violation in await find_violations(memory)} == {"s1", "s150", "s300"}


async def test_a_session_that_is_intact_at_the_second_read_is_not_reported(
    memory: Memory, raw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await memory.session("a").append(user())
    await memory.session("b").append(user())
    sound = await raw.hget(memory.store.keys.session("a").state, "counters")
    for name in "ab":
        await set_counters(raw, memory.store.keys.session(name).state, tokens=1)
    original = check.check_session

    async def mend_and_check(store: Store, session_id: str) -> list[invariants.Violation]:
        await raw.hset(store.keys.session("a").state, "counters", sound)
        return await original(store, session_id)

    monkeypatch.setattr(check, "check_session", mend_and_check)
    assert [violation.session_id for violation in await find_violations(memory)] == ["b"]


async def test_concurrent_writers_and_workers_cause_no_violations(memory: Memory) -> None:
    busy = True

    async def talk(session_id: str) -> None:
        session = memory.session(session_id)
        number = 0
        while busy:
            number += 1
            await session.append(user(number), user(number))
            if number % 3 == 0:
                await Worker(memory.store, FixedSummary()).attend(session_id)
            if number % 7 == 0:
                await (session.clear() if number % 2 else session.prune(1))

    talking = [asyncio.create_task(talk(f"t{number}")) for number in range(6)]
    try:
        checks = [violation for _ in range(5) for violation in await find_violations(memory)]
    finally:
        busy = False
        await asyncio.gather(*talking)
    assert checks == await find_violations(memory) == []
