"""read_window.lua, raw."""

from __future__ import annotations

import pytest
from redis.exceptions import ResponseError
from support.raw_scripts import Scripts

PLENTY = 1_000_000
LARGE = "x" * 4_500


async def read(lua: Scripts, first: int, budget_bytes: int) -> list[list[bytes]]:
    parts: list[list[bytes]] = await lua.run("read_window", first=first, budget_bytes=budget_bytes)
    return parts


async def test_it_returns_state_and_messages_and_writes_nothing(lua: Scripts) -> None:
    await lua.append("1", "2", "3", sets={"param:a": b"\x01"})
    before = await lua.read_namespace()
    state, messages = await read(lua, 0, PLENTY)
    assert dict(zip(state[::2], state[1::2], strict=True)) == await lua.fields()
    assert messages == await lua.raw.lrange(lua.key("messages"), 0, -1)
    assert await read(lua, 2, PLENTY) == [state, messages[2:]]
    assert await lua.read_namespace() == before


@pytest.mark.parametrize(
    ("first", "budget_bytes", "expected"), [(0, 1, 1), (16, 1, 1), (0, 36_000, 8), (0, 89_000, 20), (20, 1, 0)]
)
async def test_a_part_ends_once_it_has_its_bytes(lua: Scripts, first: int, budget_bytes: int, expected: int) -> None:
    await lua.append(*[LARGE] * 20)
    state, messages = await read(lua, first, budget_bytes)
    assert messages == (await lua.raw.lrange(lua.key("messages"), first, -1))[:expected]
    assert state


async def test_large_messages_are_counted_one_by_one(lua: Scripts) -> None:
    await lua.append("x" * 99_000)
    for expected, budget_bytes in ((1, 1), (1, 99_000)):
        _, messages = await read(lua, 0, budget_bytes)
        assert len(messages) == expected


async def test_a_window_that_the_store_has_evicted_is_empty(lua: Scripts) -> None:
    """The state alone is left, and tells of large messages."""
    await lua.append(LARGE)
    await lua.raw.hset(lua.key("state"), "large_bytes", 2 * PLENTY)
    await lua.raw.delete(lua.key("messages"))
    _, messages = await read(lua, 0, PLENTY)
    assert messages == []


async def test_without_a_session_both_parts_are_empty(lua: Scripts) -> None:
    assert await read(lua, 0, PLENTY) == [[], []]


async def test_a_foreign_type_is_refused(lua: Scripts) -> None:
    await lua.raw.set(lua.key("state"), "x")
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        await read(lua, 0, PLENTY)
