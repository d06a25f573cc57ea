"""release.lua, raw."""

from __future__ import annotations

from typing import Any

import pytest
from support.queue_scripts import CLAIM, COMMIT, LEASE_MS, RELEASE, changed_fields, create_claimed, queues
from support.raw_scripts import NOW_MS, Scripts


async def test_a_failed_attempt_is_due_again_after_its_pause(lua: Scripts) -> None:
    await create_claimed(lua)
    before = await lua.fields()
    assert await lua.run("release", **RELEASE) == b"ok"
    assert await queues(lua) == {"overdue": {b"s": NOW_MS + 907}}
    assert await changed_fields(lua, before) == {b"queued": b"overdue", b"fence": None}
    assert (await lua.run("claim", **CLAIM | {"now_ms": NOW_MS + 907}))[2] == 2


async def test_an_uncounted_attempt_is_subtracted(lua: Scripts) -> None:
    await create_claimed(lua)
    assert await lua.run("release", **RELEASE | {"counts": 0, "max_attempts": 1}) == b"ok"
    assert (await lua.fields())[b"attempts"] == b"0"
    assert (await lua.run("claim", **CLAIM | {"now_ms": NOW_MS + 907}))[2] == 1


@pytest.mark.parametrize("max_attempts", [1, 0])
async def test_after_the_last_attempt_it_is_dead(lua: Scripts, max_attempts: int) -> None:
    """`max_attempts` 0 ignores the attempts, as if the provider refuses the request for good."""
    await create_claimed(lua)
    before = await lua.fields()
    counts = {"counts": max_attempts, "max_attempts": max_attempts}
    assert await lua.run("release", **RELEASE | counts) == b"dead"
    assert await queues(lua) == {"dead": {b"s": NOW_MS + 7}}
    changed = await changed_fields(lua, before)
    assert (changed[b"queued"], changed[b"fence"], changed[b"deaths"]) == (b"dead", None, b"1")


async def test_the_reason_is_stored_and_the_time_of_the_first_failure_stays(lua: Scripts) -> None:
    await create_claimed(lua)
    assert await lua.run("release", **RELEASE | {"reason": "openai answered 503"}) == b"ok"
    assert (await lua.fields())[b"failure"] == b"%d %d openai answered 503" % (NOW_MS + 7, NOW_MS + 7)
    assert (await lua.run("claim", **CLAIM | {"now_ms": NOW_MS + 907}))[0] == b"job"
    again = {"fence": b"3-cd", "now_ms": NOW_MS + 908, "reason": "openai answered 400 x"}
    assert await lua.run("release", **RELEASE | again) == b"ok"
    assert (await lua.fields())[b"failure"] == b"%d %d openai answered 400 x" % (NOW_MS + 7, NOW_MS + 908)


async def test_a_negative_backoff_returns_it_to_its_place(lua: Scripts) -> None:
    await create_claimed(lua)
    assert await lua.run("release", **RELEASE | {"counts": 0, "backoff_ms": -500}) == b"ok"
    assert await queues(lua) == {"overdue": {b"s": NOW_MS + 7 - 500}}


async def test_deaths_are_counted_until_the_next_commit(lua: Scripts) -> None:
    for deaths in (1, 2, 3):
        await (create_claimed(lua) if deaths == 1 else lua.run("claim", **CLAIM))
        fence = (await lua.fields())[b"fence"]
        assert await lua.run("release", **RELEASE | {"fence": fence, "max_attempts": 0, "reason": "x"}) == b"dead"
        assert (await lua.fields())[b"deaths"] == b"%d" % deaths
        await lua.raw.hset(lua.key("state"), mapping={"queued": "overdue", "attempts": 0})
        await lua.raw.zadd(lua.key("overdue"), {"s": NOW_MS})
    await lua.run("claim", **CLAIM)
    assert await lua.run("commit", **COMMIT | {"fence": (await lua.fields())[b"fence"]}) == b"ok"
    assert not {b"failure", b"deaths", b"attempts"} & (await lua.fields()).keys()


@pytest.mark.parametrize("after", ["another fence", "takeover", "release", "commit", "clear", "expiry"])
async def test_a_worker_that_lost_the_lease_changes_nothing(lua: Scripts, after: str) -> None:
    await create_claimed(lua)
    changed: dict[str, Any] = {}
    if after == "another fence":
        changed = {"fence": "2-zz"}
    elif after == "takeover":
        await lua.run("claim", **CLAIM | {"now_ms": NOW_MS + LEASE_MS})
    elif after == "release":
        await lua.run("release", **RELEASE)
    elif after == "commit":
        await lua.run("commit", **COMMIT)
    elif after == "clear":
        await lua.run("clear", epoch="1-ab", noted_ms=0, owner="-", keys_count=13)
    else:
        await lua.raw.delete(lua.key("state"), lua.key("messages"))
    before = await lua.read_namespace()
    assert await lua.run("release", **RELEASE | changed) == b"fenced"
    assert await lua.read_namespace() == before
