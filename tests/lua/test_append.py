"""append.lua, raw."""

from __future__ import annotations

from typing import Any

import pytest
from raw_scripts import EXPIRES_MS, NOW_MS, TIMEOUT_MS, Scripts, element
from redis.exceptions import ResponseError

STAMP = b"\xcf" + NOW_MS.to_bytes(8, "big")


async def test_the_first_append_creates_the_whole_session(lua: Scripts) -> None:
    reply = await lua.append("a", "b", sets={"param:x": "1"}, nonce="00ff")
    assert reply == [1, 2, 1, 0, b"1-00ff", 1, 2]
    stored = await lua.everything()
    assert set(stored) == {lua.key(name) for name in ("messages", "state", "active", "fences")}
    assert stored[lua.key("messages")] == ([element("a") + STAMP, element("b") + STAMP], EXPIRES_MS)
    assert stored[lua.key("state")][1] == EXPIRES_MS
    assert await lua.queue("active") == {b"s": NOW_MS}
    fields = await lua.fields()
    assert {name: fields[name] for name in fields if not name.startswith(b"ids_")} == {
        b"epoch": b"1-00ff",
        b"first_seq": b"1",
        b"message_count": b"2",
        b"tokens": b"10",
        b"active_ms": b"%d" % NOW_MS,
        b"expires_ms": b"%d" % EXPIRES_MS,
        b"param:x": b"1",
    }
    assert all(len(value) <= 64 for value in fields.values())


async def test_the_next_append_goes_on_where_the_last_one_stopped(lua: Scripts) -> None:
    await lua.append("a", "b")
    assert await lua.append("c", token=b"token..2", nonce="cd", tokens=5) == [3, 3, 0, 0, b"1-ab", 1, 3]
    fields = await lua.fields()
    assert (fields[b"message_count"], fields[b"tokens"], fields[b"epoch"]) == (b"3", b"15", b"1-ab")


async def test_without_now_ms_the_servers_clock_counts(lua: Scripts) -> None:
    seconds, microseconds = await lua.raw.time()
    before = seconds * 1000 + microseconds // 1000
    await lua.append("a", now_ms="")
    active_ms = int((await lua.fields())[b"active_ms"])
    assert before <= active_ms < before + 60_000
    assert await lua.raw.pexpiretime(lua.key("state")) == active_ms + TIMEOUT_MS + TIMEOUT_MS // 16
    assert (await lua.raw.lrange(lua.key("messages"), 0, -1))[0][-8:] == active_ms.to_bytes(8, "big")


async def test_an_append_without_messages_changes_the_state_only(lua: Scripts) -> None:
    assert await lua.append(sets={"plan": "p"}) == [1, 0, 1, 0, b"1-ab", 1, 0]
    assert await lua.raw.exists(lua.key("messages")) == 0
    assert (await lua.fields())[b"plan"] == b"p"
    assert await lua.append(sets={"param:x": "1"}, drops=["plan"]) == [1, 0, 0, 0, b"1-ab", 1, 0]
    fields = await lua.fields()
    assert b"plan" not in fields
    assert fields[b"param:x"] == b"1"
    assert await lua.append("a") == [1, 1, 0, 0, b"1-ab", 1, 1]
    assert await lua.raw.pexpiretime(lua.key("messages")) == await lua.raw.pexpiretime(lua.key("state")) == EXPIRES_MS


async def test_a_token_known_gives_the_first_reply_and_writes_nothing(lua: Scripts) -> None:
    await lua.append("a", "b", token=b"token..1")
    await lua.append("c", token=b"token..2")
    before = await lua.everything()
    again = await lua.append("x", "y", token=b"token..1", sets={"plan": "p"}, expect="99", now_ms=NOW_MS + 10**7)
    assert again == [1, 2, 1, 1, b"1-ab", 1, -1]
    assert await lua.append("x", token=b"token..2") == [3, 3, 0, 1, b"1-ab", 1, -1]
    assert await lua.everything() == before


@pytest.mark.parametrize("sizes", [[1] * 20, [20] * 1 + [1] * 19, [3, 1, 4, 1, 5, 9, 2, 6] * 3, [1000] * 17])
async def test_the_last_sixteen_appends_are_known_whatever_their_sizes(lua: Scripts, sizes: list[int]) -> None:
    limits: dict[str, Any] = {"window_limit": 10**6, "threshold": 10**6}
    first = []
    for number, size in enumerate(sizes):
        first.append(await lua.append(*["m"] * size, token=b"%08d" % number, **limits))
    assert (await lua.fields())[b"message_count"] == b"%d" % sum(sizes)
    before = await lua.everything()
    for number in range(len(sizes) - 16, len(sizes)):
        again = await lua.append("other", token=b"%08d" % number, **limits)
        assert again == [*first[number][:3], 1, *first[number][4:6], -1]
    assert await lua.everything() == before
    forgotten = await lua.append("m", token=b"%08d" % (len(sizes) - 17), **limits)
    assert forgotten[:4] == [sum(sizes) + 1, sum(sizes) + 1, 0, 0]


