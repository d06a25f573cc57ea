"""edit.lua, raw: what each part writes, and sessions that it must not change. The model check has the rest."""

from __future__ import annotations

from typing import Any

import pytest
from redis.exceptions import ResponseError
from support.raw_scripts import (
    EDIT,
    EXPIRES_MS,
    LEAVE,
    NOW_MS,
    PRUNE,
    REWRITE,
    Scripts,
    counters,
    element,
    resending,
    stored_element,
)
from support.stored import set_counters
from support.turns import keys_left, put_turn

A, B, C = (stored_element(content) for content in "abc")
FORGET: dict[str, Any] = {"committed": "-", "changes": "0 -2 1 0 0", "replaced": (1, B, "gap", "")}
"""Removes the second of three messages."""
POP: dict[str, Any] = REWRITE | {"changes": "1 -6 2 -2 0", "pushed": ("pinned", "gap"), "new": ()}
"""Removes the newest two of three messages; a pinned one and a gap follow the first."""
EDITS: dict[str, dict[str, Any]] = {
    "prune": PRUNE,
    "archive": LEAVE | {"originals": ("0", "block", "s0", "signature"), "sets": ("with_originals", "1")},
    "forget": FORGET,
    "rewrite": REWRITE,
    "replace": {"limits": REWRITE["limits"], "edited": "*", "replaced": (1, B, "new", "")},
    "move": {"token": b"", "replaced": (1, B, "note", "b2")},
}
"""Edits of a session with three messages, by what they do."""


@pytest.fixture
async def three(lua: Scripts) -> Scripts:
    """Create a session with three messages."""
    await lua.append("a", "b", "c")
    return lua


async def window(lua: Scripts) -> list[bytes]:
    return list(await lua.raw.lrange(lua.key("messages"), 0, -1))


async def test_the_oldest_messages_leave_and_the_counters_follow(three: Scripts) -> None:
    lua = three
    await lua.raw.hset(lua.key("originals"), "0", "old")
    before = await lua.fields()
    assert await lua.edit(**PRUNE) == counters(3, 6, first_seq=3) + b"@1-ab"
    assert await window(lua) == [C]
    ids = before[b"ids_a"] + b"edited.1ne\0\0"
    assert await lua.fields() == before | {b"counters": counters(3, 6, first_seq=3), b"pruned": b"p1", b"ids_a": ids}
    assert await lua.raw.exists(lua.key("originals")) == 0
    for name in ("messages", "state"):
        assert await lua.raw.pexpiretime(lua.key(name)) == EXPIRES_MS


async def test_a_window_may_leave_as_a_whole(lua: Scripts) -> None:
    await lua.append("a", "b")
    assert await lua.edit(**PRUNE) != 0
    assert await lua.raw.exists(lua.key("messages")) == 0
    assert await lua.append("c", token=b"token..2") == counters(3, 16, first_seq=3)
    assert await lua.raw.pexpiretime(lua.key("messages")) == EXPIRES_MS


async def test_messages_move_into_the_originals_which_expire_with_the_session(three: Scripts) -> None:
    lua = three
    for field in ("0", "1"):
        await lua.raw.hset(lua.key("originals"), field, "old")
    assert await lua.edit(**EDITS["archive"], gone=("1",)) != 0
    kept = {b"0": b"block", b"s0": b"signature"}
    assert await lua.raw.hgetall(lua.key("originals")) == kept
    assert await lua.raw.pexpiretime(lua.key("originals")) == EXPIRES_MS
    assert (await lua.fields())[b"with_originals"] == b"1"


async def test_what_leaves_the_head_is_no_use_of_the_session(three: Scripts) -> None:
    lua = three
    await lua.set_counters(evicting="limit")
    assert await lua.edit(**PRUNE | {"changes": "0 -11 0 0 0", "now_ms": NOW_MS + 5000}) != 0
    assert (await lua.fields())[b"counters"] == counters(3, 0, first_seq=3) + b" limit", "never below zero tokens"


async def test_large_sums_of_tokens_stay_exact(three: Scripts) -> None:
    await three.set_counters(tokens=10**15 + 5)
    assert await three.edit(**PRUNE) != 0
    assert (await three.counters())["tokens"] == 10**15 + 1


async def test_large_bytes_are_counted(three: Scripts) -> None:
    for more, expected in ((5000, b"5000"), (-2000, b"3000"), (-9000, b"0")):
        token = b"e%+06dnewepoch" % more
        assert await three.edit(changes=f"0 0 0 0 {more}", token=token, edited="*") != 0
        assert (await three.fields())[b"large_bytes"] == expected


