"""append.lua, raw."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis.exceptions import ResponseError
from support.raw_scripts import EXPIRES_MS, NOW_MS, TIMEOUT_MS, Scripts, counters, element

STAMP = b"\xcf" + NOW_MS.to_bytes(8, "big")


def is_new(reply: Any) -> bool:
    """Whether the messages were written, and not known before."""
    return isinstance(reply, bytes) or (len(reply) == 5 and reply[4] == 0)


async def test_the_first_append_creates_the_whole_session(lua: Scripts) -> None:
    reply = await lua.append("a", "b", sets={"param:x": "1"}, nonce="00ff")
    assert reply == [counters(2, 10), 1, 2, 1, 0]
    stored = await lua.everything()
    assert set(stored) == {lua.key(name) for name in ("messages", "state", "active", "fences")}
    assert stored[lua.key("messages")] == ([element("a") + STAMP, element("b") + STAMP], EXPIRES_MS)
    assert stored[lua.key("state")][1] == EXPIRES_MS
    assert await lua.queue("active") == {b"s": NOW_MS}
    fields = await lua.fields()
    assert {name: fields[name] for name in fields if not name.startswith(b"ids_")} == {
        b"epoch": b"1-00ff",
        b"counters": counters(2, 10),
        b"param:x": b"1",
    }
    assert all(len(value) <= 64 for value in fields.values())


async def test_the_next_append_goes_on_where_the_last_one_stopped(lua: Scripts) -> None:
    await lua.append("a", "b")
    assert await lua.append("c", token=b"token..2", nonce="cd", tokens=5) == counters(3, 15)
    fields = await lua.fields()
    assert (fields[b"counters"], fields[b"epoch"]) == (counters(3, 15), b"1-ab")


async def test_without_now_ms_the_servers_clock_counts(lua: Scripts) -> None:
    seconds, microseconds = await lua.raw.time()
    before = seconds * 1000 + microseconds // 1000
    await lua.append("a", now_ms="-")
    active_ms = (await lua.counters())["active_ms"]
    assert before <= active_ms < before + 60_000
    assert await lua.raw.pexpiretime(lua.key("state")) == active_ms + TIMEOUT_MS + TIMEOUT_MS // 16
    assert (await lua.raw.lrange(lua.key("messages"), 0, -1))[0][-8:] == active_ms.to_bytes(8, "big")


async def test_an_append_without_messages_changes_the_state_only(lua: Scripts) -> None:
    assert await lua.append(sets={"plan": "p"}, tokens=0) == [counters(0, 0), 1, 0, 1, 0]
    assert await lua.raw.exists(lua.key("messages")) == 0
    assert (await lua.fields())[b"plan"] == b"p"
    assert await lua.append(sets={"param:x": "1"}, drops=["plan"], tokens=0) == counters(0, 0)
    fields = await lua.fields()
    assert b"plan" not in fields
    assert fields[b"param:x"] == b"1"
    assert await lua.append("a") == counters(1, 10)
    assert await lua.raw.pexpiretime(lua.key("messages")) == await lua.raw.pexpiretime(lua.key("state")) == EXPIRES_MS


async def test_a_token_known_gives_the_first_reply_and_writes_nothing(lua: Scripts) -> None:
    await lua.append("a", "b", token=b"token..1")
    await lua.append("c", token=b"token..2")
    before = await lua.everything()
    again = await lua.append("x", "y", token=b"token..1", sets={"plan": "p"}, expect="99", now_ms=NOW_MS + 10**7)
    assert again == [counters(3, 20), 1, 2, 1, 1]
    assert await lua.append("x", token=b"token..2") == [counters(3, 20), 3, 3, 0, 1]
    assert await lua.everything() == before


@pytest.mark.parametrize("sizes", [[1] * 20, [20] * 1 + [1] * 19, [3, 1, 4, 1, 5, 9, 2, 6] * 3, [1000] * 17])
async def test_the_last_sixteen_appends_are_known_whatever_their_sizes(lua: Scripts, sizes: list[int]) -> None:
    limits: dict[str, Any] = {"window_limit": 10**6, "threshold": 10**6}
    for number, size in enumerate(sizes):
        await lua.append(*["m"] * size, token=b"%08d" % number, **limits)
    before = await lua.everything()
    noted = counters(sum(sizes), 10 * len(sizes))
    for number in range(len(sizes) - 16, len(sizes)):
        first_seq, last_seq = sum(sizes[:number]) + 1, sum(sizes[: number + 1])
        again = await lua.append("other", token=b"%08d" % number, **limits)
        assert again == [noted, first_seq, last_seq, int(number == 0), 1]
    assert await lua.everything() == before
    forgotten = await lua.append("m", token=b"%08d" % (len(sizes) - 17), **limits)
    assert forgotten == counters(sum(sizes) + 1, 10 * len(sizes) + 10)


async def test_a_token_is_found_at_its_own_place_only(lua: Scripts) -> None:
    """Between two entries, and across them, stand the same bytes."""
    await lua.append("a", token=b"AAAAAAAA")
    await lua.append("b", token=b"BBBBBBBB")
    across = b"AAAA\x80\x01BBBB"
    for start in range(1, 3):
        assert is_new(await lua.append("c", token=across[start : start + 8]))
    inside = b"\x80\x01BBBBBB"
    assert is_new(await lua.append("d", token=inside))
    assert not is_new(await lua.append("x", token=inside))


async def test_a_token_may_hold_any_bytes(lua: Scripts) -> None:
    tokens = [bytes([byte] * 8) for byte in (0, 10, 13, 37, 42, 46, 91, 128, 255)]
    for token in tokens:
        assert is_new(await lua.append("a", token=token))
    for number, token in enumerate(tokens, 1):
        assert (await lua.append("a", token=token))[1:] == [number, number, int(number == 1), 1]


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizes=st.lists(st.integers(1, 300), min_size=21, max_size=45))
async def test_the_last_sixteen_are_known_however_often_the_fields_have_gone_round(
    lua: Scripts, sizes: list[int]
) -> None:
    await lua.raw.delete(*(lua.key(name) for name in ("messages", "state", "active", "overdue")))
    limits: dict[str, Any] = {"window_limit": 10**6, "threshold": 10**6, "tokens": 0}
    last_seq, seqs = 0, []
    for number, size in enumerate(sizes):
        await lua.append(*["m"] * size, token=b"%08d" % number, fresh=number % 2, **limits)
        seqs.append([last_seq + 1, last_seq + size])
        last_seq += size
        for back in range(min(16, number + 1)) if number > 18 else ():
            again = await lua.append("x", token=b"%08d" % (number - back), **limits)
            assert again == [counters(last_seq, 0), *seqs[number - back], int(number == back), 1]
    fields = await lua.fields()
    assert all(len(value) <= 51 for name, value in fields.items() if name.startswith(b"ids_"))


async def test_a_fresh_append_does_not_look_whether_it_was_made_before(lua: Scripts) -> None:
    await lua.append("a", fresh=1)
    assert await lua.append("b", fresh=1) == counters(2, 20)
    assert (await lua.append("c", fresh=0))[1:] == [1, 1, 1, 1]


async def test_the_first_sending_of_an_append_may_arrive_after_the_second(lua: Scripts) -> None:
    await lua.append("a", fresh=1)
    assert await lua.append("b", token=b"token..2", fresh=2) == counters(2, 20)
    for number in range(15):
        assert is_new(await lua.append("c", token=b"%08d" % number, fresh=1))
    before = await lua.everything()
    assert (await lua.append("b", token=b"token..2", fresh=1))[1:] == [2, 2, 0, 1]
    assert await lua.everything() == before


async def test_an_append_that_was_sent_again_and_is_known_leaves_no_trace(lua: Scripts) -> None:
    await lua.append("a", fresh=1)
    before = await lua.everything()
    assert (await lua.append("a", fresh=2))[1:] == [1, 1, 1, 1]
    assert await lua.everything() == before


async def test_a_window_that_is_not_as_long_as_noted_is_told(lua: Scripts) -> None:
    await lua.append("a", "b")
    await lua.raw.lpop(lua.key("messages"))
    assert await lua.append("c", token=b"token..2") == [counters(2, 10), b"1-ab", 1]
    await lua.raw.delete(lua.key("messages"))
    assert await lua.append("d", token=b"token..3") == [counters(2, 10), b"1-ab", 0]
    assert not await lua.raw.exists(lua.key("messages"))
    assert await lua.raw.hget(lua.key("state"), "counters") == counters(2, 10)
    await lua.raw.rpush(lua.key("messages"), "a", "b", "c")
    assert await lua.append("e", token=b"token..4") == [counters(2, 10), b"1-ab", 3]


async def test_large_sums_of_tokens_stay_exact(lua: Scripts) -> None:
    await lua.append("a", tokens=2**32 - 1)
    await lua.set_counters(tokens=10**15 + 1)
    assert await lua.append("b", token=b"token..2", tokens=2**32 - 1) == counters(2, 10**15 + 2**32)


async def test_times_far_away_stay_exact(lua: Scripts) -> None:
    far_ms = 2 * 10**14 + 1
    await lua.append("a")
    expected = counters(2, 20, active_ms=far_ms, expires_ms=far_ms + TIMEOUT_MS + TIMEOUT_MS // 16)
    assert await lua.append("b", token=b"token..2", now_ms=far_ms) == expected


@pytest.mark.parametrize("idle_timeout_ms", [1, 900, 15_999, 16_000, 16_001, 1_000_000])
async def test_no_session_expires_before_its_time(lua: Scripts, idle_timeout_ms: int) -> None:
    """Within a second neither activity nor expiry is looked at; the margin is larger."""
    now_ms = NOW_MS
    await lua.append("m", idle_timeout_ms=idle_timeout_ms)
    for number, step_ms in enumerate((999, 1, 998, 3, 500, 999, 1000, 1001, 5000, 999)):
        now_ms += step_ms
        await lua.append("m", token=b"%08d" % number, idle_timeout_ms=idle_timeout_ms, now_ms=now_ms)
        noted = await lua.counters()
        assert noted["expires_ms"] > now_ms + idle_timeout_ms
        assert await lua.raw.pexpiretime(lua.key("state")) == noted["expires_ms"]
        assert await lua.raw.pexpiretime(lua.key("messages")) == noted["expires_ms"]


REFUSED = {
    "CONFLICT 2": {"expect": "1"},
    "CONFLICT 2 ": {"expect": "0"},
    "FULL 2": {"window_limit": 2, "threshold": 2},
    "PARAMS 2": {"params_limit": 1, "sets": {"param:x": "1", "param:y": "2"}},
}


@pytest.mark.parametrize("word", REFUSED)
async def test_a_refusal_comes_before_anything_is_written(lua: Scripts, word: str) -> None:
    await lua.append("a", "b", sets={"param:a": "1"})
    before = await lua.everything()
    with pytest.raises(ResponseError, match=f"^{word.strip()}"):
        await lua.append("c", token=b"token..2", now_ms=NOW_MS + 10**7, drops=["param:a"], **REFUSED[word])
    assert await lua.everything() == before
    assert await lua.append("c", token=b"token..2") == counters(3, 20)


async def test_nothing_is_created_by_a_refusal(lua: Scripts) -> None:
    for changed in (
        {"expect": "1"},
        {"window_limit": 0, "threshold": 0},
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
    "state has no counters": [("HSET", "state", "foreign", "1")],
    "state has an epoch only": [("HSET", "state", "epoch", "1-ab")],
    "state counts in words": [("HSET", "state", "epoch", "1-ab", "counters", "one two three four five")],
    "state counts nothing": [("HSET", "state", "epoch", "1-ab", "counters", "")],
    "messages without a state": [("RPUSH", "messages", "x")],
    "messages are a hash": [("HSET", "messages", "x", "y")],
    "messages are a string, under a state": [("APPEND", "messages"), ("DEL", "messages"), ("SET", "messages", "x")],
    "messages are a hash, under a state": [("APPEND", "messages"), ("DEL", "messages"), ("HSET", "messages", "x", "y")],
}
FOREIGN["the counters are missing"] = [("APPEND", "messages"), ("HDEL", "state", "counters")]
for number in range(5):
    sound = [b"1", b"1", b"10", b"%d" % NOW_MS, b"%d" % EXPIRES_MS]
    for what, foreign in (("no number", b"x"), ("below zero", b"-1"), ("a fraction", b"1.5"), ("1e15", b"1e+15")):
        broken = b" ".join([b"v1", *sound[:number], foreign, *sound[number + 1 :]])
        FOREIGN[f"counter {number} is {what}"] = [("APPEND", "messages"), ("HSET", "state", "counters", broken)]
    fewer = b" ".join([b"v1", *sound[:number], *sound[number + 1 :]])
    FOREIGN[f"counter {number} is missing"] = [("APPEND", "messages"), ("HSET", "state", "counters", fewer)]
FOREIGN["no layout version"] = [("APPEND", "messages"), ("HSET", "state", "counters", counters(1, 10)[3:])]
FOREIGN["a counter too many"] = [("APPEND", "messages"), ("HSET", "state", "counters", counters(1, 10) + b" 6")]


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
    assert (await lua.counters())["active_ms"] == expected


@pytest.mark.parametrize(
    ("later_ms", "moved"),
    [(0, False), (TIMEOUT_MS // 16 - 1000, False), (TIMEOUT_MS // 16 - 999, True), (TIMEOUT_MS, True)],
)
async def test_the_time_to_live_starts_again_once_it_has_aged(lua: Scripts, later_ms: int, moved: bool) -> None:
    await lua.append("a")
    await lua.append("b", token=b"token..2", now_ms=NOW_MS + later_ms)
    expected = EXPIRES_MS + later_ms * moved
    assert await lua.raw.pexpiretime(lua.key("state")) == expected
    assert await lua.raw.pexpiretime(lua.key("messages")) == expected
    assert (await lua.counters())["expires_ms"] == expected
    assert expected >= NOW_MS + later_ms + TIMEOUT_MS


async def test_an_append_takes_a_session_off_the_eviction_queue(lua: Scripts) -> None:
    await lua.append("a")
    await lua.set_counters(evicting="idle")
    await lua.raw.zadd(lua.key("evictions"), {"s": 1, "other": 2})
    assert await lua.append("b", token=b"token..2") == counters(2, 20)
    assert await lua.queue("evictions") == {b"other": 2}
    assert (await lua.fields())[b"counters"] == counters(2, 20)


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
        await lua.append("a", nonce=nonce)
        epochs.append((await lua.fields())[b"epoch"])
        await lua.raw.delete(lua.key("state"), lua.key("messages"), lua.key("fences"))
    assert epochs == [b"1-01", b"1-02", b"1-03"]


async def test_a_thousand_messages_and_their_fields_are_one_append(lua: Scripts) -> None:
    sets = {f"param:{number}": "x" for number in range(1000)}
    reply = await lua.append(*["m"] * 1000, sets=sets, params_limit=1000, window_limit=1000)
    assert reply[1:3] == [1, 1000]
    assert len(await lua.fields()) > 1000


@pytest.mark.parametrize("now_ms", [NOW_MS, NOW_MS + 1, 2**53 - 1, 1])
async def test_the_stamp_is_the_time_to_the_millisecond(lua: Scripts, now_ms: int) -> None:
    await lua.append("a", now_ms=NOW_MS)
    await lua.append("b", token=b"token..2", now_ms=now_ms)
    assert (await lua.raw.lindex(lua.key("messages"), 1))[-9:] == b"\xcf" + now_ms.to_bytes(8, "big")


async def test_the_first_append_is_noted_whatever_the_time(lua: Scripts) -> None:
    await lua.append("a", now_ms=500, idle_timeout_ms=NOW_MS)
    expires_ms = 500 + NOW_MS + NOW_MS // 16
    assert (await lua.fields())[b"counters"] == counters(1, 10, active_ms=500, expires_ms=expires_ms)
    assert await lua.queue("active") == {b"s": 500}
    assert await lua.raw.pexpiretime(lua.key("messages")) == await lua.raw.pexpiretime(lua.key("state")) == expires_ms


async def test_a_session_that_expired_before_it_was_written_is_gone_whole(lua: Scripts) -> None:
    await lua.append("a", now_ms=1_000)
    assert await lua.raw.exists(lua.key("state"), lua.key("messages")) == 0
    assert (await lua.append("b", nonce="cd"))[1:] == [1, 1, 1, 0]
    assert (await lua.fields())[b"epoch"] == b"2-cd"


async def test_too_many_tokens_make_a_session_overdue_but_never_for_its_recent_messages(lua: Scripts) -> None:
    limits = {"token_limit": 25, "recent_limit": 3, "threshold": 100}
    for number in range(3):
        await lua.append("m", token=b"token..%d" % number, tokens=10, **limits)
    assert await lua.queue("overdue") == {}
    await lua.append("m", token=b"token..9", tokens=0, **limits)
    assert await lua.queue("overdue") == {b"s": NOW_MS}