async def test_a_token_is_found_at_its_own_place_only(lua: Scripts) -> None:
    """Between two entries, and across them, stand the same bytes."""
    await lua.append("a", token=b"AAAAAAAA")
    await lua.append("b", token=b"BBBBBBBB")
    across = b"AAAA\x80\x01BBBB"
    for start in range(1, 3):
        reply = await lua.append("c", token=across[start : start + 8])
        assert reply[3] == 0
    inside = b"\x80\x01BBBBBB"
    assert (await lua.append("d", token=inside))[3] == 0
    assert (await lua.append("x", token=inside))[3] == 1


async def test_a_token_may_hold_any_bytes(lua: Scripts) -> None:
    tokens = [bytes([byte] * 8) for byte in (0, 10, 13, 37, 42, 46, 91, 128, 255)]
    for number, token in enumerate(tokens, 1):
        assert (await lua.append("a", token=token))[:4] == [number, number, int(number == 1), 0]
    for number, token in enumerate(tokens, 1):
        assert (await lua.append("a", token=token))[:4] == [number, number, int(number == 1), 1]


REFUSED = {
    "CONFLICT 2": {"expect": "1"},
    "CONFLICT 2 ": {"expect": "0"},
    "FULL 2": {"window_limit": 2},
    "PARAMS 2": {"params_limit": 1, "sets": {"param:x": "1", "param:y": "2"}},
}


@pytest.mark.parametrize("word", REFUSED)
async def test_a_refusal_comes_before_anything_is_written(lua: Scripts, word: str) -> None:
    await lua.append("a", "b", sets={"param:a": "1"})
    before = await lua.everything()
    with pytest.raises(ResponseError, match=f"^{word.strip()}"):
        await lua.append("c", token=b"token..2", now_ms=NOW_MS + 10**7, drops=["param:a"], **REFUSED[word])
    assert await lua.everything() == before
    assert (await lua.append("c", token=b"token..2"))[:2] == [3, 3]


async def test_nothing_is_created_by_a_refusal(lua: Scripts) -> None:
    for changed in (
        {"expect": "1"},
        {"window_limit": 0},
        {"params_limit": 1, "sets": {"param:a": "1", "param:b": "2"}},
    ):
        with pytest.raises(ResponseError):
            await lua.append("c", **changed)
    assert await lua.everything() == {}


async def test_fields_that_are_there_already_do_not_count_again(lua: Scripts) -> None:
    await lua.append("a", sets={"param:x": "1", "param:y": "2"})
    await lua.append("b", token=b"token..2", sets={"param:x": "3", "param:y": "4"}, params_limit=2)
    assert (await lua.fields())[b"param:x"] == b"3"


FOREIGN: dict[str, list[tuple[Any, ...]]] = {
    "state is a string": [("SET", "state", "x")],
    "state is a list": [("RPUSH", "state", "x")],
    "state has no epoch": [("HSET", "state", "foreign", "1")],
    "state has no epoch, but counts": [("HSET", "state", "message_count", "many")],
    "state has an epoch only": [("HSET", "state", "epoch", "1-ab")],
    "state counts in words": [("HSET", "state", "epoch", "1-ab", "first_seq", "1", "message_count", "two")],
    "messages without a state": [("RPUSH", "messages", "x")],
    "messages are a hash": [("HSET", "messages", "x", "y")],
    "messages are a string, under a state": [("APPEND", "messages"), ("DEL", "messages"), ("SET", "messages", "x")],
    "messages are a hash, under a state": [("APPEND", "messages"), ("DEL", "messages"), ("HSET", "messages", "x", "y")],
}
for field in ("first_seq", "message_count", "tokens", "active_ms", "expires_ms"):
    FOREIGN[f"{field} is missing"] = [("APPEND", "messages"), ("HDEL", "state", field)]
    FOREIGN[f"{field} is no number"] = [("APPEND", "messages"), ("HSET", "state", field, "x")]


# An append without messages does not look at them.
FOREIGN_CALLS = [(what, ["c"]) for what in FOREIGN] + [(what, []) for what in FOREIGN if "under" not in what]


@pytest.mark.parametrize(("what", "contents"), FOREIGN_CALLS)
async def test_foreign_keys_are_refused_and_left_as_they_are(lua: Scripts, what: str, contents: list[str]) -> None:
    for command, key, *rest in FOREIGN[what]:
        if command == "APPEND":
            await lua.append("a")
        else:
            await lua.raw.execute_command(command, lua.key(key), *rest)
    before = await lua.everything()
    with pytest.raises(ResponseError, match=r"^(CORRUPT|WRONGTYPE)"):
        await lua.append(*contents, token=b"token..2", sets={"plan": "p"}, now_ms=NOW_MS + 10**7)
    assert await lua.everything() == before


@pytest.mark.parametrize(("length", "marked"), [(4, False), (5, False), (6, True)])
async def test_a_window_over_the_threshold_is_overdue(lua: Scripts, length: int, marked: bool) -> None:
    await lua.append(*["m"] * length)
    assert (await lua.queue("overdue") == {b"s": NOW_MS}) is marked
    assert ((await lua.fields()).get(b"queued") == b"overdue") is marked


