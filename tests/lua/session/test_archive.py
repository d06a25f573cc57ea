"""archive.lua, raw."""

from __future__ import annotations

from typing import Any

import pytest
from redis.exceptions import ResponseError
from support.raw_scripts import ARCHIVE, EXPIRES_MS, Scripts, counters, element, stored_element

KEPT = ("0", b"block", "s0", b"signature")
FIELDS = {b"0": b"block", b"s0": b"signature"}


async def test_the_oldest_messages_move_into_the_originals(lua: Scripts) -> None:
    await lua.append("a", "b", "c", sets={"plan": "p"})
    before = await lua.fields()
    assert await lua.run("archive", *KEPT, **ARCHIVE) == 1
    left = await lua.raw.lrange(lua.key("messages"), 0, -1)
    assert [each.startswith(element("c")) for each in left] == [True]
    ids = before[b"ids_a"] + b"archiv1new\0\0"
    assert await lua.fields() == before | {
        b"counters": counters(3, 6, first_seq=3), b"ids_a": ids, b"with_originals": b"1",
    }  # fmt: skip
    assert await lua.raw.hgetall(lua.key("originals")) == FIELDS
    for name in ("messages", "state", "originals"):
        assert await lua.raw.pexpiretime(lua.key(name)) == EXPIRES_MS


async def test_a_resent_archive_is_recognised_even_after_an_append(lua: Scripts) -> None:
    await lua.append("a", "b", "c")
    assert await lua.run("archive", *KEPT, **ARCHIVE) == 1
    await lua.append("d", token=b"token..2")
    before = await lua.read_namespace()
    assert await lua.run("archive", *KEPT, **ARCHIVE) == [counters(4, 16, first_seq=3), 4, 3, 0, 1, b"1-ab"]
    assert await lua.read_namespace() == before


async def test_originals_of_an_earlier_life_go_and_those_of_this_one_stay(lua: Scripts) -> None:
    await lua.append("a", "b", "c")
    for field in ("1", "vectors"):
        await lua.raw.hset(lua.key("originals"), field, "old")
    assert await lua.run("archive", *KEPT, **ARCHIVE) == 1
    assert await lua.raw.hgetall(lua.key("originals")) == FIELDS
    again = ARCHIVE | {"token": b"archiv2newepoch", "first_seq": 3, "next_seq": 4, "count": 1}
    again["newest"] = stored_element("c")
    assert await lua.run("archive", "1", b"next", **again) == 1
    assert await lua.raw.hgetall(lua.key("originals")) == FIELDS | {b"1": b"next"}
    assert await lua.raw.exists(lua.key("messages")) == 0


@pytest.mark.parametrize(
    "changed",
    [
        *({"epoch": "2-ab"}, {"epoch": "-"}, {"first_seq": 2}, {"first_seq": "-"}, {"edited": "e1"}),
        *({"newest": stored_element("x")}, {"newest": b""}, {"count": 3}, {"count": 4}),
    ],
)
async def test_a_window_changed_since_the_read_is_left(lua: Scripts, changed: dict[str, Any]) -> None:
    await lua.append("a", "b", "c")
    before = await lua.read_namespace()
    assert await lua.run("archive", *KEPT, **ARCHIVE | changed) == 0
    assert await lua.read_namespace() == before


async def test_without_a_session_nothing_is_written(lua: Scripts) -> None:
    assert await lua.run("archive", *KEPT, **ARCHIVE) == 0
    assert await lua.read_namespace() == {}


@pytest.mark.parametrize("name", ["state", "messages", "originals"])
async def test_a_key_of_a_foreign_type_is_refused_and_left(lua: Scripts, name: str) -> None:
    await lua.append("a", "b", "c")
    await lua.raw.set(lua.key(name), "x")
    before = await lua.read_namespace()
    with pytest.raises(ResponseError, match=r"^WRONGTYPE"):
        await lua.run("archive", *KEPT, **ARCHIVE)
    assert await lua.read_namespace() == before
