"""replace.lua, raw: messages outside the window, and their originals. The model check covers the rest."""

from __future__ import annotations

from typing import Any

import pytest
from support.raw_scripts import REPLACE, Scripts, stored_element
from support.stored import set_counters

COPY: dict[str, Any] = REPLACE | {
    "first_seq": 2,
    "place": "-",
    "pinned_field": "pinned:1",
    "new_field": "pinned:1",
    "block": 0,
    "old_block": b"with the old",
    "new_block": b"with the new",
    "new_signature": b"what that is about",
    "gone": "v0 v1",
}


@pytest.fixture
async def left(lua: Scripts) -> Scripts:
    """Create a session whose first message is pinned and has left the window, with an original."""
    await lua.append("1", "2", "3")
    await lua.raw.lpop(lua.key("messages"))
    await set_counters(lua.raw, lua.key("state"), first_seq=2)
    await lua.raw.hset(lua.key("state"), mapping={"pinned:1": "old", "with_originals": 1})
    await lua.raw.hset(lua.key("originals"), "0", "with the old")
    return lua


async def test_the_original_is_replaced_too(left: Scripts) -> None:
    for _ in range(2):
        assert await left.run("replace", **COPY) != 0
        assert await left.raw.hmget(left.key("originals"), "0", "s0") == [b"with the new", b"what that is about"]
        assert (await left.fields())[b"pinned:1"] == b"new"


async def test_a_message_that_is_back_in_the_window_is_left(lua: Scripts) -> None:
    """The new value has the form of a field, which would be foreign in the window."""
    await lua.append("1", "2", "3")
    before = await lua.read_namespace()
    moved = COPY | {"old": stored_element("1"), "block": "-"}
    for new_field, new in (("pinned:1", b"new"), ("-", b"")):
        assert await lua.run("replace", **moved | {"new_field": new_field, "new": new}) == 0
    assert await lua.read_namespace() == before
    assert await lua.run("replace", **moved | {"first_seq": 1, "place": 0, "pinned_field": "-", "new_field": "-"}) == 1
    assert await lua.raw.lindex(lua.key("messages"), 0) == b"new"


async def test_a_block_that_has_changed_since_is_left(left: Scripts) -> None:
    await left.raw.hset(left.key("originals"), "0", "longer by now")
    before = await left.read_namespace()
    assert await left.run("replace", **COPY) == 0
    assert await left.read_namespace() == before


async def test_a_message_without_an_original_is_replaced(left: Scripts) -> None:
    assert await left.run("replace", **COPY | {"block": "-"}) == 1
    assert await left.raw.hget(left.key("originals"), "0") == b"with the old"