async def test_the_end_is_replaced_and_new_messages_get_their_stamp(three: Scripts) -> None:
    assert await three.edit(**REWRITE) == counters(5, 4) + b"+1-1@1-ab"
    assert await window(three) == [A, b"gap", stored_element("d"), stored_element("e")]
    fields = await three.fields()
    assert (fields[b"counters"], fields[b"edited"]) == (counters(5, 4) + b"+1-1", b"e1")


async def test_an_edit_may_take_a_seq_without_a_message(three: Scripts) -> None:
    assert await three.edit(**POP) == counters(4, 4) + b"+2-2@1-ab"
    assert await window(three) == [A, b"pinned", b"gap"]


async def test_a_new_window_expires_as_the_old_one(three: Scripts) -> None:
    assert await three.edit(**POP | {"kept": "1 0", "pushed": ("gap",), "changes": "1 -10 1 -3 0"}) != 0
    assert await window(three) == [b"gap"]
    assert await three.raw.pexpiretime(three.key("messages")) == EXPIRES_MS


async def test_thousands_of_elements_are_pushed(three: Scripts) -> None:
    restored = tuple(b"%d" % number for number in range(9000))
    assert await three.edit(**POP | {"pushed": restored, "changes": "1 0 9000 8997 0"}) != 0
    assert await window(three) == [A, *restored]


async def test_a_window_that_grows_too_long_is_refused_and_one_that_is_too_long_gets_overdue(three: Scripts) -> None:
    before = await three.read_namespace()
    with pytest.raises(ResponseError, match=r"^FULL 3$"):
        await three.edit(**REWRITE | {"changes": "20 0 0 0 0"})
    with pytest.raises(ResponseError, match=r"^PINS 1 900 3 800"):
        await three.edit(**REWRITE | {"pins": "1,900,3,800"})
    assert await three.read_namespace() == before
    assert await three.edit(**REWRITE | {"changes": "6 0 0 0 0"}) != 0
    assert await three.raw.zscore(three.key("overdue"), "s") == NOW_MS


async def test_a_gap_takes_the_place_of_a_message(three: Scripts) -> None:
    assert await three.edit(**FORGET) != 0
    assert await window(three) == [A, b"gap", C]
    fields = await three.fields()
    assert (fields[b"counters"], fields[b"edited"]) == (counters(3, 8) + b"+1", b"e1")


async def test_gaps_become_one_and_messages_appended_since_stay(three: Scripts) -> None:
    await three.append("d", token=b"token..2")
    replaced = (0, A, b"gap", "", 1, B, b"", "", 2, C, b"", "")
    assert await three.edit(**FORGET | {"replaced": replaced, "changes": "0 -10 1 -2 0"}) != 0
    assert await window(three) == [b"gap", stored_element("d")]
    assert (await three.fields())[b"counters"] == counters(4, 10) + b"+1-2"


async def test_a_body_moves_into_the_originals_and_a_policy_keeps_the_mark(lua: Scripts) -> None:
    await lua.append("a", "b", "c", new_policy="~w")
    assert await lua.edit(**EDITS["move"] | {"changes": "0 -9 0 0 0"}) != 0
    assert await window(lua) == [A, b"note", C]
    assert await lua.raw.hgetall(lua.key("originals")) == {b"b2": B}
    assert await lua.raw.pexpiretime(lua.key("originals")) == EXPIRES_MS
    fields = await lua.fields()
    assert (fields[b"counters"], fields[b"edited"]) == (counters(3, 1) + b"~bw", b"e1")
    assert fields[b"ids_a"].count(b"edited") == 0, "no append is forgotten for it"
    for policy, expected in (("~x5000", b"~bx5000"), ("", b"~b")):
        await lua.run("set_policy", now_ms=EXPIRES_MS - 1000, kept_ms=9000, new_policy=policy)
        assert (await lua.fields())[b"counters"].endswith(expected)


async def test_a_move_of_bodies_sent_again_finds_the_session_edited(three: Scripts) -> None:
    assert await three.edit(**EDITS["move"]) != 0
    before = await three.read_namespace()
    assert await three.edit(**EDITS["move"]) == 0
    assert await three.read_namespace() == before


async def test_a_check_reads_no_bodies(lua: Scripts) -> None:
    await lua.raw.hset(lua.key("originals"), mapping={"b2": b"body", "0": b"block", "s0": b"signature"})
    reply = await lua.run("read_originals")
    pairs = dict(zip(reply[::2], reply[1::2], strict=True))
    assert pairs == {b"b2": b"", b"0": b"block", b"s0": b"signature"}


