"""evict.lua, raw."""

from __future__ import annotations

from typing import Any

import pytest
from support.queue_scripts import INDEXES, run_many
from support.raw_scripts import NOW_MS, TIMEOUT_MS, Scripts
from support.turns import put_turn

LATER_MS = NOW_MS + 5_000
WITHOUT_TRANSCRIPT = {"appends": "*"}


async def chosen(lua: Scripts) -> dict[str, Any]:
    """Queue a session for eviction and return the arguments of a worker that has read its transcript."""
    await lua.append("1", "2")
    await lua.raw.hset(lua.key("originals"), "0", "old")
    assert await run_many(lua, "queue_eviction", ["s"], LATER_MS, "limit", 0, 0, "s", NOW_MS) == [1, 0]
    return await as_read(lua)


async def as_read(lua: Scripts) -> dict[str, Any]:
    return {"appends": (await lua.fields())[b"ids_a"]}


async def test_every_key_of_the_session_is_removed_and_no_other(lua: Scripts) -> None:
    await lua.append("1", session_id="other")
    before = await lua.read_namespace()
    transcript = await chosen(lua)
    for name in INDEXES:
        await lua.raw.zadd(lua.key(name), {"s": 1})
    await put_turn(lua.raw, lua.session())
    assert await lua.run("evict", **transcript) == 1
    after = await lua.read_namespace()
    fences = lua.key("fences")
    assert after.pop(fences) == (b"2", -1)
    before.pop(fences)
    assert after == before
    assert await lua.run("evict", **transcript) == 0


SINCE = [
    *("append", "append, chosen again", "state", "state, chosen again", "touch", "never chosen"),
    "another life, chosen again",
]


@pytest.mark.parametrize("since", SINCE)
async def test_a_session_changed_since_its_transcript_stays(lua: Scripts, since: str) -> None:
    if since == "never chosen":
        await lua.append("1", "2")
        transcript = await as_read(lua)
    else:
        transcript = await chosen(lua)
    if since.startswith("append"):
        await lua.append("3", token=b"token..2", now_ms=LATER_MS)
    elif since == "touch":
        await lua.run("touch", now_ms=LATER_MS, kept_ms=TIMEOUT_MS)
    elif since.startswith("state"):
        await lua.append(sets={"plan": "p"}, token=b"token..2", now_ms=LATER_MS)
    elif since.startswith("another life"):
        await lua.run("clear", epoch="1-ab", noted_ms=0, owner="-", keys_count=13)
        await lua.append("1", "2", token=b"token..2", now_ms=LATER_MS)
    if "chosen again" in since:
        assert await run_many(lua, "queue_eviction", ["s"], LATER_MS + 1, "limit", 0, 0, "s", LATER_MS) == [1, 0]
    before = await lua.read_namespace()
    assert await lua.run("evict", **transcript) == 0
    assert await lua.read_namespace() == before


async def test_a_session_touched_and_queued_again_still_matches_its_transcript(lua: Scripts) -> None:
    transcript = await chosen(lua)
    await lua.run("touch", now_ms=LATER_MS, kept_ms=TIMEOUT_MS)
    assert await run_many(lua, "queue_eviction", ["s"], LATER_MS + 1, "limit", 0, 0, "s", LATER_MS) == [1, 0]
    assert await lua.run("evict", **transcript) == 1


async def test_without_a_transcript_it_only_has_to_be_queued(lua: Scripts) -> None:
    await chosen(lua)
    assert await lua.run("evict", **WITHOUT_TRANSCRIPT) == 1
    assert await lua.run("evict", **WITHOUT_TRANSCRIPT) == 0
    await chosen(lua)
    await lua.append("3", token=b"token..2", now_ms=LATER_MS)
    assert await lua.run("evict", **WITHOUT_TRANSCRIPT) == 0


async def test_a_session_without_append_ids_is_removed_too(lua: Scripts) -> None:
    transcript = await chosen(lua)
    await lua.raw.hdel(lua.key("state"), "ids_a")
    assert await lua.run("evict", **transcript) == 0
    assert await lua.run("evict", **transcript | {"appends": "-"}) == 1


async def test_without_a_session_nothing_happens(lua: Scripts) -> None:
    assert await lua.run("evict", **WITHOUT_TRANSCRIPT) == 0
    assert await lua.run("evict", appends="-") == 0
    assert await lua.read_namespace() == {}
