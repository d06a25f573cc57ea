"""pop.lua, raw: sessions that it must not change. The model check covers the rest."""

from __future__ import annotations

from typing import Any

import pytest
from support.raw_scripts import NOW_MS, POP, Scripts, counters, element, stored_element


async def test_what_follows_takes_the_place_of_the_popped_messages(lua: Scripts) -> None:
    await lua.append("a", "b", "c")
    assert await lua.run("pop", "pinned", "gap", **POP) == 1
    assert await lua.raw.lrange(lua.key("messages"), 0, -1) == [stored_element("a"), b"pinned", b"gap"]
    fields = await lua.fields()
    assert (fields[b"counters"], fields[b"edited"]) == (counters(4, 4) + b"+1-2", b"e1")


async def test_a_pop_of_everything_keeps_the_expiry(lua: Scripts) -> None:
    await lua.append("a", "b", "c")
    expires_ms = await lua.raw.pexpiretime(lua.key("messages"))
    assert await lua.run("pop", "gap", **POP | {"kept_count": 0}) == 1
    assert await lua.raw.lrange(lua.key("messages"), 0, -1) == [b"gap"]
    assert await lua.raw.pexpiretime(lua.key("messages")) == expires_ms


async def test_a_resent_pop_is_recognised(lua: Scripts) -> None:
    await lua.append("a", "b", "c")
    assert await lua.run("pop", "gap", **POP) == 1
    before = await lua.read_namespace()
    assert await lua.run("pop", "gap", **POP) == [counters(4, 4) + b"+1-2", 4, 4, 0, 1, b"1-ab"]
    assert await lua.read_namespace() == before


@pytest.mark.parametrize(
    "changed",
    [
        *({"epoch": "2-ab"}, {"first_seq": 2}, {"last_seq": 2}, {"last_seq": 4}, {"edited": "e0"}),
        *({"newest": stored_element("x")}, {"newest": stored_element("b")}, {"newest": element("c")}, {"newest": b""}),
    ],
)
async def test_a_session_changed_since_the_read_is_left(lua: Scripts, changed: dict[str, Any]) -> None:
    await lua.append("a", "b", "c")
    before = await lua.read_namespace()
    assert await lua.run("pop", "gap", **POP | changed) == 0
    assert await lua.read_namespace() == before


async def test_the_same_text_at_another_time_is_another_message(lua: Scripts) -> None:
    """A failover has lost the last message, and another writer has appended an equal one."""
    await lua.append("a", "b")
    await lua.append("c", token=b"token..2", now_ms=NOW_MS + 1)
    before = await lua.read_namespace()
    assert await lua.run("pop", "gap", **POP) == 0
    assert await lua.read_namespace() == before