@pytest.mark.parametrize(
    ("cut", "kept"),
    [
        ({"block": 1}, "0 s0 b1 b2 b7"),
        ({"block": 1, "bodies": "0 2"}, "0 s0 b1"),
        ({"block": 0, "bodies": "2 99"}, "b2 b7"),
        ({"bodies": "0 7"}, "0 s0 1 s1 v1 10 s10 b1 b2"),
        ({"block": 0}, ""),
    ],
    ids=str,
)
async def test_originals_go_from_a_block_on_and_bodies_by_their_seqs(
    three: Scripts, cut: dict[str, Any], kept: str
) -> None:
    names = ["0", "s0", "1", "s1", "v1", "10", "s10", "b1", "b2", "b7"]
    await three.raw.hset(three.key("originals"), mapping=dict.fromkeys(names, "x"))
    await three.raw.set(three.key("turned"), "records")
    assert await three.edit(**cut) != 0
    assert {name.decode() for name in await three.raw.hkeys(three.key("originals"))} == set(kept.split())
    assert await three.raw.exists(three.key("turned")), "ended turns stay known without originals"


async def test_summaries_pins_and_blocks_are_changed_with_the_window(three: Scripts) -> None:
    lua = three
    state, originals = lua.key("state"), lua.key("originals")
    await lua.raw.hset(state, mapping={"committed": "9-f", "summary:1": "old", "pins": "3 100", "sketch": "words"})
    blocks = {f"{kind}{number}": f"{kind}{number}" for kind in ("", "s", "v") for number in range(3)}
    await lua.raw.hset(originals, mapping=blocks)
    changed: dict[str, Any] = {
        "committed": "9-f",
        "pins": "-1,-9,2,50",
        "blocks": ("0", "0", "2", "2"),
        "originals": ("0", "new", "s0", "sign"),
        "gone": ("v0", "2", "s2", "v2"),
        "sets": ("summary:1", "new", "pinned:5", "p"),
        "drops": ("pinned:4,5", "committed", "sketch"),
    }
    assert await lua.edit(**FORGET | changed | {"committed": "8-f"}) == 0
    assert await lua.edit(**FORGET | changed | {"blocks": ("0", "other")}) == 0
    assert await lua.edit(**FORGET | changed) != 0
    kept = {b"0": b"new", b"s0": b"sign", b"1": b"1", b"s1": b"s1", b"v1": b"v1"}
    assert await lua.raw.hgetall(originals) == kept
    fields = await lua.fields()
    assert (fields[b"summary:1"], fields[b"pinned:5"], fields[b"pins"]) == (b"new", b"p", b"2 91")
    assert not {b"committed", b"sketch", b"pinned:4,5"} & fields.keys()


@pytest.mark.parametrize(
    ("log", "status", "left"),
    [
        ("-", "r", "live turned waiters turns turn"),
        ("-", "d", "live turned waiters turn"),
        ("ended", "r", "live turned waiters turns turn"),
        ("ended", "d", "turned waiters turn"),
        ("lost", "r", "turned waiters"),
        ("lost", "f", "turned waiters turn"),
    ],
)
async def test_the_log_of_a_turn_goes_with_what_it_may_quote(three: Scripts, log: str, status: str, left: str) -> None:
    lua = three
    await put_turn(lua.raw, lua.session(), status)
    await lua.raw.zadd(lua.key("turns"), {"other": 1})
    assert await lua.edit(**FORGET, log=log) != 0
    assert await keys_left(lua.raw, lua.session()) == set(left.split())
    assert {"stop", "doubt"} & {name.decode() for name in await lua.fields()} == (
        {"stop", "doubt"} if "turns" in left else set()
    )
    assert b"other" in await lua.queue("turns")


async def test_an_edit_that_is_refused_leaves_the_log(three: Scripts) -> None:
    await put_turn(three.raw, three.session())
    assert await three.edit(**FORGET | {"edited": "other"}, log="lost") == 0
    assert len(await keys_left(three.raw, three.session())) == 5


async def test_a_pinned_message_behind_the_window_is_left_if_it_has_changed(three: Scripts) -> None:
    await three.raw.lpop(three.key("messages"))
    await set_counters(three.raw, three.key("state"), first_seq=2)
    await three.raw.hset(three.key("state"), "pinned:1", "old")
    unpin: dict[str, Any] = {"first_seq": 2, "next_seq": 2, "place": "pinned:1", "drops": ("pinned:1",)}
    before = await three.read_namespace()
    for seen in ("other", ""):
        assert await three.edit(**unpin, seen=seen) == 0
    assert await three.edit(**unpin | {"place": "pinned:2"}, seen="old") == 0
    assert await three.read_namespace() == before
    assert await three.edit(**unpin, seen="old") != 0
    assert b"pinned:1" not in await three.fields()


