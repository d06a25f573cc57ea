"""claim_turn.lua, raw."""

from __future__ import annotations

import pytest
from support.live_scripts import CLAIM, HOLDER, LEASE_MS, LINE, TURN, create_running, write
from support.raw_scripts import NOW_MS, Scripts

LATE_MS = NOW_MS + LEASE_MS
CLAIMED = TURN.replace(b"bbbbbbbb", b"cccccccc")


async def test_a_turn_within_its_lease_is_left_alone(lua: Scripts) -> None:
    await create_running(lua)
    before = await lua.read_namespace()
    assert await lua.run("claim_turn", **CLAIM | {"now_ms": NOW_MS + 1}) == [b"leased", LEASE_MS - 1, TURN]
    assert await lua.read_namespace() == before


async def test_the_first_finder_doubts_and_the_next_one_takes_over(lua: Scripts) -> None:
    await create_running(lua)
    half_ms = LEASE_MS // 2
    assert await lua.run("claim_turn", **CLAIM) == [b"doubted", half_ms, TURN]
    assert await lua.queue("turns") == {b"s": LATE_MS + half_ms}
    assert await lua.run("claim_turn", **CLAIM) == [b"leased", half_ms, TURN]
    later = CLAIM | {"now_ms": LATE_MS + half_ms}
    assert await lua.run("claim_turn", **later) == [b"claimed", LEASE_MS, CLAIMED]
    assert await lua.queue("turns") == {b"s": LATE_MS + half_ms + LEASE_MS}
    fields = await lua.fields()
    assert fields[b"turn"] == CLAIMED
    assert b"doubt" not in fields
    assert await write(lua, len(LINE), b"late") == b"lost"


async def test_a_holder_that_writes_in_the_half_lease_keeps_its_turn(lua: Scripts) -> None:
    await create_running(lua)
    await lua.run("claim_turn", **CLAIM)
    assert await write(lua, len(LINE), b"", now_ms=LATE_MS + 1) == b"%d" % len(LINE)
    again = CLAIM | {"now_ms": LATE_MS + 1 + LEASE_MS}
    assert (await lua.run("claim_turn", **again))[0] == b"doubted"


async def test_a_doubt_of_an_earlier_holder_does_not_count(lua: Scripts) -> None:
    await create_running(lua)
    await lua.raw.hset(lua.key("state"), "doubt", "dddddddd")
    assert (await lua.run("claim_turn", **CLAIM))[0] == b"doubted"
    assert (await lua.fields())[b"doubt"] == HOLDER.encode()


async def test_a_resent_claim_is_recognised(lua: Scripts) -> None:
    await create_running(lua, turn=CLAIMED)
    before = await lua.read_namespace()
    assert await lua.run("claim_turn", **CLAIM | {"now_ms": NOW_MS}) == [b"claimed", LEASE_MS, CLAIMED]
    assert await lua.run("claim_turn", **CLAIM | {"now_ms": LATE_MS + 5}) == [b"claimed", 0, CLAIMED]
    assert await lua.read_namespace() == before


@pytest.mark.parametrize("turn", [TURN.replace(b"r ", b"l "), b"unreadable", None])
async def test_where_no_turn_runs_the_list_of_turns_is_repaired(lua: Scripts, turn: bytes | None) -> None:
    await create_running(lua, turn=turn or b"")
    if turn is None:
        await lua.raw.delete(lua.key("state"))
    before = await lua.raw.hgetall(lua.key("state"))
    assert (await lua.run("claim_turn", **CLAIM))[:2] == [b"none", 0]
    assert await lua.queue("turns") == {}
    assert await lua.raw.hgetall(lua.key("state")) == before


async def test_a_turn_without_a_lease_can_be_claimed(lua: Scripts) -> None:
    await create_running(lua)
    await lua.raw.zrem(lua.key("turns"), "s")
    assert (await lua.run("claim_turn", **CLAIM | {"now_ms": NOW_MS}))[0] == b"doubted"
    assert await lua.queue("turns") == {b"s": NOW_MS + LEASE_MS // 2}
