"""clear.lua, raw."""

from __future__ import annotations

from typing import Any

import pytest
from redis.exceptions import ResponseError
from support.raw_scripts import Scripts
from support.turns import KEYS, put_turn

INDEXES = ("active", "overdue", "leased", "dead", "evictions")


async def test_a_session_is_removed_whole_and_its_neighbours_stay(lua: Scripts) -> None:
    for session_id in ("s", "other"):
        await lua.append("a", session_id=session_id, token=b"token..1")
        await lua.raw.hset(lua.key("originals", session_id), "0", "old")
        await put_turn(lua.raw, lua.session(session_id))
        for index in INDEXES:
            await lua.raw.zadd(lua.key(index), {session_id: 5})
    before = await lua.read_namespace()
    assert await lua.run("clear", epoch="1-ab", noted_ms=0, owner="-", keys_count=13) == 1
    after = await lua.read_namespace()
    gone = {lua.key(name) for name in ("messages", "state", "originals", *KEYS)}
    assert set(before) - set(after) == gone
    for index in INDEXES:
        assert await lua.queue(index) == {b"other": 5}
    assert set(await lua.queue("turns")) == {b"other"}
    assert after[lua.key("state", "other")] == before[lua.key("state", "other")]


@pytest.mark.parametrize("epoch", ["-", "2-ab", "1-cd", "1", "1-ab "])
async def test_another_epoch_removes_nothing(lua: Scripts, epoch: str) -> None:
    await lua.append("a")
    before = await lua.read_namespace()
    assert await lua.run("clear", epoch=epoch, noted_ms=0, owner="-", keys_count=13) == 0
    assert await lua.read_namespace() == before


async def test_a_resent_clear_spares_a_newer_session(lua: Scripts) -> None:
    await lua.append("a")
    assert await lua.run("clear", epoch="1-ab", noted_ms=0, owner="-", keys_count=13) == 1
    assert await lua.run("clear", epoch="1-ab", noted_ms=0, owner="-", keys_count=13) == 0
    await lua.append("b")
    before = await lua.read_namespace()
    assert await lua.run("clear", epoch="1-ab", noted_ms=0, owner="-", keys_count=13) == 0
    assert await lua.read_namespace() == before


async def test_without_a_session_nothing_is_cleared(lua: Scripts) -> None:
    assert await lua.run("clear", epoch="-", noted_ms=0, owner="-", keys_count=13) == 0
    assert await lua.run("clear", epoch="1-ab", noted_ms=0, owner="-", keys_count=13) == 0
    assert await lua.read_namespace() == {}


@pytest.mark.parametrize("empty", [False, True])
async def test_what_is_left_of_a_session_without_an_epoch_is_cleared_too(lua: Scripts, empty: bool) -> None:
    await lua.raw.rpush(lua.key("messages"), "x")
    await lua.raw.zadd(lua.key("active"), {"s": 1})
    if empty:
        await lua.raw.hset(lua.key("state"), "epoch", "")
    assert await lua.run("clear", epoch="-", noted_ms=0, owner="-", keys_count=13) == 1
    assert await lua.read_namespace() == {}


WHICHEVER: dict[str, Any] = {"epoch": "*", "noted_ms": 60_000, "owner": "-"}


async def test_whichever_session_there_is_goes_and_a_resent_clear_spares_the_next(lua: Scripts) -> None:
    await lua.append("a")
    assert await lua.run("clear", **WHICHEVER) == 1
    assert set(await lua.read_namespace()) == {lua.key("fences")}
    assert 0 < await lua.raw.pttl(lua.key("cleared")) <= 60_000
    assert await lua.run("clear", **WHICHEVER) == 1, "it is answered as before"
    await lua.append("b")
    before = await lua.read_namespace()
    assert await lua.run("clear", **WHICHEVER) == 1
    assert await lua.read_namespace() == before


async def test_a_resent_clear_that_found_no_session_spares_the_next(lua: Scripts) -> None:
    for _ in range(2):
        assert await lua.run("clear", **WHICHEVER) == 0
    await lua.append("a")
    before = await lua.read_namespace()
    assert await lua.run("clear", **WHICHEVER) == 0
    assert await lua.read_namespace() == before


async def test_a_session_with_an_owner_goes_at_once(lua: Scripts) -> None:
    await lua.append("a")
    await lua.raw.hset(lua.key("state"), "owner", "5 ann")
    assert await lua.run("clear", **WHICHEVER) == 1
    assert not await lua.raw.exists(lua.key("state"), lua.key("messages"))


async def test_a_resent_clear_spares_a_newer_session_with_an_owner(lua: Scripts) -> None:
    await lua.append("a")
    assert await lua.run("clear", **WHICHEVER) == 1
    await lua.append("b")
    await lua.raw.hset(lua.key("state"), "owner", "5 ann")
    before = await lua.read_namespace()
    assert await lua.run("clear", **WHICHEVER) == 1
    assert await lua.read_namespace() == before


async def test_a_state_of_a_foreign_type_is_refused_and_left(lua: Scripts) -> None:
    await lua.append("a")
    await lua.raw.set(lua.key("state"), "x")
    before = await lua.read_namespace()
    with pytest.raises(ResponseError, match=r"^WRONGTYPE"):
        await lua.run("clear", epoch="1-ab", noted_ms=0, owner="-", keys_count=13)
    assert await lua.read_namespace() == before
