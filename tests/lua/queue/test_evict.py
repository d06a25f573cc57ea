"""evict.lua, raw."""

from __future__ import annotations

from typing import Any

import pytest
from support.queue_scripts import INDEXES, over
from support.raw_scripts import NOW_MS, TIMEOUT_MS, Scripts

LATER_MS = NOW_MS + 5_000
EVICT: dict[str, Any] = {"epoch": "1-ab", "message_count": 2, "edited": "-"}


async def chosen(lua: Scripts) -> None:
    await lua.append("1", "2")
    await lua.raw.hset(lua.key("originals"), "0", "old")
    assert await over(lua, "queue_eviction", ["s"], LATER_MS, "idle", "s", NOW_MS) == 1


async def test_everything_of_the_session_goes_and_nothing_else(lua: Scripts) -> None:
    await lua.append("1", session_id="other")
    before = await lua.everything()
    await chosen(lua)
    for name in INDEXES:
        await lua.raw.zadd(lua.key(name), {"s": 1})
    assert await lua.run("evict", **EVICT | {"epoch": "2-ab"}) == 1
    after = await lua.everything()
    fences = lua.key("fences")
    assert after.pop(fences) == (b"2", -1)
    before.pop(fences)
    assert after == before
    assert await lua.run("evict", **EVICT | {"epoch": "2-ab"}) == 0


@pytest.mark.parametrize("since", ["append", "append, chosen again", "touch", "state", "never chosen", "another life"])
async def test_a_session_that_is_not_as_it_was_stays(lua: Scripts, since: str) -> None:
    if since == "never chosen":
        await lua.append("1", "2")
    else:
        await chosen(lua)
    if since.startswith("append"):
        await lua.append("3", token=b"token..2", now_ms=LATER_MS)
    elif since == "touch":
        await lua.run("touch", now_ms=LATER_MS, idle_timeout_ms=TIMEOUT_MS)
    elif since == "state":
        await lua.append(sets={"plan": "p"}, token=b"token..2", now_ms=LATER_MS)
    elif since == "another life":
        await lua.run("clear", epoch="1-ab")
        await lua.append("1", "2", now_ms=LATER_MS)
    if "again" in since or since == "another life":
        assert await over(lua, "queue_eviction", ["s"], LATER_MS + 1, "limit", "s", LATER_MS) == 1
    before = await lua.everything()
    assert await lua.run("evict", **EVICT) == 0
    assert await lua.everything() == before


async def test_without_a_session_nothing_happens(lua: Scripts) -> None:
    assert await lua.run("evict", **EVICT) == 0
    assert await lua.run("evict", epoch="-", message_count="-", edited="-") == 0
    assert await lua.everything() == {}
