"""extend.lua, raw."""

from __future__ import annotations

from typing import Any

import pytest
from support.queue_scripts import CLAIM, FENCE, LEASE_MS, RELEASE, create_claimed, create_overdue, queues
from support.raw_scripts import NOW_MS, Scripts

EXTEND: dict[str, Any] = {"now_ms": NOW_MS + 500, "fence": FENCE, "lease_ms": LEASE_MS}


async def test_only_the_lease_changes(lua: Scripts) -> None:
    await create_claimed(lua)
    before = await lua.fields()
    assert await lua.run("extend", **EXTEND) == 1
    assert await queues(lua) == {"leased": {b"s": NOW_MS + 500 + LEASE_MS}}
    assert await lua.fields() == before


async def test_an_expired_lease_that_no_worker_took_is_extended(lua: Scripts) -> None:
    await create_claimed(lua)
    late_ms = NOW_MS + 2 * LEASE_MS
    assert await lua.run("extend", **EXTEND | {"now_ms": late_ms}) == 1
    assert await queues(lua) == {"leased": {b"s": late_ms + LEASE_MS}}


@pytest.mark.parametrize("after", ["nothing", "takeover", "release", "expiry", "never claimed"])
async def test_only_the_holder_of_a_lease_extends_it(lua: Scripts, after: str) -> None:
    fence: Any = FENCE
    if after == "never claimed":
        await create_overdue(lua)
    else:
        await create_claimed(lua)
    if after == "nothing":
        fence = "2-zz"
    elif after == "takeover":
        await lua.run("claim", **CLAIM | {"now_ms": NOW_MS + LEASE_MS})
    elif after == "release":
        await lua.run("release", **RELEASE)
    elif after == "expiry":
        await lua.raw.delete(lua.key("state"), lua.key("messages"))
    before = await lua.read_namespace()
    assert await lua.run("extend", **EXTEND | {"fence": fence}) == 0
    assert await lua.read_namespace() == before
