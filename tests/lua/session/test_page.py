"""page.lua, raw."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from redis.exceptions import ResponseError
from support.raw_scripts import Scripts
from support.stored import set_counters

PAGE: dict[str, Any] = {"before_seq": "-", "limit": 100, "with_originals": 0, "block_count": 4, "merged_blocks": 2}


async def make(lua: Scripts, originals: int, window: int, session_id: str = "s") -> None:
    """Create a session with `originals` kept messages and a window after them; each element is its seq."""
    await lua.append("x", session_id=session_id)
    total = originals + window
    messages, state, kept = (lua.key(name, session_id) for name in ("messages", "state", "originals"))
    await lua.raw.delete(messages, kept)
    await lua.raw.hset(state, mapping={"with_originals": 1})
    await set_counters(lua.raw, state, first_seq=originals + 1, message_count=total)
    for first in range(1, originals + 1, 4):  # the fake block lists its seqs
        await lua.raw.hset(kept, first // 4, " ".join(map(str, range(first, min(first + 4, originals + 1)))))
    if window:
        await lua.raw.rpush(messages, *range(originals + 1, total + 1))


@settings(max_examples=100)
@given(
    originals=st.integers(0, 8),
    window=st.integers(0, 8),
    before=st.none() | st.integers(-3, 20),
    limit=st.integers(0, 20),
    with_originals=st.booleans(),
)
async def test_a_page_is_the_newest_before_a_seq(
    lua: Scripts, originals: int, window: int, before: int | None, limit: int, with_originals: bool
) -> None:
    await lua.raw.delete(*[lua.key(name) for name in ("messages", "state", "originals")])
    await make(lua, originals, window)
    total = originals + window
    oldest = 1 if with_originals else originals + 1
    visible = [seq for seq in range(oldest, total + 1) if before is None or seq < before]
    expected = visible[max(0, len(visible) - limit) :]
    asked = {"before_seq": "-" if before is None else before, "limit": limit, "with_originals": int(with_originals)}
    epoch, start, stop, first_block, block_count, _, *found = await lua.run("page", **PAGE | asked)
    blocks = [block and [int(seq) for seq in block.split()] for block in found[:block_count]]
    wanted = [seq for block in blocks for seq in block if start <= seq < stop]
    assert wanted == [seq for seq in expected if seq <= originals]
    assert all(min(block) == 4 * number + 1 for number, block in enumerate(blocks, first_block))
    assert [int(each) for each in found[block_count:]] == [seq for seq in expected if seq > originals]
    assert not expected or start == expected[0]
    assert epoch == (await lua.fields())[b"epoch"]


async def test_originals_of_another_epoch_are_not_returned(lua: Scripts) -> None:
    await make(lua, 3, 2)
    await lua.raw.hdel(lua.key("state"), "with_originals")
    assert (await lua.run("page", **PAGE | {"with_originals": 1}))[1:] == [4, 4, 0, 0, b"", b"4", b"5"]


async def test_missing_originals_are_not_searched(lua: Scripts) -> None:
    await make(lua, 3, 2)
    await lua.raw.delete(lua.key("originals"))
    assert (await lua.run("page", **PAGE | {"with_originals": 1}))[1:] == [4, 4, 0, 0, b"", b"4", b"5"]


async def test_a_missing_block_is_false_in_the_reply(lua: Scripts) -> None:
    await make(lua, 11, 1)
    await lua.raw.hdel(lua.key("originals"), 1)
    _, *answer = await lua.run("page", **PAGE | {"with_originals": 1})
    assert answer == [1, 12, 0, 3, b"", b"1 2 3 4", None, b"9 10 11", b"12"]


async def test_no_session_is_an_empty_reply(lua: Scripts) -> None:
    assert await lua.run("page", **PAGE) == []
    assert await lua.read_namespace() == {}


async def test_a_page_writes_nothing(lua: Scripts) -> None:
    await make(lua, 3, 4)
    before = await lua.read_namespace()
    await lua.run("page", **PAGE | {"with_originals": 1})
    assert await lua.read_namespace() == before


@pytest.mark.parametrize(
    "changed", [{"counters": "x"}, {"counters": "v1 1 4 10 5"}, {"counters": "1 4 10 5 6"}, {"epoch": None}]
)
async def test_unreadable_counters_and_a_missing_epoch_are_refused(
    lua: Scripts, changed: dict[str, str | None]
) -> None:
    await make(lua, 0, 4)
    for field, value in changed.items():
        key = lua.key("state")
        await (lua.raw.hdel(key, field) if value is None else lua.raw.hset(key, field, value))
    with pytest.raises(ResponseError, match=r"^CORRUPT"):
        await lua.run("page", **PAGE)


@pytest.mark.parametrize("name", ["state", "messages", "originals"])
async def test_a_key_of_a_foreign_type_is_refused(lua: Scripts, name: str) -> None:
    await make(lua, 3, 4)
    await lua.raw.set(lua.key(name), "x")
    with pytest.raises(ResponseError, match=r"^WRONGTYPE"):
        await lua.run("page", **PAGE | {"with_originals": 1})
