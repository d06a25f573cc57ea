"""prune.lua, raw."""

from __future__ import annotations

from typing import Any

import pytest
from redis.exceptions import ResponseError
from support.raw_scripts import EXPIRES_MS, PRUNE, Scripts, counters, element, stored_element


async def test_the_oldest_messages_are_dropped_and_the_counters_follow(lua: Scripts) -> None:
    await lua.append("a", "b", "c", sets={"plan": "p"})
    await lua.raw.hset(lua.key("originals"), "0", "old")
    before = await lua.fields()
    assert await lua.run("prune", **PRUNE) == 1
    left = await lua.raw.lrange(lua.key("messages"), 0, -1)
    assert [each.startswith(element("c")) for each in left] == [True]
    assert await lua.fields() == before | {b"counters": counters(3, 6, first_seq=3), b"pruned": b"p1"}
    assert await lua.raw.exists(lua.key("originals")) == 0
    for name in ("messages", "state"):
        assert await lua.raw.pexpiretime(lua.key(name)) == EXPIRES_MS


async def test_an_append_after_a_prune_continues_the_seqs(lua: Scripts) -> None:
    await lua.append("a", "b")
    assert await lua.run("prune", **PRUNE) == 1
    assert await lua.raw.exists(lua.key("messages")) == 0
    assert await lua.append("c", token=b"token..2") == counters(3, 16, first_seq=3)
    assert await lua.raw.pexpiretime(lua.key("messages")) == EXPIRES_MS


async def test_the_reason_of_an_eviction_stays_and_tokens_never_fall_below_zero(lua: Scripts) -> None:
    await lua.append("a", "b", "c")
    await lua.set_counters(evicting="limit")
    assert await lua.run("prune", **PRUNE | {"tokens": 11}) == 1
    assert (await lua.fields())[b"counters"] == counters(3, 0, first_seq=3) + b" limit"


async def test_large_sums_of_tokens_stay_exact(lua: Scripts) -> None:
    await lua.append("a", "b", "c")
    await lua.set_counters(tokens=10**15 + 5)
    assert await lua.run("prune", **PRUNE) == 1
    assert (await lua.counters())["tokens"] == 10**15 + 1


async def test_a_resent_prune_is_recognised_and_drops_nothing(lua: Scripts) -> None:
    await lua.append("a", "b", "c")
    assert await lua.run("prune", **PRUNE) == 1
    before = await lua.read_namespace()
    assert await lua.run("prune", **PRUNE) == 1
    assert await lua.read_namespace() == before


@pytest.mark.parametrize(
    "changed",
    [
        *({"epoch": "2-ab"}, {"epoch": "-"}, {"first_seq": 2}, {"first_seq": 0}, {"first_seq": "-"}, {"edited": "e1"}),
        *({"newest": stored_element("x")}, {"newest": element("b")}, {"newest": b""}, {"count": 3}, {"count": 4}),
    ],
)
async def test_a_window_changed_since_the_read_is_left(lua: Scripts, changed: dict[str, Any]) -> None:
    await lua.append("a", "b", "c")
    before = await lua.read_namespace()
    assert await lua.run("prune", **PRUNE | changed) == 0
    assert await lua.read_namespace() == before


async def test_without_a_session_nothing_is_written(lua: Scripts) -> None:
    assert await lua.run("prune", **PRUNE) == 0
    assert await lua.run("prune", **PRUNE | {"epoch": "-", "first_seq": "-"}) == 0
    assert await lua.read_namespace() == {}


@pytest.mark.parametrize("value", [None, "x", "", "v1 1 3 10 5", "v1 1 3 10 5 6 7", "1 3 10 5 6"])
async def test_unreadable_counters_are_refused_before_any_write(lua: Scripts, value: Any) -> None:
    await lua.append("a", "b", "c")
    key = lua.key("state")
    await (lua.raw.hdel(key, "counters") if value is None else lua.raw.hset(key, "counters", value))
    before = await lua.read_namespace()
    with pytest.raises(ResponseError, match=r"^CORRUPT"):
        await lua.run("prune", **PRUNE)
    assert await lua.read_namespace() == before


@pytest.mark.parametrize("name", ["state", "messages"])
async def test_a_key_of_a_foreign_type_is_refused_and_left(lua: Scripts, name: str) -> None:
    await lua.append("a", "b", "c")
    await lua.raw.set(lua.key(name), "x")
    before = await lua.read_namespace()
    with pytest.raises(ResponseError, match=r"^WRONGTYPE"):
        await lua.run("prune", **PRUNE)
    assert await lua.read_namespace() == before
