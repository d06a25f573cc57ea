"""sweep.lua, raw."""

from __future__ import annotations

import pytest
from support.queue_scripts import (
    CLAIM,
    FIRST_MS,
    INDEXES,
    LONGEST_MS,
    QUEUES,
    RELEASE,
    SWEEP,
    changed_fields,
    create_claimed,
    create_overdue,
    queues,
    run_many,
)
from support.raw_scripts import NOW_MS, Scripts

LATER_MS = NOW_MS + 50


async def sweep(lua: Scripts, *sessions: str, now_ms: int = LATER_MS) -> list[int]:
    return list(await run_many(lua, "sweep", list(sessions), now_ms, *SWEEP, *sessions))


@pytest.mark.parametrize("where", [*QUEUES, "evictions", "nowhere"])
async def test_a_consistent_session_is_left_unchanged(lua: Scripts, where: str) -> None:
    await (
        create_overdue(lua)
        if where == "overdue"
        else lua.append("1")
        if where in ("evictions", "nowhere")
        else create_claimed(lua)
    )
    if where == "dead":
        await lua.run("release", **RELEASE | {"max_attempts": 0})
    elif where == "evictions":
        await run_many(lua, "queue_eviction", ["s"], NOW_MS, "limit", 0, 0, "s", NOW_MS)
    before = await lua.read_namespace()
    assert await sweep(lua, "s") == [0, 0]
    assert await lua.read_namespace() == before


async def test_a_session_that_has_expired_leaves_every_index(lua: Scripts) -> None:
    await create_overdue(lua, "other")
    before = await lua.read_namespace()
    for name in (*INDEXES, "turns"):
        await lua.raw.zadd(lua.key(name), {"s": NOW_MS})
    assert await sweep(lua, "other", "s") == [1, 0]
    assert await lua.read_namespace() == before


@pytest.mark.parametrize("queue", QUEUES)
async def test_a_session_missing_from_its_queue_is_overdue_again(lua: Scripts, queue: str) -> None:
    await (create_overdue(lua) if queue == "overdue" else create_claimed(lua))
    if queue == "dead":
        await lua.run("release", **RELEASE | {"max_attempts": 0})
    await lua.raw.delete(lua.key(queue))
    assert await sweep(lua, "s") == [0, 1]
    assert await queues(lua) == {"overdue": {b"s": LATER_MS}}
    fields = await lua.fields()
    assert (fields[b"queued"], fields.get(b"fence"), fields.get(b"attempts")) == (b"overdue", None, None)


async def test_a_session_leaves_a_queue_that_its_state_does_not_name(lua: Scripts) -> None:
    """Otherwise workers would poll it over and over without work to do."""
    await create_overdue(lua)
    await lua.append("1", session_id="b")
    before = await lua.read_namespace()
    await lua.raw.zadd(lua.key("dead"), {"s": 1})
    await lua.raw.zadd(lua.key("overdue"), {"b": 1})
    assert await sweep(lua, "s", "b") == [0, 2]
    assert await lua.read_namespace() == before


async def test_a_session_missing_from_the_active_index_is_added(lua: Scripts) -> None:
    await lua.append("1")
    before = await lua.read_namespace()
    await lua.raw.delete(lua.key("active"))
    assert await sweep(lua, "s") == [0, 1]
    assert await lua.read_namespace() == before


async def test_a_session_lost_from_the_eviction_queue_can_be_queued_again(lua: Scripts) -> None:
    await lua.append("1")
    before = await lua.fields()
    await run_many(lua, "queue_eviction", ["s"], NOW_MS, "limit", 0, 0, "s", NOW_MS)
    await lua.raw.delete(lua.key("evictions"))
    assert await sweep(lua, "s") == [0, 1]
    assert await changed_fields(lua, before) == {}


async def test_a_state_of_a_foreign_type_does_not_stop_the_sweep(lua: Scripts) -> None:
    await lua.raw.set(lua.key("state"), "x")
    await lua.raw.zadd(lua.key("dead"), {"s": 1, "gone": 2})
    assert await sweep(lua, "s", "gone") == [1, 0]
    assert await queues(lua) == {"dead": {b"s": 1}}


async def test_unreadable_counters_do_not_stop_the_sweep(lua: Scripts) -> None:
    await create_overdue(lua)
    await lua.raw.hset(lua.key("state"), "counters", "x")
    await lua.raw.zadd(lua.key("dead"), {"gone": 2})
    before = await lua.fields()
    assert await sweep(lua, "s", "gone") == [1, 0]
    assert await lua.fields() == before


@pytest.mark.parametrize(
    ("deaths", "wait_ms"), [(1, FIRST_MS), (2, 2 * FIRST_MS), (5, 16 * FIRST_MS), (40, LONGEST_MS)]
)
async def test_a_dead_session_is_tried_again_after_ever_longer_waits(lua: Scripts, deaths: int, wait_ms: int) -> None:
    await create_claimed(lua)
    await lua.run("release", **RELEASE | {"max_attempts": 0, "reason": "x"})
    await lua.raw.hset(lua.key("state"), "deaths", deaths)
    before, died_ms = await lua.fields(), NOW_MS + 7
    assert await sweep(lua, "s", now_ms=died_ms + wait_ms - 1) == [0, 0]
    assert await queues(lua) == {"dead": {b"s": died_ms}}
    assert await sweep(lua, "s", now_ms=died_ms + wait_ms) == [0, 1]
    assert await queues(lua) == {"overdue": {b"s": died_ms + wait_ms}}
    assert await changed_fields(lua, before) == {b"queued": b"overdue", b"attempts": b"2"}, "one attempt is left"
    assert (await lua.run("claim", **CLAIM | {"now_ms": died_ms + wait_ms}))[:3] == [b"job", b"3-cd", 3]


async def test_an_unreadable_number_of_deaths_does_not_stop_the_sweep(lua: Scripts) -> None:
    await create_claimed(lua)
    await lua.run("release", **RELEASE | {"max_attempts": 0, "reason": "x"})
    await lua.raw.hset(lua.key("state"), "deaths", "x")
    await lua.raw.zadd(lua.key("dead"), {"gone": 2})
    assert await sweep(lua, "s", "gone", now_ms=NOW_MS + 7 + FIRST_MS) == [1, 1]
