"""prune.lua, raw."""

from __future__ import annotations

from typing import Any

import pytest
from raw_scripts import EXPIRES_MS, Scripts, element
from redis.exceptions import ResponseError

PRUNE: dict[str, Any] = {"epoch": "1-ab", "first_seq": 1, "count": 2, "tokens": 4, "nonce": "p1"}


async def test_the_oldest_are_dropped_and_the_numbers_follow(lua: Scripts) -> None:
    await lua.append("a", "b", "c", sets={"plan": "p"})
    await lua.raw.rpush(lua.key("originals"), "old")
    before = await lua.fields()
    assert await lua.run("prune", **PRUNE) == 1
    left = await lua.raw.lrange(lua.key("messages"), 0, -1)
    assert [each.startswith(element("c")) for each in left] == [True]
    after = await lua.fields()
    assert (after[b"first_seq"], after[b"tokens"], after[b"message_count"]) == (b"3", b"6", b"3")
    unchanged = set(before) - {b"first_seq", b"tokens"}
    assert {name: after[name] for name in unchanged} == {name: before[name] for name in unchanged}
    assert await lua.raw.exists(lua.key("originals")) == 0
    for name in ("messages", "state"):
        assert await lua.raw.pexpiretime(lua.key(name)) == EXPIRES_MS


async def test_an_append_goes_on_behind_a_prune(lua: Scripts) -> None:
    await lua.append("a", "b")
    assert await lua.run("prune", **PRUNE) == 1
    assert await lua.raw.exists(lua.key("messages")) == 0
    assert await lua.append("c", token=b"token..2") == [3, 3, 0, 0, b"1-ab", 3, 1]
    assert await lua.raw.pexpiretime(lua.key("messages")) == EXPIRES_MS


async def test_sent_again_it_is_known_and_drops_no_more(lua: Scripts) -> None:
    await lua.append("a", "b", "c")
    assert await lua.run("prune", **PRUNE) == 1
    before = await lua.everything()
    assert await lua.run("prune", **PRUNE) == 1
    assert await lua.everything() == before


@pytest.mark.parametrize(
    "changed", [{"epoch": "2-ab"}, {"epoch": ""}, {"first_seq": 2}, {"first_seq": 0}, {"first_seq": ""}]
)
async def test_a_window_that_is_not_the_one_seen_is_left(lua: Scripts, changed: dict[str, Any]) -> None:
    await lua.append("a", "b", "c")
    before = await lua.everything()
    assert await lua.run("prune", **PRUNE | changed) == 0
    assert await lua.everything() == before


async def test_without_a_session_nothing_is_written(lua: Scripts) -> None:
    assert await lua.run("prune", **PRUNE) == 0
    assert await lua.run("prune", **PRUNE | {"epoch": "", "first_seq": ""}) == 0
    assert await lua.everything() == {}


@pytest.mark.parametrize("value", [None, "x", ""])
async def test_tokens_that_are_no_number_are_refused_before_anything_is_written(lua: Scripts, value: Any) -> None:
    await lua.append("a", "b", "c")
    await (
        lua.raw.hdel(lua.key("state"), "tokens") if value is None else lua.raw.hset(lua.key("state"), "tokens", value)
    )
    before = await lua.everything()
    with pytest.raises(ResponseError, match=r"^CORRUPT"):
        await lua.run("prune", **PRUNE)
    assert await lua.everything() == before


@pytest.mark.parametrize("name", ["state", "messages"])
async def test_a_key_of_a_foreign_type_is_refused_and_left(lua: Scripts, name: str) -> None:
    await lua.append("a", "b", "c")
    await lua.raw.set(lua.key(name), "x")
    before = await lua.everything()
    with pytest.raises(ResponseError, match=r"^WRONGTYPE"):
        await lua.run("prune", **PRUNE)
    assert await lua.everything() == before
