"""commit.lua, raw."""

from __future__ import annotations

from typing import Any

import pytest
from redis.exceptions import ResponseError
from support.queue_scripts import (
    CLAIM,
    COMMIT,
    FENCE,
    LEASE_MS,
    RELEASE,
    changed_fields,
    contents,
    create_claimed,
    queues,
)
from support.raw_scripts import EXPIRES_MS, NOW_MS, Scripts, counters

DONE: dict[bytes, Any] = {
    b"counters": counters(6, 4, first_seq=5),
    b"committed": FENCE,
    b"summaries_count": b"1",
    b"summary:1": b"told",
    b"queued": None,
    b"fence": None,
    b"attempts": None,
}
FOLD: dict[str, Any] = {"next_seq": 1, "count": 0, "tokens": 0, "summary": "folded"}


async def test_a_summary_replaces_exactly_the_covered_messages(lua: Scripts) -> None:
    await create_claimed(lua)
    before = await lua.fields()
    assert await lua.run("commit", **COMMIT) == b"ok"
    assert await contents(lua) == ["5", "6"]
    assert await changed_fields(lua, before) == DONE
    assert await queues(lua) == {}
    assert await lua.raw.exists(lua.key("originals")) == 0
    for name in ("state", "messages"):
        assert await lua.raw.pexpiretime(lua.key(name)) == EXPIRES_MS


async def test_the_reason_of_an_eviction_stays_and_tokens_never_fall_below_zero(lua: Scripts) -> None:
    await create_claimed(lua)
    await lua.set_counters(evicting="limit")
    assert await lua.run("commit", **COMMIT | {"tokens": 11}) == b"ok"
    assert (await lua.fields())[b"counters"] == counters(6, 0, first_seq=5) + b" limit"


async def test_large_sums_of_tokens_stay_exact(lua: Scripts) -> None:
    await create_claimed(lua)
    await lua.set_counters(tokens=10**15 + 7)
    assert await lua.run("commit", **COMMIT) == b"ok"
    assert (await lua.counters())["tokens"] == 10**15 + 1


async def test_a_resent_commit_is_recognised(lua: Scripts) -> None:
    await create_claimed(lua)
    assert await lua.run("commit", **COMMIT) == b"ok"
    before = await lua.read_namespace()
    assert await lua.run("commit", **COMMIT) == b"already"
    assert await lua.read_namespace() == before


async def test_messages_appended_meanwhile_stay_for_the_next_summary(lua: Scripts) -> None:
    await create_claimed(lua)
    await lua.append("7", "8", "9", "0", token=b"token..2")
    assert await lua.run("commit", **COMMIT) == b"ok"
    assert await contents(lua) == ["5", "6", "7", "8", "9", "0"]
    assert await queues(lua) == {"overdue": {b"s": NOW_MS + 7}}
    assert (await lua.fields())[b"queued"] == b"overdue"


@pytest.mark.parametrize("after", ["clear", "expiry", "another life", "takeover", "release", "another fence"])
async def test_a_worker_that_lost_the_lease_writes_nothing(lua: Scripts, after: str) -> None:
    await create_claimed(lua)
    changed: dict[str, Any] = {}
    if after == "clear":
        await lua.run("clear", epoch="1-ab", noted_ms=0, owner="-", keys_count=13)
    elif after in ("expiry", "another life"):
        await lua.raw.delete(lua.key("state"), lua.key("messages"))
    elif after == "takeover":
        await lua.run("claim", **CLAIM | {"now_ms": NOW_MS + LEASE_MS})
    elif after == "release":
        await lua.run("release", **RELEASE)
    else:
        changed = {"fence": "2-zz"}
    if after == "another life":
        await lua.append(*"123456", token=b"token..3")
    before = await lua.read_namespace()
    expected = b"gone" if after in ("clear", "expiry", "another life") else b"fenced"
    assert await lua.run("commit", **COMMIT | changed) == expected
    assert await lua.read_namespace() == before


