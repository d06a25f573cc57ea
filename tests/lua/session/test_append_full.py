"""append.lua, raw, on a window over the current limit."""

from __future__ import annotations

from typing import Any

import pytest
from redis.exceptions import ResponseError
from support.raw_scripts import Scripts, counters

LOWERED: dict[str, Any] = {"window_limit": 2, "threshold": 2}


async def test_the_state_can_change_after_the_limit_was_lowered_below_the_window(lua: Scripts) -> None:
    await lua.append("a", "b", "c", sets={"param:x": "1"})
    with pytest.raises(ResponseError, match=r"^FULL 3"):
        await lua.append("d", token=b"token..2", **LOWERED)
    noted = await lua.append(sets={"plan": "p"}, drops=["param:x"], token=b"token..3", tokens=0, **LOWERED)
    assert noted == counters(3, 10)
    fields = await lua.fields()
    assert fields[b"plan"] == b"p"
    assert b"param:x" not in fields
    assert await lua.raw.llen(lua.key("messages")) == 3
