"""pop.lua, raw: what it leaves alone. All else the model check plays."""

from __future__ import annotations

from typing import Any

import pytest
from support.raw_scripts import NOW_MS, POP, Scripts, counters, element, stored

STAMP = stored("c").removeprefix(element("c"))


async def test_the_newest_become_gaps_and_the_pop_has_a_place_of_its_own(lua: Scripts) -> None:
    await lua.append("a", "b", "c")
    assert await lua.run("pop", 2, 3, **POP) == 1
    assert await lua.raw.lrange(lua.key("messages"), 0, -1) == [stored("a"), *[b"gap" + STAMP] * 3]
    fields = await lua.fields()
    assert (fields[b"counters"], fields[b"edited"]) == (counters(4, 6) + b"+3", b"e1")


async def test_sent_again_it_is_known(lua: Scripts) -> None:
    await lua.append("a", "b", "c")
    assert await lua.run("pop", 2, 3, **POP) == 1
    before = await lua.everything()
    assert await lua.run("pop", 2, 3, **POP) == [counters(4, 6) + b"+3", 4, 4, 0, 1]
    assert await lua.everything() == before


@pytest.mark.parametrize(
    "changed",
    [
        *({"epoch": "2-ab"}, {"last_seq": 2}, {"last_seq": 4}, {"edited": "e0"}),
        *({"newest": stored("x")}, {"newest": stored("b")}, {"newest": element("c")}, {"newest": b""}),
    ],
)
async def test_a_session_that_is_not_as_it_was_read_is_left(lua: Scripts, changed: dict[str, Any]) -> None:
    await lua.append("a", "b", "c")
    before = await lua.everything()
    assert await lua.run("pop", 2, 3, **POP | changed) == 0
    assert await lua.everything() == before


async def test_the_same_text_at_another_time_is_another_message(lua: Scripts) -> None:
    """A failover has lost the last one, and somebody has appended what says the same."""
    await lua.append("a", "b")
    await lua.append("c", token=b"token..2", now_ms=NOW_MS + 1)
    before = await lua.everything()
    assert await lua.run("pop", 3, **POP) == 0
    assert await lua.everything() == before
