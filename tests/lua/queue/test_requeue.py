"""requeue.lua, raw."""

from __future__ import annotations

from typing import Any

import pytest
from support.queue_scripts import RELEASE, changed_fields, create_claimed, create_overdue, queues
from support.raw_scripts import NOW_MS, Scripts

LATER_MS = NOW_MS + 50
AGAIN: dict[str, Any] = {"now_ms": LATER_MS, "again": 1}


async def dead(lua: Scripts) -> None:
    await create_claimed(lua)
    assert await lua.run("release", **RELEASE | {"max_attempts": 1}) == b"dead"


async def test_a_dead_session_is_tried_again_from_the_first_attempt(lua: Scripts) -> None:
    await dead(lua)
    before = await lua.fields()
    assert await lua.run("requeue", **AGAIN) == 1
    assert await queues(lua) == {"overdue": {b"s": LATER_MS}}
    assert await changed_fields(lua, before) == {b"queued": b"overdue", b"attempts": None, b"deaths": None}


async def test_a_dropped_session_is_not_queued_until_its_next_message(lua: Scripts) -> None:
    await dead(lua)
    before = await lua.fields()
    assert await lua.run("requeue", **AGAIN | {"again": 0}) == 1
    assert await queues(lua) == {}
    assert await changed_fields(lua, before) == {
        b"queued": None,
        b"attempts": None,
        b"deaths": None,
        b"dropped_seq": b"6",
    }
    await lua.append("7", token=b"token..7", now_ms=LATER_MS + 1)
    assert await queues(lua) == {"overdue": {b"s": LATER_MS + 1}}


@pytest.mark.parametrize("again", [0, 1])
@pytest.mark.parametrize("where", ["overdue", "leased", "nowhere"])
async def test_a_session_that_is_not_dead_is_left(lua: Scripts, where: str, again: int) -> None:
    if where != "nowhere":
        await (create_overdue(lua) if where == "overdue" else create_claimed(lua))
    before = await lua.read_namespace()
    assert await lua.run("requeue", **AGAIN | {"again": again}) == 0
    assert await lua.read_namespace() == before


@pytest.mark.parametrize("again", [0, 1])
async def test_a_missing_session_is_removed_from_the_list(lua: Scripts, again: int) -> None:
    await lua.raw.zadd(lua.key("dead"), {"s": 1, "other": 2})
    assert await lua.run("requeue", **AGAIN | {"again": again}) == 1
    assert await queues(lua) == {"dead": {b"other": 2}}
    assert await lua.raw.exists(lua.key("state")) == 0
