"""append_turn.lua, raw."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from redis.exceptions import ResponseError
from support.live_scripts import (
    CLAIM,
    HOLDER_1,
    ID_1,
    ID_2,
    LEASE_MS,
    NONCE,
    append,
    begin,
    field,
    heard,
    log_of,
    record,
    token_of,
    turned,
    write,
)
from support.raw_scripts import EXPIRES_MS, NOW_MS, TIMEOUT_MS, Scripts, counters, stored_element

from redismem.protocol.live.turns import message_line

GENERATION = f"1-{HOLDER_1}"
EPOCH = f"@2-{NONCE}".encode()
END = b'{"end":2}\n'
NO_END: dict[str, Any] = {}
DONE: dict[str, Any] = {"outcome": "d", "flags": 9}


async def test_messages_of_a_turn_are_appended_with_their_line(lua: Scripts) -> None:
    await begin(lua, "a")
    await lua.raw.hset(lua.key("state"), mapping={"stop": "user", "doubt": HOLDER_1})
    assert await append(lua, "b", "c", sets={"plan": "p"}, now_ms=NOW_MS + 2_000) == (
        counters(3, 20, active_ms=NOW_MS + 2_000, expires_ms=EXPIRES_MS + 2_000) + EPOCH
    )
    assert await log_of(lua) == message_line(1, 1) + message_line(2, 3)
    assert await field(lua) == f"r {GENERATION} {HOLDER_1} {ID_1} 1"
    assert await lua.queue("turns") == {b"s": NOW_MS + 2_000 + LEASE_MS}
    assert await lua.raw.pexpiretime(lua.key("live")) == EXPIRES_MS + 2_000
    fields = await lua.fields()
    assert (fields[b"plan"], fields[b"stop"], b"doubt" in fields) == (b"p", b"user", False)
    assert await turned(lua) is None


async def test_a_change_of_the_state_alone_has_no_line(lua: Scripts) -> None:
    await begin(lua, "a")
    assert await append(lua, sets={"plan": "p"}, tokens=0) == counters(1, 10) + EPOCH
    assert await log_of(lua) == message_line(1, 1)


@pytest.mark.parametrize(("outcome", "flags", "told"), [("d", 9, b"2"), ("s", 10, b"2"), ("f", 3, b"null")])
async def test_the_end_is_written_with_the_reply(lua: Scripts, outcome: str, flags: int, told: bytes) -> None:
    await begin(lua, "a")
    await lua.raw.hset(lua.key("state"), mapping={"stop": "user", "doubt": HOLDER_1})
    reply = await append(lua, "b", outcome=outcome, flags=flags, keep_ms=5_000)
    assert reply == counters(2, 20) + EPOCH
    assert await log_of(lua) == message_line(1, 1) + message_line(2, 2) + b'{"end":' + told + b"}\n"
    assert await field(lua) == f"{outcome} {GENERATION} {HOLDER_1} {ID_1} 1"
    assert await turned(lua) == NONCE.encode() + record(ID_1, 1, 2, flags)
    assert await lua.queue("turns") == {}
    stored = await lua.read_namespace()
    assert stored[lua.key("messages")] == ([stored_element("a"), stored_element("b")], EXPIRES_MS)
    assert (stored[lua.key("live")][1], stored[lua.key("turned")][1]) == (NOW_MS + 5_000, EXPIRES_MS)
    assert (await lua.fields()).keys().isdisjoint({b"stop", b"doubt"})


async def test_a_turn_can_end_without_a_message(lua: Scripts) -> None:
    await begin(lua, "a")
    assert await append(lua, outcome="l", flags=4, tokens=0) == counters(1, 10) + EPOCH
    assert await log_of(lua) == message_line(1, 1) + b'{"end":null}\n'
    assert await turned(lua) == NONCE.encode() + record(ID_1, 1, 1, 4)


@pytest.mark.parametrize(("keep_ms", "expires_ms"), [(0, -2), (2 * TIMEOUT_MS, EXPIRES_MS)])
async def test_the_log_is_kept_as_long_as_asked_but_not_longer_than_the_session(
    lua: Scripts, keep_ms: int, expires_ms: int
) -> None:
    await begin(lua, "a")
    if not keep_ms:
        await lua.run("touch", now_ms="-", kept_ms=TIMEOUT_MS)
    await append(lua, "b", outcome="d", flags=9, keep_ms=keep_ms, now_ms=NOW_MS if keep_ms else "-")
    assert await lua.raw.pexpiretime(lua.key("live")) == expires_ms


async def test_a_resent_append_has_the_first_reply_and_writes_nothing_twice(lua: Scripts) -> None:
    await begin(lua, "a")
    for end in (NO_END, DONE):
        token = token_of(b"append" if not end else b"end")
        resent = token[:16] + ((9 + len(end)) | 1 << 47).to_bytes(6) + token[22:]
        sent = token[:16] + (8 + len(end)).to_bytes(6) + token[22:]
        offset = len(await log_of(lua) or b"")
        await append(lua, "b", generation=GENERATION, offset=offset, token=sent, **end)
        before = await lua.read_namespace()
        again = await append(lua, "b", generation=GENERATION, offset=offset, token=resent, fresh=3, **end)
        assert again[1:5] == [2 + bool(end), 2 + bool(end), 0, 0]
        await lua.raw.hdel(lua.key("state"), "resent")
        assert await lua.read_namespace() == before


async def test_an_append_that_another_process_repeats_is_a_duplicate(lua: Scripts) -> None:
    await begin(lua, "a")
    await append(lua, "b")
    before = await lua.read_namespace()
    other = token_of(b"append")[:9] + b"\x07other." + token_of(b"append")[16:]
    assert (await append(lua, "b", token=other))[1:5] == [2, 2, 0, 1]
    assert await lua.read_namespace() == before


@pytest.mark.parametrize("what", ["holder", "generation", "ended", "unreadable", "no turn", "no session"])
async def test_a_turn_that_is_not_the_callers_is_lost(lua: Scripts, what: str) -> None:
    await begin(lua, "a")
    generation, holder = GENERATION, HOLDER_1
    match what:
        case "holder":
            for late in (1, 2):
                await lua.run("claim_turn", **CLAIM | {"now_ms": NOW_MS + late * LEASE_MS})
        case "generation":
            generation = f"2-{HOLDER_1}"
        case "ended":
            await append(lua, outcome="d", flags=1, token=token_of(b"end"))
        case "unreadable":
            await lua.raw.hset(lua.key("state"), "turn", "r x")
        case "no turn":
            await lua.raw.hdel(lua.key("state"), "turn")
        case _:
            await lua.raw.delete(lua.key("state"), lua.key("messages"))
    before = await lua.read_namespace()
    for end in (NO_END, DONE):
        with pytest.raises(ResponseError, match=r"^TURN lost$"):
            await append(lua, "b", generation=generation, holder=holder, offset=0, **end)
    assert await lua.read_namespace() == before


async def test_the_new_holder_ends_a_claimed_turn(lua: Scripts) -> None:
    await begin(lua, "a")
    for late in (1, 2):
        await lua.run("claim_turn", **CLAIM | {"now_ms": NOW_MS + late * LEASE_MS})
    await append(lua, "b", holder="cccccccc", outcome="l", flags=12)
    assert await field(lua) == f"l {GENERATION} cccccccc {ID_1} 1"
    assert await turned(lua) == NONCE.encode() + record(ID_1, 1, 2, 12)
    assert (await log_of(lua) or b"").endswith(END)


async def test_a_log_with_other_bytes_is_left_for_its_writer(lua: Scripts) -> None:
    await begin(lua, "a")
    for offset in (3, 1_000):
        await append(lua, "b", offset=offset, token=token_of(b"%d" % offset))
        assert await log_of(lua) == message_line(1, 1)
    said = message_line(1, 1) + message_line(2, 2) + message_line(3, 3)
    assert await write(lua, 0, said, generation=GENERATION, holder=HOLDER_1) == b"%d" % len(said)
    assert await log_of(lua) == said


async def test_a_log_that_lacks_bytes_at_the_end_is_removed(lua: Scripts) -> None:
    await begin(lua, "a")
    await append(lua, "b", offset=1_000, outcome="d", flags=9)
    assert await log_of(lua) is None
    assert await turned(lua) == NONCE.encode() + record(ID_1, 1, 2, 9)
    assert await lua.queue("turns") == {}


async def test_records_follow_each_other_and_those_of_an_earlier_life_go(lua: Scripts) -> None:
    await lua.append(*"abc", nonce=NONCE)
    await lua.raw.set(lua.key("turned"), b"f" * 16 + record(ID_1, 1, 2, 9))
    for number, name in enumerate((ID_1, ID_2)):
        await begin(lua, "x", name=name)
        await append(lua, "y", outcome="d", flags=9, token=token_of(b"%d" % number))
    assert await turned(lua) == NONCE.encode() + record(ID_1, 4, 5, 9) + record(ID_2, 6, 7, 9)
    assert await lua.raw.pexpiretime(lua.key("turned")) == EXPIRES_MS


@pytest.mark.parametrize(("count", "with_originals", "kept"), [(95, 0, 96), (96, 0, 64), (96, 1, 97)])
async def test_without_originals_only_the_newest_records_stay(
    lua: Scripts, count: int, with_originals: int, kept: int
) -> None:
    await begin(lua, "a")
    old = [record(f"{number:014x}", number, number, 1) for number in range(1, count + 1)]
    await lua.raw.set(lua.key("turned"), NONCE.encode() + b"".join(old))
    await append(lua, "b", outcome="d", flags=9, with_originals=with_originals)
    newest = [*old, record(ID_1, 1, 2, 9)][-kept:]
    assert await turned(lua) == NONCE.encode() + b"".join(newest)


@pytest.mark.parametrize(("first_seq", "count"), [(255, 1), (2**32 + 7, 300), (2**39 + 5, 70_000)])
async def test_large_seqs_are_noted_exactly(lua: Scripts, first_seq: int, count: int) -> None:
    await lua.append("a", nonce=NONCE)
    await lua.set_counters(first_seq=first_seq - 1, message_count=first_seq - 1)
    await begin(lua, "b")
    await lua.set_counters(message_count=first_seq + count, first_seq=first_seq + count - 1)
    await append(lua, outcome="s", flags=2, tokens=0)
    assert await turned(lua) == NONCE.encode() + record(ID_1, first_seq, first_seq + count, 2)


REFUSED: dict[str, tuple[str, dict[str, Any]]] = {
    "owner": (r"^OWNER other", {"new_policy": "@1 mine"}),
    "past": (r"^PAST 5", {"now_ms": 5}),
    "full": (r"^FULL 1", {"window_limit": 1, "threshold": 1}),
    "params": (r"^PARAMS 31", {"sets": {f"param:{number}": "x" for number in range(31)}}),
    "pins": (r"^PINS 1 9 0 1", {"pins": "1,9,0,1"}),
}


@pytest.mark.parametrize("what", REFUSED)
@pytest.mark.parametrize("end", [NO_END, DONE])
async def test_what_an_append_refuses_leaves_the_turn_running(lua: Scripts, what: str, end: dict[str, Any]) -> None:
    await begin(lua, "a")
    before = await lua.read_namespace()
    text, changed = REFUSED[what]
    with pytest.raises(ResponseError, match=text):
        await append(lua, "c", **end, **changed)
    assert await lua.read_namespace() == before


async def test_a_window_of_another_length_is_told_without_a_write(lua: Scripts) -> None:
    await begin(lua, "a", "b")
    await lua.raw.rpop(lua.key("messages"))
    before = await lua.read_namespace()
    assert await append(lua, "c", outcome="d", flags=9) == [counters(2, 10), f"2-{NONCE}".encode(), 1]
    assert await lua.read_namespace() == before


async def test_listeners_are_told_the_lines_and_the_end_also_without_a_log(server_lua: Scripts) -> None:
    lua = server_lua
    await begin(lua, "a")
    at = len(message_line(1, 1))

    async def act() -> None:
        await append(lua, "b")
        await append(lua, sets={"plan": "p"}, tokens=0, token=token_of(b"state"))
        await append(lua, "c", offset=9_000, token=token_of(b"gap"))
        await append(lua, "d", offset=9_000, outcome="d", flags=9, token=token_of(b"end"))

    assert await heard(lua, lua.key("live"), act()) == [
        f"{GENERATION} {at}\n".encode() + message_line(2, 2),
        f"{GENERATION} 9000\n".encode() + message_line(4, 4) + b'{"end":4}\n',
    ]


async def test_a_full_redis_refuses_before_anything_is_written(server_lua: Scripts) -> None:
    lua = server_lua
    await begin(lua, "a")
    before = await lua.read_namespace()
    await lua.raw.config_set("maxmemory", 1)
    try:
        for contents, end in ((("b",), NO_END), ((), DONE | {"flags": 1}), (("b",), DONE)):
            for offset in (None, 9_000):
                with pytest.raises(redis.OutOfMemoryError):
                    await append(lua, *contents, offset=offset, **end)
    finally:
        await lua.raw.config_set("maxmemory", 0)
    assert await lua.read_namespace() == before
