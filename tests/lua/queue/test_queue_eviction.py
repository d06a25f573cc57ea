"""queue_eviction.lua, raw."""

from __future__ import annotations

from support.queue_scripts import INDEXES, changed_fields, create_overdue, queues, run_many
from support.raw_scripts import EXPIRES_MS, NOW_MS, TIMEOUT_MS, Scripts

LATER_MS = NOW_MS + 5_000


async def test_a_session_not_touched_since_the_poll_is_queued_once(lua: Scripts) -> None:
    """An idle one is queued before it expires, and is due then."""
    await lua.append("1")
    before = await lua.fields()
    soon = await lua.read_namespace()
    for soon_ms in (0, EXPIRES_MS - LATER_MS):
        assert await run_many(lua, "queue_eviction", ["s"], LATER_MS, "idle", 0, soon_ms, "s", NOW_MS) == [0, 0]
    assert await lua.read_namespace() == soon
    soon_ms = EXPIRES_MS - LATER_MS + 1
    assert await run_many(lua, "queue_eviction", ["s"], LATER_MS, "idle", 0, soon_ms, "s", NOW_MS) == [1, 0]
    assert await queues(lua) == {"evictions": {b"s": EXPIRES_MS + 1}}
    assert await changed_fields(lua, before) == {b"counters": before[b"counters"] + b" idle"}
    after = await lua.read_namespace()
    assert await run_many(lua, "queue_eviction", ["s"], LATER_MS + 9, "limit", 0, 0, "s", NOW_MS) == [0, 0]
    assert await lua.read_namespace() == after


async def test_a_touched_session_expires_at_its_own_time_again(lua: Scripts) -> None:
    await lua.append("1")
    assert await run_many(lua, "queue_eviction", ["s"], LATER_MS, "idle", 1, TIMEOUT_MS, "s", NOW_MS) == [1, 0]
    assert (await lua.counters())["expires_ms"] == await lua.raw.pexpiretime(lua.key("state")) == LATER_MS + 86_400_000
    await lua.append("2", token=b"token..2", now_ms=NOW_MS + 1)
    assert await queues(lua) == {}
    for key in ("state", "messages"):
        assert await lua.raw.pexpiretime(lua.key(key)) == EXPIRES_MS + 1
    assert (await lua.counters())["expires_ms"] == EXPIRES_MS + 1


async def test_a_session_touched_since_is_left(lua: Scripts) -> None:
    await lua.append("1")
    await lua.run("touch", now_ms=NOW_MS + 1, kept_ms=60_000)
    before = await lua.read_namespace()
    assert await run_many(lua, "queue_eviction", ["s"], LATER_MS, "idle", 0, TIMEOUT_MS, "s", NOW_MS) == [0, 0]
    assert await lua.read_namespace() == before


async def test_each_session_of_a_call_is_checked_separately(lua: Scripts) -> None:
    for number, name in enumerate("abc"):
        await lua.append("1", session_id=name, now_ms=NOW_MS + number)
    seen = ["a", NOW_MS, "b", NOW_MS, "c", NOW_MS + 2]
    assert await run_many(lua, "queue_eviction", list("abc"), LATER_MS, "limit", 0, 0, *seen) == [2, 0]
    assert await queues(lua) == {"evictions": {b"a": LATER_MS, b"c": LATER_MS}}


async def test_a_session_that_has_expired_leaves_every_index(lua: Scripts) -> None:
    await lua.append("1", session_id="b")
    for name in (*INDEXES, "turns"):
        await lua.raw.zadd(lua.key(name), {"s": NOW_MS})
    assert await run_many(lua, "queue_eviction", ["s", "b"], LATER_MS, "limit", 0, 0, "s", NOW_MS, "b", NOW_MS) == [
        1,
        1,
    ], "one had expired"
    assert await lua.queue("active") == {b"b": NOW_MS}
    assert await queues(lua) == {"evictions": {b"b": LATER_MS}}
    assert await lua.raw.exists(lua.key("state"), lua.key("turns")) == 0


async def test_a_state_of_a_foreign_type_does_not_stop_the_others(lua: Scripts) -> None:
    """It is queued unchanged: the worker that claims it finds it unreadable and puts it into quarantine."""
    await create_overdue(lua)
    await lua.append("1", session_id="b")
    await lua.raw.set(lua.key("state"), "x")
    seen = ["s", NOW_MS, "b", NOW_MS]
    assert await run_many(lua, "queue_eviction", ["s", "b"], LATER_MS, "limit", 0, 0, *seen) == [1, 0]
    assert (await queues(lua))["evictions"] == {b"s": LATER_MS, b"b": LATER_MS}
    assert await lua.raw.get(lua.key("state")) == b"x"
