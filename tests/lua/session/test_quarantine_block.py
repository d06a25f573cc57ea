"""quarantine_block.lua, raw."""

from __future__ import annotations

from typing import Any

import pytest
from redis.exceptions import ResponseError
from support.raw_scripts import Scripts

BLOCK: dict[str, Any] = {"block": 1, "seen": b"foreign", "idle_timeout_ms": 60_000}


@pytest.fixture
async def stored(lua: Scripts) -> Scripts:
    fields = {"0": "fine", "s0": "of it", "1": "foreign", "s1": "of that"}
    await lua.raw.hset(lua.key("originals"), mapping=fields)
    return lua


async def test_only_the_block_and_its_signature_are_moved(stored: Scripts) -> None:
    assert await stored.run("quarantine_block", "s1", "v1", **BLOCK) == 1
    assert await stored.raw.hgetall(stored.key("originals")) == {b"0": b"fine", b"s0": b"of it"}
    assert await stored.raw.hgetall(stored.key("quarantine_originals")) == {b"1": b"foreign"}
    assert 0 < await stored.raw.pttl(stored.key("quarantine_originals")) <= 60_000


async def test_a_resent_call_does_nothing_more(stored: Scripts) -> None:
    assert await stored.run("quarantine_block", "s1", "v1", **BLOCK) == 1
    before = await stored.read_namespace()
    assert await stored.run("quarantine_block", "s1", "v1", **BLOCK) == 0
    assert await stored.read_namespace() == before


@pytest.mark.parametrize("changed", [{"seen": b"another"}, {"block": 7}, {"block": "s1"}])
async def test_a_block_changed_since_the_read_stays(stored: Scripts, changed: dict[str, Any]) -> None:
    before = await stored.read_namespace()
    assert await stored.run("quarantine_block", "s1", "v1", **BLOCK | changed) == 0
    assert await stored.read_namespace() == before


async def test_a_key_of_a_foreign_type_is_refused(lua: Scripts) -> None:
    await lua.raw.set(lua.key("originals"), "x")
    with pytest.raises(ResponseError, match=r"^WRONGTYPE"):
        await lua.run("quarantine_block", "s1", "v1", **BLOCK)
