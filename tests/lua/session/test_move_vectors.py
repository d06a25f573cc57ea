"""move_vectors.lua, raw, without vector sets. With them: test_vector_sets.py."""

from __future__ import annotations

from typing import Any

import fakeredis
import pytest
from redis.exceptions import ResponseError
from support.raw_scripts import Scripts

MOVED: dict[str, Any] = {"block": 1, "seen": b"meant", "model": b"m:4"}
ROW = (b"element", b"\0\0\x80?" * 4)


@pytest.fixture
async def stored(namespace: str) -> Any:
    async with fakeredis.FakeAsyncRedis() as raw:
        lua = Scripts(raw, namespace)
        fields: dict[Any, Any] = {
            "0": "this",
            "s0": "of it",
            "w0": "meant before",
            "1": "that",
            "s1": "of that",
            "v1": "meant",
        }
        await raw.hset(lua.key("originals"), mapping=fields)
        await raw.pexpire(lua.key("originals"), 5_000_000)
        yield lua


async def test_without_vector_sets_nothing_is_changed(stored: Scripts) -> None:
    before = await stored.read_namespace()
    assert await stored.run("move_vectors", *ROW, **MOVED) == -1
    assert await stored.read_namespace() == before


@pytest.mark.parametrize("changed", [{"seen": b"another"}, {"block": 0}, {"block": 7}])
async def test_vectors_that_have_changed_are_not_moved(stored: Scripts, changed: dict[str, Any]) -> None:
    before = await stored.read_namespace()
    assert await stored.run("move_vectors", *ROW, **MOVED | changed) == 0
    assert await stored.read_namespace() == before


async def test_vectors_of_a_lost_set_are_searched_beside_their_blocks_again(stored: Scripts) -> None:
    await stored.raw.hset(stored.key("originals"), "vectors", "m:4")
    assert await stored.run("move_vectors", *ROW, **MOVED) == -1
    fields = {b"0": b"this", b"s0": b"of it", b"v0": b"meant before", b"1": b"that", b"s1": b"of that", b"v1": b"meant"}
    assert await stored.raw.hgetall(stored.key("originals")) == fields


async def test_a_key_of_a_foreign_type_is_refused(stored: Scripts) -> None:
    await stored.raw.set(stored.key("originals"), "x")
    with pytest.raises(ResponseError, match=r"WRONGTYPE"):
        await stored.run("move_vectors", *ROW, **MOVED)
