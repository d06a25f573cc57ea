"""forget.lua, raw: what it writes, and sessions that it must not change."""

from __future__ import annotations

from typing import Any

import pytest
from redis.exceptions import ResponseError
from support.raw_scripts import FORGET, NOW_MS, Scripts, counters, element, stored_element

SECOND = (1, stored_element("b"), b"gap")
"""Removes the second of three messages."""


async def test_a_gap_takes_the_place_and_the_counters_follow(lua: Scripts) -> None:
    await lua.append("a", "b", "c")
    expires_ms = await lua.raw.pexpiretime(lua.key("messages"))
    assert await lua.run("forget", *SECOND, **FORGET) == 1
    window = [stored_element("a"), b"gap", stored_element("c")]
    assert await lua.raw.lrange(lua.key("messages"), 0, -1) == window
    fields = await lua.fields()
    assert (fields[b"counters"], fields[b"edited"]) == (counters(3, 8) + b"+1", b"e1")
    assert await lua.raw.pexpiretime(lua.key("messages")) == expires_ms
    assert await lua.raw.zscore(lua.key("active"), "s") == NOW_MS


async def test_gaps_become_one_and_messages_appended_since_stay(lua: Scripts) -> None:
    await lua.append("a", "b", "c")
    await lua.append("d", token=b"token..2")
    places = (0, stored_element("a"), b"gap", 1, stored_element("b"), b"", 2, stored_element("c"), b"")
    assert await lua.run("forget", *places, **FORGET | {"sizes": "3 0 0", "more": "-10 1 -2"}) == 1
    assert await lua.raw.lrange(lua.key("messages"), 0, -1) == [b"gap", stored_element("d")]
    assert (await lua.fields())[b"counters"] == counters(4, 10) + b"+1-2"


async def test_a_resent_call_is_recognised_and_writes_nothing(lua: Scripts) -> None:
    await lua.append("a", "b", "c")
    assert await lua.run("forget", *SECOND, **FORGET) == 1
    before = await lua.read_namespace()
    again = await lua.run("forget", *SECOND, **FORGET)
    assert (again[0], again[4]) == (counters(3, 8) + b"+1", 1)
    assert await lua.read_namespace() == before


@pytest.mark.parametrize("changed", [{"epoch": "2-ab"}, {"first_seq": 2}, {"edited": "e0"}, {"committed": "7-f"}])
async def test_a_session_changed_since_the_read_is_left(lua: Scripts, changed: dict[str, Any]) -> None:
    await lua.append("a", "b", "c")
    before = await lua.read_namespace()
    assert await lua.run("forget", *SECOND, **FORGET | changed) == 0
    assert await lua.read_namespace() == before


async def test_another_message_or_block_in_its_place_is_left(lua: Scripts) -> None:
    await lua.append("a", "b", "c")
    await lua.raw.hset(lua.key("originals"), "0", "other")
    before = await lua.read_namespace()
    for old in (stored_element("c"), element("b"), b""):
        assert await lua.run("forget", 1, old, b"gap", **FORGET) == 0
    assert await lua.run("forget", 9, stored_element("b"), b"gap", **FORGET) == 0
    for number in (0, 1):
        assert await lua.run("forget", number, "block", "new", "sign", "v0", **FORGET | {"sizes": "0 1 0"}) == 0
    assert await lua.read_namespace() == before


async def test_summaries_pins_and_blocks_are_changed_with_the_window(lua: Scripts) -> None:
    await lua.append("a", "b", "c")
    state, originals = lua.key("state"), lua.key("originals")
    await lua.raw.hset(state, mapping={"committed": "9-f", "summary:1": "old", "pins": "3 100", "sketch": "words"})
    blocks = {f"{kind}{number}": f"{kind}{number}" for kind in ("", "s", "v") for number in range(3)}
    await lua.raw.hset(originals, mapping=blocks | {"w3": "set", "vectors": "model"})
    await lua.raw.set(lua.key("vectors"), "a set")
    parts = (
        0,
        "0",
        b"new",
        b"sign",
        "v0",
        2,
        "2",
        b"",
        b"",
        "v2 v3",
        "summary:1",
        "new",
        "pinned:5",
        "p",
        "pinned:4,5",
        "committed",
    )
    changed = {"committed": "9-f", "pins": "-1,-9,2,50", "sizes": "1 2 2"}
    assert await lua.run("forget", *SECOND, *parts, **FORGET | changed) == 1
    kept = {b"0": b"new", b"s0": b"sign", b"1": b"1", b"s1": b"s1", b"v1": b"v1"}
    assert await lua.raw.hgetall(originals) == kept
    assert await lua.raw.exists(lua.key("vectors")) == 0
    fields = await lua.fields()
    assert (fields[b"summary:1"], fields[b"pinned:5"], fields[b"pins"]) == (b"new", b"p", b"2 91")
    assert not {b"committed", b"sketch", b"pinned:4,5"} & fields.keys()


@pytest.mark.parametrize("name", ["state", "messages", "originals"])
async def test_a_key_of_a_foreign_type_and_a_missing_session_are_left(lua: Scripts, name: str) -> None:
    assert await lua.run("forget", *SECOND, **FORGET) == 0
    await lua.append("a", "b", "c")
    await lua.raw.set(lua.key(name), "x")
    before = await lua.read_namespace()
    with pytest.raises(ResponseError, match=r"^WRONGTYPE"):
        await lua.run("forget", *SECOND, **FORGET)
    assert await lua.read_namespace() == before


async def test_a_window_of_another_length_is_refused(lua: Scripts) -> None:
    await lua.append("a", "b", "c")
    await lua.raw.rpop(lua.key("messages"))
    with pytest.raises(ResponseError, match=r"^CORRUPT"):
        await lua.run("forget", *SECOND, **FORGET)
