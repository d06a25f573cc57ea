"""read.lua, raw."""

from __future__ import annotations

from typing import Any

import pytest
from redis.exceptions import ResponseError
from support.raw_scripts import Scripts

WHOLE: dict[str, Any] = {"first": 0, "last": -1}


async def test_it_returns_state_and_messages_and_writes_nothing(lua: Scripts) -> None:
    await lua.append("1", "2", "3", sets={"param:a": b"\x01"})
    before = await lua.read_namespace()
    state, messages = await lua.run("read", **WHOLE)
    assert dict(zip(state[::2], state[1::2], strict=True)) == await lua.fields()
    assert messages == await lua.raw.lrange(lua.key("messages"), 0, -1)
    assert len(messages) == 3
    assert await lua.read_namespace() == before


@pytest.mark.parametrize(("first", "last", "expected"), [(-2, -1, 2), (-9, -1, 3), (1, 0, 0), (0, 0, 1)])
async def test_it_returns_the_requested_range(lua: Scripts, first: int, last: int, expected: int) -> None:
    await lua.append("1", "2", "3")
    _, messages = await lua.run("read", first=first, last=last)
    assert len(messages) == expected


async def test_without_a_session_both_parts_are_empty(lua: Scripts) -> None:
    assert await lua.run("read", **WHOLE) == [[], []]


async def test_a_foreign_type_is_refused(lua: Scripts) -> None:
    await lua.raw.set(lua.key("state"), "x")
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        await lua.run("read", **WHOLE)
