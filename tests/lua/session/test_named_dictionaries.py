"""named_dictionaries.lua, raw."""

from __future__ import annotations

from support.raw_scripts import Scripts


async def read_all(lua: Scripts, count: int) -> tuple[list[int], int]:
    """Return the distinct numbers in the replies, and the number of replies."""
    cursor, numbers, replies = 0, list[int](), 0
    while True:
        cursor, *part = await lua.run("named_dictionaries", cursor=cursor, count=count)
        assert len(part) == len(set(part))
        numbers, replies = [*numbers, *part], replies + 1
        if cursor == 0:
            return sorted(set(numbers)), replies


async def test_numbers_are_those_of_blocks_alone(lua: Scripts) -> None:
    fields = {"0": b"\3\x0f\5frame", "1": b"\3\x0f\0frame", "12": b"\3\x0f\xffframe", "3": b"\3"}
    besides = {"s0": b"\1\1\7signature", "v1": b"\1\1\x08vectors", "vectors": b"\1\1\x09model"}
    await lua.raw.hset(lua.key("originals"), mapping=fields | besides)
    before = await lua.read_namespace()
    assert await read_all(lua, 100) == ([0, 5, 255], 1)
    assert await lua.read_namespace() == before


async def test_many_blocks_are_read_in_parts(lua: Scripts) -> None:
    fields = {str(number): b"\3\x0f" + bytes([number % 5]) + b"x" * 100 for number in range(900)}
    await lua.raw.hset(lua.key("originals"), mapping=fields)
    numbers, replies = await read_all(lua, 100)
    assert numbers == [0, 1, 2, 3, 4]
    assert replies > 3


async def test_nothing_and_a_foreign_type_name_none(lua: Scripts) -> None:
    assert await read_all(lua, 100) == ([], 1)
    await lua.raw.set(lua.key("originals"), "x")
    assert await read_all(lua, 100) == ([], 1)
