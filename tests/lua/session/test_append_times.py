"""append.lua, raw: the clock, activity, and when a session expires."""

from __future__ import annotations

import pytest
import redis
from support.raw_scripts import EXPIRES_MS, NOW_MS, PRUNE, TIMEOUT_MS, Scripts, counters


async def test_without_now_ms_the_servers_clock_counts(lua: Scripts) -> None:
    seconds, microseconds = await lua.raw.time()
    before = seconds * 1000 + microseconds // 1000
    await lua.append("a", now_ms="-")
    active_ms = (await lua.counters())["active_ms"]
    assert before <= active_ms < before + 60_000
    assert await lua.raw.pexpiretime(lua.key("state")) == active_ms + TIMEOUT_MS
    assert (await lua.raw.lrange(lua.key("messages"), 0, -1))[0][-8:] == active_ms.to_bytes(8, "big")


async def test_times_far_away_stay_exact(lua: Scripts) -> None:
    far_ms = 2 * 10**14 + 1
    await lua.append("a")
    expected = counters(2, 20, active_ms=far_ms, expires_ms=far_ms + TIMEOUT_MS)
    assert await lua.append("b", token=b"token..2", now_ms=far_ms) == expected


@pytest.mark.parametrize("kept_ms", [1, 900, 15_999, 16_000, 16_001, 1_000_000])
async def test_a_session_expires_exactly_its_time_after_its_activity(lua: Scripts, kept_ms: int) -> None:
    """Activity is noted once per second, or per sixteenth of a shorter time: the session loses no more than that."""
    now_ms = NOW_MS
    await lua.append("m", kept_ms=kept_ms)
    for number, step_ms in enumerate((999, 1, 998, 3, 500, 999, 1000, 1001, 5000, 999)):
        now_ms += step_ms
        await lua.append("m", token=b"%08d" % number, kept_ms=kept_ms, now_ms=now_ms)
        noted = await lua.counters()
        assert noted["expires_ms"] == noted["active_ms"] + kept_ms
        assert noted["active_ms"] > now_ms - max(1, min(1000, kept_ms / 16))
        assert await lua.raw.pexpiretime(lua.key("state")) == noted["expires_ms"]
        assert await lua.raw.pexpiretime(lua.key("messages")) == noted["expires_ms"]


async def test_originals_and_ended_turns_expire_with_the_session(lua: Scripts) -> None:
    await lua.append("a", "b", "c")
    assert await lua.edit(**PRUNE) != 0
    await lua.raw.hset(lua.key("originals"), "0", "block")
    await lua.raw.set(lua.key("turned"), "records")
    await lua.append("c", token=b"token..2", now_ms=NOW_MS + 1000)
    times = {await lua.raw.pexpiretime(lua.key(key)) for key in ("state", "messages", "originals", "turned")}
    assert times == {EXPIRES_MS + 1000}


async def test_ended_turns_expire_with_a_session_without_originals(lua: Scripts) -> None:
    await lua.append("a")
    await lua.raw.set(lua.key("turned"), "records")
    await lua.append("b", token=b"token..2", now_ms=NOW_MS + 1000)
    assert await lua.raw.pexpiretime(lua.key("turned")) == EXPIRES_MS + 1000


@pytest.mark.parametrize(("later_ms", "moved"), [(0, False), (999, False), (1000, True), (-5000, False)])
async def test_activity_is_noted_once_a_second_and_never_backwards(lua: Scripts, later_ms: int, moved: bool) -> None:
    await lua.append("a")
    await lua.append("b", token=b"token..2", now_ms=NOW_MS + later_ms)
    expected = NOW_MS + later_ms * moved
    assert await lua.queue("active") == {b"s": expected}
    assert (await lua.counters())["active_ms"] == expected


@pytest.mark.parametrize("now_ms", [NOW_MS, NOW_MS + 1, 2**53 - 1, 2**41])
async def test_the_stamp_is_the_time_to_the_millisecond(lua: Scripts, now_ms: int) -> None:
    await lua.append("a", now_ms=NOW_MS)
    await lua.append("b", token=b"token..2", now_ms=now_ms)
    assert (await lua.raw.lindex(lua.key("messages"), 1))[-9:] == b"\xcf" + now_ms.to_bytes(8, "big")


async def test_the_first_append_is_noted_whatever_the_time(lua: Scripts) -> None:
    await lua.append("a", now_ms=500, kept_ms=NOW_MS)
    expires_ms = 500 + NOW_MS
    assert (await lua.fields())[b"counters"] == counters(1, 10, active_ms=500, expires_ms=expires_ms)
    assert await lua.queue("active") == {b"s": 500}
    assert await lua.raw.pexpiretime(lua.key("messages")) == await lua.raw.pexpiretime(lua.key("state")) == expires_ms


async def test_a_time_at_which_the_session_would_expire_at_once_is_refused(lua: Scripts) -> None:
    """Otherwise the append would be acknowledged and lost, or the existing session would expire."""
    seconds, _ = await lua.raw.time()
    past_ms = seconds * 1000 - TIMEOUT_MS
    refused = f"^PAST {past_ms}"
    with pytest.raises(redis.ResponseError, match=refused):
        await lua.append("a", now_ms=past_ms)
    assert await lua.read_namespace() == {}
    await lua.append("a")
    before = await lua.read_namespace()
    for late in (
        lua.append("b", token=b"token..2", now_ms=past_ms),
        lua.run("touch", now_ms=past_ms, kept_ms=TIMEOUT_MS),
    ):
        with pytest.raises(redis.ResponseError, match=refused):
            await late
    assert await lua.read_namespace() == before
    await lua.append("b", token=b"token..2", now_ms=past_ms + 60_000)
    assert (await lua.counters())["active_ms"] == NOW_MS


async def test_an_append_only_delays_the_expiry_and_a_touch_sets_it(lua: Scripts) -> None:
    wrong_ms, later_ms = TIMEOUT_MS * 1000, NOW_MS + 2_000
    await lua.append("a", kept_ms=wrong_ms)
    await lua.append("b", token=b"%08d" % 1, kept_ms=TIMEOUT_MS, now_ms=later_ms)
    assert (await lua.counters())["expires_ms"] == NOW_MS + wrong_ms
    await lua.run("touch", now_ms=later_ms, kept_ms=TIMEOUT_MS)
    assert await lua.raw.pexpiretime(lua.key("messages")) == later_ms + TIMEOUT_MS
    await lua.append("c", token=b"%08d" % 2, kept_ms=wrong_ms, now_ms=later_ms + 1_000)
    assert await lua.raw.pexpiretime(lua.key("messages")) == later_ms + 1_000 + wrong_ms
