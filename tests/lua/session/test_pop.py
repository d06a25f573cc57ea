"""pop.lua, raw: sessions that it must not change. The model check covers the rest."""

from __future__ import annotations

from typing import Any

import pytest
from support.raw_scripts import NOW_MS, POP, Scripts, counters, element, stored_element

STAMP = stored_element("c").removeprefix(element("c"))


async def test_popped_messages_become_gaps_and_the_pop_adds_one(lua: Scripts) -> None:
    await lua.append("a", "b", "c")
    assert await lua.run("pop", 2, 3, **POP) == 1
    assert await lua.raw.lrange(lua.key("messages"), 0, -1) == [stored_element("a"), *[b"gap" + STAMP] * 3]
    fields = await lua.fields()
    assert (fields[b"counters"], fields[b"edited"]) == (counters(4, 6) + b"+3", b"e1")


async def test_a_resent_pop_is_recognised(lua: Scripts) -> None:
    await lua.append("a", "b", "c")
    assert await lua.run("pop", 2, 3, **POP) == 1
    before = await lua.read_namespace()
    assert await lua.run("pop", 2, 3, **POP) == [counters(4, 6) + b"+3", 4, 4, 0, 1, b"1-ab"]
    assert await lua.read_namespace() == before


@pytest.mark.parametrize(
    "changed",
    [
        *({"epoch": "2-ab"}, {"last_seq": 2}, {"last_seq": 4}, {"edited": "e0"}),
        *({"newest": stored_element("x")}, {"newest": stored_element("b")}, {"newest": element("c")}, {"newest": b""}),
    ],
)
async def test_a_session_changed_since_the_read_is_left(lua: Scripts, changed: dict[str, Any]) -> None:
    await lua.append("a", "b", "c")
    before = await lua.read_namespace()
    assert await lua.run("pop", 2, 3, **POP | changed) == 0
    assert await lua.read_namespace() == before


async def test_the_same_text_at_another_time_is_another_message(lua: Scripts) -> None:
    """A failover has lost the last message, and another writer has appended an equal one."""
    await lua.append("a", "b")
    await lua.append("c", token=b"token..2", now_ms=NOW_MS + 1)
    before = await lua.read_namespace()
    assert await lua.run("pop", 3, **POP) == 0
    assert await lua.read_namespace() == before
