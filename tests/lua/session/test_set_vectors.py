"""set_vectors.lua, raw."""

from __future__ import annotations

from typing import Any

import pytest
from redis.exceptions import ResponseError
from support.raw_scripts import Scripts

VECTORS: dict[str, Any] = {"block": 1, "stored": 1, "seen": b"that", "vectors": b"meant"}


@pytest.fixture
async def stored(lua: Scripts) -> Scripts:
    await lua.raw.hset(lua.key("originals"), mapping={"0": "this", "s0": "of it", "1": "that", "s1": "of that"})
    await lua.raw.pexpire(lua.key("originals"), 5_000_000)
    return lua


async def test_vectors_are_stored_beside_their_block_and_expire_with_it(stored: Scripts) -> None:
    for _ in range(2):
        assert await stored.run("set_vectors", **VECTORS) == 1
        fields = {b"0": b"this", b"s0": b"of it", b"1": b"that", b"s1": b"of that", b"v1": b"meant"}
        assert await stored.raw.hgetall(stored.key("originals")) == fields
        assert 0 < await stored.raw.pttl(stored.key("originals")) <= 5_000_000


@pytest.mark.parametrize("changed", [{"seen": b"another"}, {"stored": 7}, {"stored": "s1"}])
async def test_vectors_of_a_changed_block_are_not_stored(stored: Scripts, changed: dict[str, Any]) -> None:
    before = await stored.read_namespace()
    assert await stored.run("set_vectors", **VECTORS | changed) == 0
    assert await stored.read_namespace() == before


async def test_vectors_of_a_block_in_a_merged_one_have_its_own_number(stored: Scripts) -> None:
    assert await stored.run("set_vectors", **VECTORS | {"block": 3}) == 1
    assert await stored.raw.hmget(stored.key("originals"), "v1", "v3") == [None, b"meant"]


async def test_a_missing_session_is_not_created(lua: Scripts) -> None:
    before = await lua.read_namespace()
    assert await lua.run("set_vectors", **VECTORS) == 0
    assert await lua.read_namespace() == before


async def test_a_key_of_a_foreign_type_is_refused(lua: Scripts) -> None:
    await lua.raw.set(lua.key("originals"), "x")
    with pytest.raises(ResponseError, match=r"^WRONGTYPE"):
        await lua.run("set_vectors", **VECTORS)