@pytest.mark.parametrize(
    ("changed", "tail"), [({"first_seq": 2}, ()), ({"count": 7}, ()), (FOLD, ("summary:1",)), ({}, ("summary:9",))]
)
async def test_a_window_or_summaries_changed_since_the_claim_are_stale(
    lua: Scripts, changed: dict[str, Any], tail: tuple[str, ...]
) -> None:
    await create_claimed(lua)
    before = await lua.read_namespace()
    assert await lua.run("commit", *tail, **COMMIT | changed) == b"stale"
    assert await lua.read_namespace() == before


async def test_summaries_are_folded_into_one(lua: Scripts) -> None:
    await create_claimed(lua)
    old = {"summary:1": "a", "summary:3": "b", "summary:4": "c", "summaries_count": 3}
    await lua.raw.hset(lua.key("state"), mapping=old)
    before = await lua.fields()
    assert await lua.run("commit", "summary:1", "summary:3", **COMMIT | FOLD | {"threshold": 6}) == b"ok"
    assert await changed_fields(lua, before) == {
        b"summary:1": b"folded",
        b"summary:3": None,
        b"summaries_count": b"2",
        b"committed": FENCE,
        b"queued": None,
        b"fence": None,
        b"attempts": None,
    }
    assert await contents(lua) == list("123456")


async def test_too_many_summaries_make_the_session_overdue_again(lua: Scripts) -> None:
    await create_claimed(lua)
    await lua.raw.hset(lua.key("state"), mapping={"summary:0": "a", "summary:00": "b", "summaries_count": 2})
    assert await lua.run("commit", **COMMIT) == b"ok"
    assert await queues(lua) == {"overdue": {b"s": NOW_MS + 7}}
    assert (await lua.fields())[b"summaries_count"] == b"3"


async def test_messages_can_be_dropped_without_a_summary(lua: Scripts) -> None:
    await create_claimed(lua)
    before = await lua.fields()
    assert await lua.run("commit", **COMMIT | {"summary_field": "-", "summary": "-"}) == b"ok"
    expected = {name: value for name, value in DONE.items() if name != b"summary:1"} | {b"summaries_count": b"0"}
    assert await changed_fields(lua, before) == expected


async def originals(lua: Scripts) -> dict[bytes, bytes]:
    return dict(await lua.raw.hgetall(lua.key("originals")))


async def test_originals_are_kept_in_blocks_and_expire_with_the_session(lua: Scripts) -> None:
    await create_claimed(lua, count=9)
    kept = COMMIT | {"kept_count": 4, "threshold": 3}
    assert await lua.run("commit", "0", "1-4", "s0", "of 1-4", **kept) == b"ok"
    assert await originals(lua) == {b"0": b"1-4", b"s0": b"of 1-4"}
    assert await lua.raw.pexpiretime(lua.key("originals")) == await lua.raw.pexpiretime(lua.key("state"))
    assert (await lua.fields())[b"with_originals"] == b"1"
    assert (await lua.run("claim", **CLAIM | {"now_ms": NOW_MS + 7, "threshold": 3}))[:2] == [b"job", b"3-cd"]
    further = kept | {
        "fence": "3-cd",
        "first_seq": 5,
        "next_seq": 7,
        "count": 2,
        "summary_field": "summary:5",
        "kept_count": 8,
    }
    tail = ("0", "1-5", "s0", "of 1-5", "1", "6", "s1", "of 6", "summary:1")
    assert await lua.run("commit", *tail, **further) == b"ok"
    assert await originals(lua) == {b"0": b"1-5", b"s0": b"of 1-5", b"1": b"6", b"s1": b"of 6"}
    assert await contents(lua) == list("789")
    assert b"summary:1" not in await lua.fields(), "what is folded stands behind the originals"


