"""touch.lua, raw."""

from __future__ import annotations

from typing import Any

import pytest
from redis.exceptions import ResponseError
from support.raw_scripts import NOW_MS, TIMEOUT_MS, Scripts, counters
from support.turns import put_turn

LATER_MS = NOW_MS + 77
TOUCH: dict[str, Any] = {"now_ms": LATER_MS, "kept_ms": TIMEOUT_MS}


async def test_the_time_to_live_of_every_key_is_renewed(lua: Scripts) -> None:
    await lua.append("a")
    before = await lua.fields()
    assert await lua.run("touch", **TOUCH) == 1
    expires_ms = LATER_MS + TIMEOUT_MS
    for name in ("state", "messages"):
        assert await lua.raw.pexpiretime(lua.key(name)) == expires_ms
    changed = counters(1, 10, active_ms=LATER_MS, expires_ms=expires_ms)
    assert await lua.fields() == before | {b"counters": changed}
    assert await lua.queue("active") == {b"s": LATER_MS}


async def test_ended_turns_live_on_and_their_log_does_not(lua: Scripts) -> None:
    await lua.append("a")
    await put_turn(lua.raw, lua.session(), "d")
    expires_ms = await lua.raw.pexpiretime(lua.key("live"))
    await lua.run("touch", **TOUCH)
    assert await lua.raw.pexpiretime(lua.key("turned")) == LATER_MS + TIMEOUT_MS
    assert await lua.raw.pexpiretime(lua.key("live")) == expires_ms
    await lua.run("touch", **TOUCH | {"kept_ms": 1000})
    assert await lua.raw.pexpiretime(lua.key("live")) == LATER_MS + 1000, "it does not outlive the session"


async def test_a_session_without_messages_is_touched_too(lua: Scripts) -> None:
    await lua.append(sets={"plan": "p"})
    assert await lua.run("touch", **TOUCH) == 1
    assert await lua.raw.exists(lua.key("messages")) == 0


async def test_a_touched_session_leaves_the_eviction_queue(lua: Scripts) -> None:
    await lua.append("a")
    await lua.set_counters(evicting="idle")
    await lua.raw.zadd(lua.key("evictions"), {"s": 1, "other": 2})
    await lua.run("touch", **TOUCH)
    assert await lua.queue("evictions") == {b"other": 2}
    assert (await lua.fields())[b"counters"].count(b" ") == 5


async def test_without_now_ms_the_servers_clock_counts(lua: Scripts) -> None:
    await lua.append("a")
    await lua.run("touch", **TOUCH | {"now_ms": "-"})
    seconds, _ = await lua.raw.time()
    assert abs((await lua.counters())["active_ms"] - seconds * 1000) < 60_000


async def test_without_a_session_nothing_is_written(lua: Scripts) -> None:
    assert await lua.run("touch", **TOUCH) == 0
    assert await lua.read_namespace() == {}
    await lua.raw.hset(lua.key("state"), "foreign", "1")
    before = await lua.read_namespace()
    assert await lua.run("touch", **TOUCH) == 0
    assert await lua.read_namespace() == before


@pytest.mark.parametrize("kept_ms", [1, 15_999, 16_001])
async def test_a_short_time_to_live_gets_a_second_more_as_after_an_append(lua: Scripts, kept_ms: int) -> None:
    await lua.append("a", kept_ms=kept_ms)
    appended = await lua.counters()
    await lua.run("touch", **TOUCH | {"kept_ms": kept_ms})
    assert (await lua.counters())["expires_ms"] == appended["expires_ms"] + LATER_MS - NOW_MS


@pytest.mark.parametrize("counters", ["", "x", "v1 1 1 10 5", "v1 1 1 10 5 6 7", "v1 1 1 10 5 1e+15", "1 1 10 5 6"])
async def test_unreadable_counters_are_refused_and_left(lua: Scripts, counters: str) -> None:
    await lua.append("a")
    await lua.raw.hset(lua.key("state"), "counters", counters)
    before = await lua.read_namespace()
    with pytest.raises(ResponseError, match=r"^CORRUPT"):
        await lua.run("touch", **TOUCH)
    assert await lua.read_namespace() == before


async def test_a_state_of_a_foreign_type_is_refused(lua: Scripts) -> None:
    await lua.raw.set(lua.key("state"), "x")
    before = await lua.read_namespace()
    with pytest.raises(ResponseError, match=r"^WRONGTYPE"):
        await lua.run("touch", **TOUCH)
    assert await lua.read_namespace() == before
