"""claim_eviction.lua, raw."""

from __future__ import annotations

from typing import Any

import pytest
from redis.exceptions import ResponseError
from support.queue_scripts import changed_fields, queues, run_many
from support.raw_scripts import NOW_MS, TIMEOUT_MS, Scripts

LATER_MS = NOW_MS + 5_000
CLAIM_EVICTION: dict[str, Any] = {"now_ms": LATER_MS, "lease_ms": 30_000, "nonce": "ab"}


async def chosen(lua: Scripts) -> None:
    await lua.append("1")
    assert await run_many(lua, "queue_eviction", ["s"], LATER_MS, "limit", 0, 0, "s", NOW_MS) == [1, 0]


async def test_one_worker_at_a_time_claims_the_eviction(lua: Scripts) -> None:
    await chosen(lua)
    before = await lua.fields()
    assert await lua.run("claim_eviction", **CLAIM_EVICTION) == 1
    assert await queues(lua) == {"evictions": {b"s": LATER_MS + 30_000}}
    assert await changed_fields(lua, before) == {b"evictor": b"%d-ab" % (LATER_MS + 30_000)}
    after = await lua.read_namespace()
    other = CLAIM_EVICTION | {"nonce": "b"}
    assert await lua.run("claim_eviction", **other | {"now_ms": LATER_MS + 29_999}) == 0
    assert await lua.read_namespace() == after
    assert await lua.run("claim_eviction", **other | {"now_ms": LATER_MS + 30_000}) == 1


async def test_a_claim_that_is_sent_again_has_the_lease_it_got(lua: Scripts) -> None:
    await chosen(lua)
    assert await lua.run("claim_eviction", **CLAIM_EVICTION) == 1
    before = await lua.read_namespace()
    assert await lua.run("claim_eviction", **CLAIM_EVICTION | {"now_ms": LATER_MS + 29_999}) == 1
    assert await lua.read_namespace() == before
    late = {"now_ms": LATER_MS + 30_000}
    assert await lua.run("claim_eviction", **CLAIM_EVICTION | late | {"nonce": "cd"}) == 1, "another worker, after it"
    assert await lua.run("claim_eviction", **CLAIM_EVICTION | late) == 0


async def test_a_claim_that_is_sent_again_after_a_touch_does_not_evict_before_the_time(lua: Scripts) -> None:
    await chosen(lua)
    assert await lua.run("claim_eviction", **CLAIM_EVICTION) == 1
    await lua.run("touch", now_ms=LATER_MS, kept_ms=TIMEOUT_MS)
    assert await run_many(lua, "queue_eviction", ["s"], LATER_MS, "idle", 0, TIMEOUT_MS + 1, "s", LATER_MS) == [1, 0]
    assert await lua.run("claim_eviction", **CLAIM_EVICTION) == 0


async def test_a_session_that_is_not_queued_is_not_claimed(lua: Scripts) -> None:
    await lua.append("1")
    before = await lua.read_namespace()
    assert await lua.run("claim_eviction", **CLAIM_EVICTION) == 0
    assert await lua.read_namespace() == before


@pytest.mark.parametrize("how", ["append", "touch"])
async def test_a_session_touched_since_has_left_the_queue(lua: Scripts, how: str) -> None:
    await chosen(lua)
    if how == "append":
        await lua.append("2", token=b"token..2")
    else:
        await lua.run("touch", now_ms=LATER_MS, kept_ms=TIMEOUT_MS)
    assert await queues(lua) == {}
    assert await lua.run("claim_eviction", **CLAIM_EVICTION) == 0


async def test_an_entry_without_a_session_is_removed(lua: Scripts) -> None:
    await lua.raw.zadd(lua.key("evictions"), {"s": 1, "other": 2})
    assert await lua.run("claim_eviction", **CLAIM_EVICTION) == 0
    assert await queues(lua) == {"evictions": {b"other": 2}}


async def test_a_state_of_a_foreign_type_is_refused_and_left(lua: Scripts) -> None:
    await chosen(lua)
    await lua.raw.set(lua.key("state"), "x")
    before = await lua.read_namespace()
    with pytest.raises(ResponseError, match=r"^WRONGTYPE"):
        await lua.run("claim_eviction", **CLAIM_EVICTION)
    assert await lua.read_namespace() == before
