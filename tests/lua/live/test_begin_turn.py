"""begin_turn.lua, raw."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from redis.exceptions import ResponseError
from support.live_scripts import (
    CLAIM,
    HOLDER_1,
    HOLDER_2,
    ID_1,
    ID_2,
    LEASE_MS,
    NONCE,
    append,
    begin,
    begin_name,
    field,
    heard,
    log_of,
    record,
    token_of,
    turned,
)
from support.raw_scripts import EXPIRES_MS, NOW_MS, Scripts, counters, stored_element

from redismem.protocol.live.turns import message_line


def resent(holder: str = HOLDER_1) -> bytes:
    """Return the token of a begin that was sent before."""
    token = token_of(begin_name(ID_1, holder))
    return token[:16] + (2 | 1 << 47).to_bytes(6) + token[22:]


async def end(lua: Scripts, *contents: str, outcome: str = "d", flags: int = 1, **more: Any) -> None:
    await append(lua, *contents, outcome=outcome, flags=flags, token=token_of(b"end", 3), **more)


async def test_the_first_turn_creates_the_session_with_its_lease_and_log(lua: Scripts) -> None:
    reply = await begin(lua, "a", "b", sets={"param:x": "1"})
    assert reply == [counters(2, 10), 1, 2, 1, 0, f"2-{NONCE}".encode()]
    assert await field(lua) == f"r 1-{HOLDER_1} {HOLDER_1} {ID_1} 1"
    stored = await lua.read_namespace()
    assert stored[lua.key("messages")] == ([stored_element("a"), stored_element("b")], EXPIRES_MS)
    assert stored[lua.key("live")] == (message_line(1, 2), EXPIRES_MS)
    assert await lua.queue("turns") == {b"s": NOW_MS + LEASE_MS}
    fields = await lua.fields()
    assert fields[b"param:x"] == b"1"
    assert all(len(value) <= 64 for value in fields.values())


async def test_a_later_turn_goes_on_with_the_seqs_and_with_a_new_log(lua: Scripts) -> None:
    await lua.append("a", "b", nonce=NONCE)
    await lua.raw.set(lua.key("live"), "of an earlier turn")
    await lua.raw.hset(lua.key("state"), mapping={"stop": "late", "doubt": HOLDER_2})
    assert await begin(lua, "c", tokens=5) == counters(3, 15) + f"@1-{NONCE}".encode()
    assert await log_of(lua) == message_line(3, 3)
    assert await lua.raw.pexpiretime(lua.key("live")) == EXPIRES_MS
    fields = await lua.fields()
    assert fields.keys().isdisjoint({b"stop", b"doubt"})
    assert await field(lua) == f"r 2-{HOLDER_1} {HOLDER_1} {ID_1} 3"


async def test_a_resent_begin_has_the_first_reply_and_writes_nothing_twice(lua: Scripts) -> None:
    first = await begin(lua, "a", "b")
    before = await lua.read_namespace()
    assert await begin(lua, "a", "b", fresh=3, token=resent()) == first
    noted = await lua.raw.hget(lua.key("state"), "resent")
    await lua.raw.hdel(lua.key("state"), "resent")
    assert noted is not None
    assert await lua.read_namespace() == before


async def test_a_begin_that_comes_after_its_resent_one_is_refused(lua: Scripts) -> None:
    await begin(lua, "a", fresh=3, token=resent())
    await end(lua, "b")
    before = await lua.read_namespace()
    with pytest.raises(ResponseError, match=r"^OVERTAKEN"):
        await begin(lua, "a", name=ID_2)
    assert await lua.read_namespace() == before


async def test_a_begun_turn_is_found_again_behind_many_other_appends(lua: Scripts) -> None:
    await begin(lua, "a")
    for number in range(17):
        await lua.append("m", token=b"%08d" % number, window_limit=100)
    reply = await begin(lua, "a", fresh=3)
    assert (reply[1:3], await field(lua)) == ([1, 18], f"r 1-{HOLDER_1} {HOLDER_1} {ID_1} 1")


async def test_the_id_of_a_running_turn_is_told(lua: Scripts) -> None:
    await lua.append("x", nonce=NONCE)
    await begin(lua, "a")
    before = await lua.read_namespace()
    with pytest.raises(ResponseError, match=rf"^TURN running 2-{HOLDER_1} 2$"):
        await begin(lua, "a", holder=HOLDER_2, ticket=HOLDER_2)
    assert await lua.read_namespace() == before


@pytest.mark.parametrize(("outcome", "flags", "last"), [("d", 9, 2), ("s", 10, 2), ("f", 11, 2), ("d", 1, 2)])
async def test_the_id_of_an_ended_turn_is_told(lua: Scripts, outcome: str, flags: int, last: int) -> None:
    await begin(lua, "a")
    await end(lua, "b", outcome=outcome, flags=flags)
    await lua.append("c", token=b"token..2")
    before = await lua.read_namespace()
    for again in (("-", "-"), (1, last), (1, 3)):
        with pytest.raises(ResponseError, match=rf"^TURN ended 1 {last} {flags} 3$"):
            await begin(lua, "a", holder=HOLDER_2, again=again)
    assert await lua.read_namespace() == before


async def test_a_turn_is_found_among_many_that_have_ended(lua: Scripts) -> None:
    await lua.append("a", nonce=NONCE)
    across = bytes.fromhex(ID_1)
    others = record("ff" * 7, 2**33, 2**33 + 70_000, 9)[:-3] + across[:3] + record((across[3:] + b"xyz").hex(), 1, 2, 1)
    assert across in others
    await lua.raw.set(lua.key("turned"), NONCE.encode() + others + record(ID_2, 2**33, 2**33 + 70_000, 9))
    with pytest.raises(ResponseError, match=rf"^TURN ended {2**33} {2**33 + 70_000} 9 1$"):
        await begin(lua, "b", name=ID_2)
    await begin(lua, "b")


async def test_turns_of_an_earlier_life_do_not_count(lua: Scripts) -> None:
    await lua.append("a", nonce=NONCE)
    await lua.raw.set(lua.key("turned"), b"f" * 16 + record(ID_1, 1, 2, 9))
    await begin(lua, "b")


@pytest.mark.parametrize(("outcome", "flags"), [("f", 3), ("l", 4)])
async def test_a_turn_without_a_reply_begins_again_with_the_question_that_is_there(
    lua: Scripts, outcome: str, flags: int
) -> None:
    await begin(lua, "x", name=ID_2, holder=HOLDER_2)
    await append(lua, "y", holder=HOLDER_2, outcome="d", flags=9)
    await begin(lua, "a", "b")
    await end(lua, outcome=outcome, flags=flags)
    reply = await begin(lua, holder=HOLDER_2, again=(3, 4), tokens=0, sets={"plan": "p"})
    assert reply == counters(4, 40) + f"@2-{NONCE}".encode()
    assert await field(lua) == f"r 4-{HOLDER_2} {HOLDER_2} {ID_1} 3"
    assert await log_of(lua) == message_line(3, 4)
    assert await turned(lua) == NONCE.encode() + record(ID_2, 1, 2, 9)
    assert await lua.raw.pexpiretime(lua.key("turned")) == EXPIRES_MS
    assert await begin(lua, holder=HOLDER_2, again=(3, 4), tokens=0, fresh=3) == [
        counters(4, 40),
        *(5, 4, 0, 0),
        f"2-{NONCE}".encode(),
    ]


async def test_a_question_that_is_gone_or_not_the_newest_does_not_begin_again(lua: Scripts) -> None:
    await begin(lua, "a")
    await end(lua, outcome="f", flags=3)
    with pytest.raises(ResponseError, match=r"^TURN ended 1 1 3 1$"):
        await begin(lua, holder=HOLDER_2, again=(1, 2))
    await lua.append("b", token=b"token..2")
    with pytest.raises(ResponseError, match=r"^TURN ended 1 1 3 2$"):
        await begin(lua, holder=HOLDER_2, again=(1, 1))
    await lua.raw.delete(lua.key("turned"))
    before = await lua.read_namespace()
    with pytest.raises(ResponseError, match=r"^CONFLICT 2$"):
        await begin(lua, holder=HOLDER_2, again=(1, 1))
    assert await lua.read_namespace() == before


async def test_another_turn_is_busy_without_a_place_in_the_line(lua: Scripts) -> None:
    await begin(lua, "a")
    before = await lua.read_namespace()
    with pytest.raises(ResponseError, match=rf"^TURN busy 1-{HOLDER_1} {LEASE_MS - 5} 0$"):
        await begin(lua, "b", name=ID_2, holder=HOLDER_2, now_ms=NOW_MS + 5)
    with pytest.raises(ResponseError, match=rf"^TURN busy 1-{HOLDER_1} 0 0$"):
        await begin(lua, "b", name=ID_2, holder=HOLDER_2, now_ms=NOW_MS + 2 * LEASE_MS)
    assert await lua.read_namespace() == before


async def test_a_question_that_has_waited_does_not_begin_its_session_anew(lua: Scripts) -> None:
    with pytest.raises(ResponseError, match=r"^CONFLICT 0 cleared$"):
        await begin(lua, "a", ticket="aa", waited=1)
    assert await lua.read_namespace() == {}
    await lua.append("a", nonce=NONCE)
    assert await begin(lua, "b", ticket="aa", waited=1)


async def wait(lua: Scripts, ticket: str, now_ms: int = NOW_MS) -> str:
    """Try to begin a turn that waits in line, and return the refusal."""
    with pytest.raises(ResponseError) as refused:
        await begin(lua, "m", name="0d" * 7, holder=ticket, ticket=ticket, now_ms=now_ms)
    return str(refused.value)


async def test_waiting_turns_begin_in_their_order(lua: Scripts) -> None:
    await begin(lua, "a")
    busy = f"TURN busy 1-{HOLDER_1} {LEASE_MS}"
    assert [await wait(lua, ticket) for ticket in ("aa", "bb", "aa", "bb")] == [f"{busy} {n}" for n in (0, 1, 0, 1)]
    assert await wait(lua, "cc") == f"TURN full 1-{HOLDER_1} {LEASE_MS} 2"
    assert await lua.raw.get(lua.key("waiters")) == f"aa {NOW_MS},bb {NOW_MS}".encode()
    assert 0 < await lua.raw.pttl(lua.key("waiters")) <= 10_000
    await end(lua, "b")
    assert await wait(lua, "bb") == "TURN busy - 0 1"
    with pytest.raises(ResponseError, match=r"^TURN busy - 0 2$"):
        await begin(lua, "c", name=ID_2, holder=HOLDER_2)
    await begin(lua, "c", name=ID_2, holder="aa", ticket="aa")
    assert await lua.raw.get(lua.key("waiters")) == f"bb {NOW_MS}".encode()
    assert (await wait(lua, "bb")).endswith(" 0")
    await append(lua, "d", holder="aa", outcome="d", flags=9)
    await begin(lua, "e", name="0d" * 7, holder="bb", ticket="bb")
    assert await lua.raw.exists(lua.key("waiters")) == 0


async def test_a_place_that_is_not_renewed_lapses(lua: Scripts) -> None:
    await begin(lua, "a")
    await wait(lua, "aa")
    await wait(lua, "bb", NOW_MS + 3_000)
    assert (await wait(lua, "cc", NOW_MS + 5_000)).startswith("TURN busy")
    assert await lua.raw.get(lua.key("waiters")) == f"bb {NOW_MS + 3_000},cc {NOW_MS + 5_000}".encode()
    await end(lua, "b")
    assert await wait(lua, "cc", NOW_MS + 7_999) == "TURN busy - 0 1"
    await begin(lua, "d", name=ID_2, holder="cc", ticket="cc", now_ms=NOW_MS + 8_000)


async def test_a_turn_whose_field_cannot_be_read_is_none(lua: Scripts) -> None:
    await lua.append("a", nonce=NONCE)
    await lua.raw.hset(lua.key("state"), "turn", "r unreadable")
    await begin(lua, "b")


async def test_a_claimed_turn_is_its_first_holders_no_more(lua: Scripts) -> None:
    await begin(lua, "a")
    for late in (1, 2):
        await lua.run("claim_turn", **CLAIM | {"now_ms": NOW_MS + late * LEASE_MS})
    with pytest.raises(ResponseError, match=r"^TURN running"):
        await begin(lua, "a", fresh=3)


REFUSED: dict[str, tuple[str, dict[str, Any]]] = {
    "owner": (r"^OWNER other", {"new_policy": "@1 mine"}),
    "past": (r"^PAST 5", {"now_ms": 5}),
    "conflict": (r"^CONFLICT 2", {"expect": "7"}),
    "cleared": (r"^CONFLICT 2 cleared", {"expect": "2@9-ab"}),
    "full": (r"^FULL 2", {"window_limit": 2, "threshold": 2}),
    "params": (r"^PARAMS 31", {"sets": {f"param:{number}": "x" for number in range(31)}}),
    "pins": (r"^PINS 1 9 0 1", {"pins": "1,9,0,1"}),
}


@pytest.mark.parametrize("what", REFUSED)
async def test_what_an_append_refuses_begins_no_turn(lua: Scripts, what: str) -> None:
    await lua.append("a", "b", nonce=NONCE)
    before = await lua.read_namespace()
    text, changed = REFUSED[what]
    with pytest.raises(ResponseError, match=text):
        await begin(lua, "c", **changed)
    assert await lua.read_namespace() == before


async def test_a_window_of_another_length_is_told_without_a_write(lua: Scripts) -> None:
    await lua.append("a", "b", nonce=NONCE)
    await lua.raw.rpop(lua.key("messages"))
    before = await lua.read_namespace()
    assert await begin(lua, "c") == [counters(2, 10), f"1-{NONCE}".encode(), 1]
    assert await lua.read_namespace() == before


async def test_an_overdue_session_is_queued_and_an_eviction_ends(lua: Scripts) -> None:
    await lua.append("a", nonce=NONCE)
    await lua.set_counters(evicting="idle")
    await lua.raw.zadd(lua.key("evictions"), {"s": 1})
    await begin(lua, *"bcdef")
    assert (await lua.queue("overdue"), await lua.queue("evictions")) == ({b"s": NOW_MS}, {})


async def test_listeners_are_told_the_first_line(server_lua: Scripts) -> None:
    told = await heard(server_lua, server_lua.key("live"), begin(server_lua, "a"))
    assert told == [f"1-{HOLDER_1} 0\n".encode() + message_line(1, 1)]


async def test_a_full_redis_begins_no_turn(server_lua: Scripts) -> None:
    lua = server_lua
    await begin(lua, "a")
    await end(lua, outcome="f", flags=3)
    before = await lua.read_namespace()
    await lua.raw.config_set("maxmemory", 1)
    try:
        for contents, again in ((("b",), ("-", "-")), ((), (1, 1))):
            with pytest.raises(redis.OutOfMemoryError):
                await begin(lua, *contents, name=ID_1 if again[0] == 1 else ID_2, again=again)
    finally:
        await lua.raw.config_set("maxmemory", 0)
    assert await lua.read_namespace() == before