async def test_a_merged_block_replaces_the_three_after_it(lua: Scripts) -> None:
    await create_claimed(lua)
    names = [f"{kind}{number}" for number in (3, 4, 5, 6, 7, 8) for kind in ("", "s", "v")]
    await lua.raw.hset(lua.key("originals"), mapping=dict.fromkeys(names, "old"))
    await lua.raw.hset(lua.key("state"), "with_originals", 1)
    kept = COMMIT | {"kept_count": 4, "merged": 4}
    assert await lua.run("commit", "4", "merged", "s4", "of all", **kept) == b"ok"
    left = {name.encode(): b"old" for name in names if name not in {"5", "6", "7", "s5", "s6", "s7"}}
    assert await originals(lua) == left | {b"4": b"merged", b"s4": b"of all"}


async def test_originals_of_an_earlier_epoch_are_dropped(lua: Scripts) -> None:
    await create_claimed(lua)
    await lua.raw.hset(lua.key("originals"), "7", "old")
    assert await lua.run("commit", "0", "1-4", **COMMIT | {"kept_count": 2}) == b"ok"
    assert await originals(lua) == {b"0": b"1-4"}


async def test_originals_are_dropped_if_the_next_ones_are_not_kept(lua: Scripts) -> None:
    await create_claimed(lua)
    await lua.raw.hset(lua.key("originals"), "7", "old")
    await lua.raw.hset(lua.key("state"), "with_originals", 1)
    assert await lua.run("commit", **COMMIT) == b"ok"
    assert await lua.raw.exists(lua.key("originals")) == 0
    assert b"with_originals" not in await lua.fields()


async def test_a_fold_leaves_the_originals(lua: Scripts) -> None:
    await create_claimed(lua)
    await lua.raw.hset(lua.key("originals"), "0", "old")
    await lua.raw.hset(lua.key("state"), mapping={"with_originals": 1, "summary:0": "x"})
    fold = {"next_seq": 1, "count": 0, "tokens": 0, "summary_field": "summary:0"}
    assert await lua.run("commit", "summary:0", **COMMIT | fold) == b"ok"
    assert await originals(lua) == {b"0": b"old"}
    assert (await lua.fields())[b"with_originals"] == b"1"


async def test_more_than_a_thousand_messages_fit_one_commit(lua: Scripts) -> None:
    for part in range(3):
        await lua.append(*["x"] * 500, token=b"token..%d" % part, window_limit=5000)
    await lua.run("claim", **CLAIM)
    blocks = [part for number in range(1400) for part in (number, "x")]
    many = {"next_seq": 1401, "count": 1400, "tokens": 20, "kept_count": len(blocks)}
    assert await lua.run("commit", *blocks, **COMMIT | many) == b"ok"
    assert await lua.raw.hlen(lua.key("originals")) == 1400
    assert await lua.raw.llen(lua.key("messages")) == 100


@pytest.mark.parametrize("value", [None, "x", "", "v1 1 3 10 5", "v1 1 3 10 5 6 7", "1 3 10 5 6"])
async def test_unreadable_counters_are_refused_before_any_write(lua: Scripts, value: Any) -> None:
    await create_claimed(lua)
    key = lua.key("state")
    await (lua.raw.hdel(key, "counters") if value is None else lua.raw.hset(key, "counters", value))
    before = await lua.read_namespace()
    with pytest.raises(ResponseError, match=r"^CORRUPT"):
        await lua.run("commit", **COMMIT)
    assert await lua.read_namespace() == before


@pytest.mark.parametrize("name", ["state", "messages", "originals"])
async def test_a_key_of_a_foreign_type_is_refused_and_left(lua: Scripts, name: str) -> None:
    await create_claimed(lua)
    await lua.raw.set(lua.key(name), "x")
    before = await lua.read_namespace()
    with pytest.raises(ResponseError, match=r"^WRONGTYPE"):
        await lua.run("commit", "0", "x", **COMMIT | {"kept_count": 2})
    assert await lua.read_namespace() == before


async def test_tokens_appended_meanwhile_can_make_it_overdue_again(lua: Scripts) -> None:
    await create_claimed(lua)
    few = COMMIT | {"token_limit": 3, "recent_limit": 1}
    assert await lua.run("commit", **few) == b"ok"
    assert await lua.queue("overdue") == {b"s": NOW_MS + 7}