@pytest.mark.parametrize("what", sorted(EDITS.keys() - {"move"}))
async def test_an_edit_sent_again_is_recognised_even_after_an_append(three: Scripts, what: str) -> None:
    assert await three.edit(**EDITS[what]) != 0
    await three.append("d", token=b"token..2")
    before, seqs_count = await three.read_namespace(), 2 * (what == "rewrite")
    total = 3 + seqs_count
    for token, is_another in ((EDIT["token"], 0), (b"edited.1another!ab", 1)):
        again = await three.edit(**EDITS[what], token=token)
        assert again[1:] == [total - seqs_count + 1, total, 0, is_another, b"1-ab"]
    assert await three.read_namespace() == before


@pytest.mark.parametrize("what", sorted(EDITS.keys() - {"move"}))
async def test_an_edit_that_a_resent_one_has_overtaken_writes_nothing(three: Scripts, what: str) -> None:
    await three.append("d", token=b"token..2", fresh=2, sending=resending(300))
    before = await three.read_namespace()
    with pytest.raises(ResponseError, match="OVERTAKEN sending"):
        await three.edit(**EDITS[what], token=b"edited.1ne" + resending(299) + b"ab")
    assert await three.read_namespace() == before


@pytest.mark.parametrize(
    ("what", "changed"),
    [
        *((what, {"epoch": "2-ab"}) for what in EDITS),
        *((what, {"first_seq": seq}) for what in EDITS for seq in (0, 2, "-")),
        *((what, {"edited": "e0"}) for what in sorted(EDITS.keys() - {"replace"})),
        *(("rewrite", {"last_seq": seq}) for seq in (2, 4)),
        *((what, {"seen": seen}) for what in ("prune", "archive") for seen in (C, element("b"), b"")),
        *(("rewrite", {"seen": seen}) for seen in (B, element("c"), b"")),
        *(("prune", {"place": place}) for place in (0, 3)),
        *((what, {"replaced": (at, seen, "x", "")}) for what in ("forget", "replace") for at, seen in ((1, C), (9, B))),
        *((what, {"replaced": (1, seen, "x", "")}) for what in ("forget", "replace") for seen in (element("b"), b"")),
        ("move", {"replaced": (0, A, "note", "b1", 1, C, "note", "b2")}),
        ("forget", {"committed": "7-f"}),
        *(("forget", {"blocks": (number, "block")}) for number in (0, 1)),
    ],
)  # fmt: skip
async def test_a_session_changed_since_the_read_is_left(three: Scripts, what: str, changed: dict[str, Any]) -> None:
    await three.raw.hset(three.key("originals"), "0", "other")
    before = await three.read_namespace()
    assert await three.edit(**EDITS[what] | changed) == 0
    assert await three.read_namespace() == before


async def test_the_same_text_at_another_time_is_another_message(lua: Scripts) -> None:
    """A failover has lost the last message, and another writer has appended an equal one."""
    await lua.append("a", "b")
    await lua.append("c", token=b"token..2", now_ms=NOW_MS + 1)
    assert await lua.edit(**REWRITE) == 0


@pytest.mark.parametrize("what", EDITS)
@pytest.mark.parametrize("name", ["state", "messages", "originals"])
async def test_a_key_of_a_foreign_type_and_a_missing_session_are_left(lua: Scripts, name: str, what: str) -> None:
    assert await lua.edit(**EDITS[what]) == 0
    assert await lua.edit(**EDITS[what] | {"epoch": "-", "first_seq": "-"}) == 0
    assert await lua.read_namespace() == {}
    await lua.append("a", "b", "c")
    await lua.raw.set(lua.key(name), "x")
    before = await lua.read_namespace()
    with pytest.raises(ResponseError, match=r"^WRONGTYPE"):
        await lua.edit(**EDITS[what])
    assert await lua.read_namespace() == before


async def test_a_window_of_another_length_is_refused(three: Scripts) -> None:
    await three.raw.rpop(three.key("messages"))
    with pytest.raises(ResponseError, match=r"^CORRUPT window$"):
        await three.edit(**FORGET)


@pytest.mark.parametrize("value", [None, "x", "", "v1 1 3 10 5", "v1 1 3 10 5 6 7", "1 3 10 5 6"])
async def test_unreadable_counters_are_refused_before_any_write(three: Scripts, value: Any) -> None:
    key = three.key("state")
    await (three.raw.hdel(key, "counters") if value is None else three.raw.hset(key, "counters", value))
    before = await three.read_namespace()
    with pytest.raises(ResponseError, match=r"^CORRUPT counters$"):
        await three.edit(**PRUNE)
    assert await three.read_namespace() == before