async def test_a_session_that_waits_is_not_put_in_line_again(lua: Scripts) -> None:
    await lua.append(*["m"] * 6)
    await lua.append("m", token=b"token..2", now_ms=NOW_MS + 5000)
    assert await lua.queue("overdue") == {b"s": NOW_MS}
    for queue in ("leased", "dead"):
        await lua.raw.hset(lua.key("state"), "queued", queue)
        await lua.raw.zrem(lua.key("overdue"), "s")
        await lua.append("m", token=queue.encode().ljust(8))
        assert await lua.queue("overdue") == {}


@pytest.mark.parametrize(("later_ms", "moved"), [(0, False), (999, False), (1000, True), (-5000, False)])
async def test_activity_is_noted_once_a_second_and_never_backwards(lua: Scripts, later_ms: int, moved: bool) -> None:
    await lua.append("a")
    await lua.append("b", token=b"token..2", now_ms=NOW_MS + later_ms)
    expected = NOW_MS + later_ms * moved
    assert await lua.queue("active") == {b"s": expected}
    assert (await lua.fields())[b"active_ms"] == b"%d" % expected


@pytest.mark.parametrize(
    ("later_ms", "moved"), [(0, False), (TIMEOUT_MS // 16, False), (TIMEOUT_MS // 16 + 1, True), (TIMEOUT_MS, True)]
)
async def test_the_time_to_live_starts_again_once_it_has_aged(lua: Scripts, later_ms: int, moved: bool) -> None:
    await lua.append("a")
    await lua.append("b", token=b"token..2", now_ms=NOW_MS + later_ms)
    expected = EXPIRES_MS + later_ms * moved
    assert await lua.raw.pexpiretime(lua.key("state")) == expected
    assert await lua.raw.pexpiretime(lua.key("messages")) == expected
    assert (await lua.fields())[b"expires_ms"] == b"%d" % expected
    assert expected >= NOW_MS + later_ms + TIMEOUT_MS


async def test_an_append_takes_a_session_off_the_eviction_queue(lua: Scripts) -> None:
    await lua.append("a")
    await lua.raw.hset(lua.key("state"), "evicting", "idle")
    await lua.raw.zadd(lua.key("evictions"), {"s": 1, "other": 2})
    await lua.append("b", token=b"token..2")
    assert await lua.queue("evictions") == {b"other": 2}
    assert b"evicting" not in await lua.fields()


async def test_a_new_session_is_not_shadowed_by_an_expired_one(lua: Scripts) -> None:
    queues = ("overdue", "leased", "dead", "evictions")
    for queue in queues:
        await lua.raw.zadd(lua.key(queue), {"s": 1, "other": 2})
    await lua.append("a")
    assert [await lua.queue(queue) for queue in queues] == [{b"other": 2}] * 4
    assert b"queued" not in await lua.fields()


async def test_an_epoch_is_used_once_though_the_counter_is_rolled_back(lua: Scripts) -> None:
    epochs = []
    for nonce in ("01", "02", "03"):
        epochs.append((await lua.append("a", nonce=nonce))[4])
        await lua.raw.delete(lua.key("state"), lua.key("messages"), lua.key("fences"))
    assert epochs == [b"1-01", b"1-02", b"1-03"]


async def test_a_thousand_messages_and_their_fields_are_one_append(lua: Scripts) -> None:
    sets = {f"param:{number}": "x" for number in range(1000)}
    reply = await lua.append(*["m"] * 1000, sets=sets, params_limit=1000, window_limit=1000)
    assert reply[:2] == [1, 1000]
    assert len(await lua.fields()) > 1000


@pytest.mark.parametrize("now_ms", [NOW_MS, NOW_MS + 1, 2**53 - 1, 1])
async def test_the_stamp_is_the_time_to_the_millisecond(lua: Scripts, now_ms: int) -> None:
    await lua.append("a", now_ms=NOW_MS)
    await lua.append("b", token=b"token..2", now_ms=now_ms)
    assert (await lua.raw.lindex(lua.key("messages"), 1))[-9:] == b"\xcf" + now_ms.to_bytes(8, "big")


async def test_a_session_that_expired_before_it_was_written_is_gone_whole(lua: Scripts) -> None:
    await lua.append("a", now_ms=1_000)
    assert await lua.raw.exists(lua.key("state"), lua.key("messages")) == 0
    assert (await lua.append("b", nonce="cd"))[:5] == [1, 1, 1, 0, b"2-cd"]


async def test_too_many_tokens_make_a_session_overdue_but_never_for_its_recent_messages(lua: Scripts) -> None:
    limits = {"token_limit": 25, "recent_limit": 3, "threshold": 100}
    for number in range(3):
        await lua.append("m", token=b"token..%d" % number, tokens=10, **limits)
    assert await lua.queue("overdue") == {}
    await lua.append("m", token=b"token..9", tokens=0, **limits)
    assert await lua.queue("overdue") == {b"s": NOW_MS}
