"""The index of owners, raw: each session that was begun with an owner is in it, until it is removed."""

from __future__ import annotations

from typing import Any

import pytest
from redis.exceptions import ResponseError
from support.queue_scripts import SWEEP, run_many
from support.raw_scripts import NOW_MS, Scripts

from redismem import Settings
from redismem.protocol.owners import owner_score
from redismem.protocol.session.calls import SessionCalls

OWNED: dict[str, Any] = {"new_policy": "@7 ann @home~w"}
LONG_AGO_MS = NOW_MS - 4 * 86_400_000


async def test_the_append_that_begins_a_session_notes_its_owner(lua: Scripts) -> None:
    await lua.append("a", **OWNED)
    fields = await lua.fields()
    assert fields[b"owner"] == b"7 ann @home~w"
    assert b"~" not in fields[b"counters"], "the name of an owner is no policy"
    assert await lua.queue("owners") == {b"s": 7}
    for other in ("@8 bob", "@7 ann @home", "@7 ann @home~w2"):
        with pytest.raises(ResponseError, match="OWNER other"):
            await lua.append("b", token=b"token..2", new_policy=other)
    await lua.append("b", token=b"token..2", **OWNED)
    await lua.append("c", session_id="other", token=b"token..3", new_policy="~wx60 @8 bob")
    assert (await lua.fields())[b"owner"] == b"7 ann @home~w"
    assert (await lua.fields("other"))[b"counters"].endswith(b"~wx60")
    assert await lua.queue("owners") == {b"s": 7, b"other": 8}


async def test_a_score_is_stored_to_its_last_digit(lua: Scripts) -> None:
    await lua.append("a", new_policy=f"@{2**52 - 1} ann")
    assert await lua.queue("owners") == {b"s": 2**52 - 1}


async def test_a_session_without_an_owner_has_neither_field_nor_entry(lua: Scripts) -> None:
    await lua.append("a", new_policy="~w")
    assert b"owner" not in await lua.fields()
    assert lua.key("owners") not in await lua.read_namespace()


@pytest.mark.parametrize("removal", ["clear", "evict", "expiry"])
async def test_a_removed_session_leaves_the_index(lua: Scripts, removal: str) -> None:
    await lua.append("a", **OWNED)
    await lua.append("a", session_id="other", token=b"token..2", **OWNED)
    if removal == "clear":
        assert await lua.run("clear", epoch="1-ab", noted_ms=0, owner="-", keys_count=13) == 1
    elif removal == "evict":
        await run_many(lua, "queue_eviction", ["s"], NOW_MS, "limit", 0, 0, "s", NOW_MS)
        assert await lua.run("evict", appends="*") == 1
    else:
        await lua.raw.delete(lua.key("state"), lua.key("messages"))
        assert await run_many(lua, "queue_eviction", ["s"], NOW_MS, "idle", 0, 0, "s", NOW_MS) == [0, 1]
    assert await lua.queue("owners") == {b"other": 7}


async def test_the_sweep_agrees_the_index_with_the_states(lua: Scripts) -> None:
    for number, name in enumerate(("lost", "kept", "foreign", "gone")):
        owned: dict[str, Any] = OWNED if name != "foreign" else {}
        await lua.append("a", session_id=name, token=b"token..%d" % number, **owned)
    expected = {b"lost": 7, b"kept": 7}
    await lua.raw.zrem(lua.key("owners"), "lost")
    await lua.raw.zadd(lua.key("owners"), {"foreign": 9})
    await lua.raw.delete(lua.key("state", "gone"))
    sessions = ["lost", "kept", "foreign", "gone"]
    assert await run_many(lua, "sweep", sessions, NOW_MS, *SWEEP, *sessions) == [1, 2]
    assert await lua.queue("owners") == expected
    assert await run_many(lua, "sweep", sessions, NOW_MS, *SWEEP, *sessions) == [1, 0]
    assert await lua.queue("owners") == expected


@pytest.mark.parametrize(("owner", "left"), [("bob", {b"s": owner_score("bob")}), (None, {b"old": 7})])
async def test_a_new_session_with_an_owner_removes_entries_of_expired_sessions(
    lua: Scripts, owner: str | None, left: dict[bytes, float]
) -> None:
    """An append without an owner does not pass the key: the sweep removes the entry."""
    await lua.append("a", session_id="old", **OWNED)
    await lua.raw.zadd(lua.key("active"), {"old": LONG_AGO_MS})
    await lua.raw.delete(lua.key("state", "old"), lua.key("messages", "old"))
    calls = SessionCalls(lua.session(), Settings(), clock=lambda: NOW_MS, owner=owner)
    await lua.raw.execute_command(*calls.append([{"role": "user", "content": "a"}]).commands[0])
    assert await lua.queue("active") == {b"s": NOW_MS}
    assert await lua.queue("owners") == left
