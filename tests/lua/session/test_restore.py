"""restore.lua, raw."""

from __future__ import annotations

from typing import Any

import pytest
from redis.exceptions import ResponseError
from support.raw_scripts import NOW_MS, TIMEOUT_MS, Scripts

from redismem.protocol.keys import SHARD_KEYS

ASIDE: dict[str, Any] = {"epoch": "1-ab", "idle_timeout_ms": 60_000}
RESTORE: dict[str, Any] = {
    "now_ms": NOW_MS,
    "kept_ms": TIMEOUT_MS,
    "epoch": "1-ab",
    "nonce": "fe",
    "first_seq": 1,
    "tokens": 20,
    "uncounted": "",
    "hidden": "",
    "policy": "",
    "seen_count": 2,
    "moves": 1,
    "field_count": 1,
}
FIELD = ("plan", "p")


async def quarantine(lua: Scripts) -> dict[bytes, tuple[Any, int]]:
    """Create a session in quarantine, with two messages, originals and a plan."""
    await lua.append("a", "b", sets={"plan": "p"}, tokens=20)
    await lua.raw.hset(lua.key("originals"), "0", "old")
    assert await lua.run("quarantine", **ASIDE) == 3
    return await lua.read_namespace()


def session_keys(stored: dict[bytes, Any]) -> set[bytes]:
    return {key for key in stored if b":s" in key}


@pytest.mark.parametrize("times", [1, 2])
async def test_a_sound_session_is_restored_whole_and_overdue(lua: Scripts, times: int) -> None:
    before = await quarantine(lua)
    for _ in range(times):
        assert await lua.run("restore", *FIELD, **RESTORE) == 1
    after = await lua.read_namespace()
    for name in ("messages", "originals"):
        assert after[lua.key(name)][0] == before[lua.key(f"quarantine_{name}")][0]
    fields = await lua.fields()
    expires_ms = NOW_MS + TIMEOUT_MS
    assert fields == {
        b"epoch": b"1-ab",
        b"counters": b"v1 1 2 20 %d %d" % (NOW_MS, expires_ms),
        b"queued": b"overdue",
        b"plan": b"p",
    }
    assert {after[lua.key(name)][1] for name in ("messages", "state")} == {expires_ms}
    assert not [key for key in after if b":quarantine:" in key]
    for index in SHARD_KEYS[:-1]:
        assert await lua.queue(index) == ({b"s": NOW_MS} if index in ("active", "overdue") else {})


async def test_with_messages_left_out_the_quarantine_stays_unchanged(lua: Scripts) -> None:
    before = await quarantine(lua)
    copies = RESTORE | {"moves": 0, "epoch": "-", "first_seq": 5, "field_count": 0, "tokens": 10}
    for _ in range(2):
        assert await lua.run("restore", 0, **copies) == 1
    after = await lua.read_namespace()
    for name in ("messages", "state", "originals"):
        assert after[lua.key(f"quarantine_{name}")] == before[lua.key(f"quarantine_{name}")]
    assert after[lua.key("messages")][0] == before[lua.key("quarantine_messages")][0][1:]
    assert (await lua.fields())[b"epoch"] == b"2-fe"
    assert (await lua.fields())[b"counters"].startswith(b"v1 5 5 10 ")
    assert lua.key("originals") not in after


@pytest.mark.parametrize("live", ["session", "messages", "originals"])
async def test_an_existing_session_is_not_overwritten(lua: Scripts, live: str) -> None:
    await quarantine(lua)
    if live == "session":
        await lua.append("current", nonce="cd")
    else:
        await lua.raw.rpush(lua.key(live), "x")
    before = await lua.read_namespace()
    with pytest.raises(ResponseError, match=r"^LIVE"):
        await lua.run("restore", *FIELD, **RESTORE)
    assert await lua.read_namespace() == before


async def test_a_quarantine_changed_since_the_read_is_left(lua: Scripts) -> None:
    await quarantine(lua)
    await lua.raw.rpush(lua.key("quarantine_messages"), "more")
    before = await lua.read_namespace()
    with pytest.raises(ResponseError, match=r"^CHANGED 3$"):
        await lua.run("restore", *FIELD, **RESTORE)
    assert await lua.read_namespace() == before


async def test_with_an_empty_quarantine_nothing_is_restored(lua: Scripts) -> None:
    assert await lua.run("restore", *FIELD, **RESTORE) == 0
    assert await lua.read_namespace() == {}


async def test_messages_of_a_foreign_type_count_as_none(lua: Scripts) -> None:
    await quarantine(lua)
    await lua.raw.delete(lua.key("quarantine_messages"))
    await lua.raw.set(lua.key("quarantine_messages"), "x")
    assert await lua.run("restore", *FIELD, **RESTORE | {"seen_count": 0, "moves": 0, "tokens": 0, "first_seq": 3}) == 1
    assert (await lua.fields())[b"counters"].startswith(b"v1 3 2 0 ")
    assert not await lua.raw.exists(lua.key("messages"))
    assert await lua.raw.get(lua.key("quarantine_messages")) == b"x"
