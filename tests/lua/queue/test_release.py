"""release.lua, raw."""

from __future__ import annotations

from typing import Any

import pytest
from support.queue_scripts import CLAIM, COMMIT, LEASE_MS, RELEASE, changed_fields, claimed, queues
from support.raw_scripts import NOW_MS, Scripts


async def test_a_failed_attempt_is_due_again_after_its_pause(lua: Scripts) -> None:
    await claimed(lua)
    before = await lua.fields()
    assert await lua.run("release", **RELEASE) == b"ok"
    assert await queues(lua) == {"overdue": {b"s": NOW_MS + 907}}
    assert await changed_fields(lua, before) == {b"queued": b"overdue", b"fence": None}
    assert (await lua.run("claim", **CLAIM | {"now_ms": NOW_MS + 907}))[2] == 2


async def test_an_attempt_that_does_not_count_is_given_back(lua: Scripts) -> None:
    await claimed(lua)
    assert await lua.run("release", **RELEASE | {"counts": 0, "max_attempts": 1}) == b"ok"
    assert (await lua.fields())[b"attempts"] == b"0"
    assert (await lua.run("claim", **CLAIM | {"now_ms": NOW_MS + 907}))[2] == 1


@pytest.mark.parametrize("max_attempts", [1, 0])
async def test_after_the_last_attempt_it_is_dead(lua: Scripts, max_attempts: int) -> None:
    """0: whatever the attempts, as where the provider refuses the request for good."""
    await claimed(lua)
    before = await lua.fields()
    counts = {"counts": max_attempts, "max_attempts": max_attempts}
    assert await lua.run("release", **RELEASE | counts) == b"dead"
    assert await queues(lua) == {"dead": {b"s": NOW_MS + 7}}
    changed = await changed_fields(lua, before)
    assert (changed[b"queued"], changed[b"fence"]) == (b"dead", None)


@pytest.mark.parametrize("after", ["another fence", "takeover", "release", "commit", "clear", "expiry"])
async def test_a_worker_that_holds_it_no_more_changes_nothing(lua: Scripts, after: str) -> None:
    await claimed(lua)
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
        await lua.run("clear", epoch="1-ab")
    else:
        await lua.raw.delete(lua.key("state"), lua.key("messages"))
    before = await lua.everything()
    assert await lua.run("release", **RELEASE | changed) == b"fenced"
    assert await lua.everything() == before
