"""claim.lua, raw."""

from __future__ import annotations

from typing import Any

import pytest
from redis.exceptions import ResponseError
from support.queue_scripts import CLAIM, FENCE, LEASE_MS, changed_fields, create_claimed, create_overdue, queues
from support.raw_scripts import NOW_MS, Scripts


async def test_an_overdue_session_is_leased_with_a_new_fence(lua: Scripts) -> None:
    await create_overdue(lua)
    before = await lua.fields()
    assert await lua.run("claim", **CLAIM) == [b"job", FENCE, 1, NOW_MS, b"%d" % NOW_MS]
    assert await queues(lua) == {"leased": {b"s": NOW_MS + LEASE_MS}}
    assert await changed_fields(lua, before) == {b"queued": b"leased", b"fence": FENCE, b"attempts": b"1"}
    assert await lua.raw.get(lua.key("fences")) == b"2"


async def test_an_expired_lease_is_taken_over(lua: Scripts) -> None:
    await create_claimed(lua)
    before = await lua.read_namespace()
    later: dict[str, Any] = {"now_ms": NOW_MS + LEASE_MS - 1, "nonce": "ef"}
    assert await lua.run("claim", **CLAIM | later) == [b"leased", b"", 0, NOW_MS + LEASE_MS - 1]
    assert await lua.read_namespace() == before
    later = {"now_ms": NOW_MS + LEASE_MS, "nonce": "ef"}
    assert await lua.run("claim", **CLAIM | later) == [
        *(b"job", b"3-ef", 2, NOW_MS + LEASE_MS),
        b"%d" % (NOW_MS + LEASE_MS),
    ]
    assert await queues(lua) == {"leased": {b"s": NOW_MS + 2 * LEASE_MS}}
    assert (await lua.fields())[b"fence"] == b"3-ef"


async def test_a_claim_that_is_sent_again_has_the_lease_it_got(lua: Scripts) -> None:
    await create_claimed(lua)
    before = await lua.read_namespace()
    again_ms = NOW_MS + LEASE_MS - 1
    assert await lua.run("claim", **CLAIM | {"now_ms": again_ms}) == [b"job", FENCE, 1, again_ms, NOW_MS]
    assert await lua.run("claim", **CLAIM | {"nonce": "d"}) == [b"leased", b"", 0, NOW_MS], "a part of the nonce"
    assert await lua.read_namespace() == before


async def test_a_claim_that_is_sent_again_too_late_is_a_new_claim(lua: Scripts) -> None:
    await create_claimed(lua)
    late: dict[str, Any] = {"now_ms": NOW_MS + LEASE_MS}
    assert (await lua.run("claim", **CLAIM | late))[:3] == [b"job", b"3-cd", 2]
    other = late | {"now_ms": NOW_MS + 2 * LEASE_MS, "nonce": "ef"}
    assert (await lua.run("claim", **CLAIM | other))[:3] == [b"job", b"4-ef", 3]
    before = await lua.read_namespace()
    assert (await lua.run("claim", **CLAIM | other | {"nonce": "cd"}))[0] == b"leased"
    assert await lua.read_namespace() == before


async def test_a_claim_that_is_sent_again_ends_if_nothing_waits_any_more(lua: Scripts) -> None:
    await create_claimed(lua)
    await lua.raw.ltrim(lua.key("messages"), 1, -1)
    assert (await lua.run("claim", **CLAIM))[0] == b"noop"
    assert await queues(lua) == {}
    assert b"fence" not in await lua.fields()


async def test_a_session_due_later_is_not_claimed(lua: Scripts) -> None:
    await create_overdue(lua)
    await lua.raw.zadd(lua.key("overdue"), {"s": NOW_MS + 1})
    before = await lua.read_namespace()
    assert await lua.run("claim", **CLAIM) == [b"notdue", b"", 0, NOW_MS]
    assert await lua.read_namespace() == before


@pytest.mark.parametrize("queued", [None, "dead", "leased"])
async def test_a_session_that_is_not_queued_for_a_summary_is_not_claimed(lua: Scripts, queued: Any) -> None:
    await create_overdue(lua)
    await lua.raw.delete(lua.key("overdue"))
    if queued is None:
        await lua.raw.hdel(lua.key("state"), "queued")
    else:
        await lua.raw.hset(lua.key("state"), "queued", queued)
    before = await lua.read_namespace()
    assert await lua.run("claim", **CLAIM) == [b"none", b"", 0, NOW_MS]
    assert await lua.read_namespace() == before


async def test_a_missing_session_is_removed_from_every_queue(lua: Scripts) -> None:
    await create_overdue(lua, "other")
    for name in ("overdue", "leased", "dead"):
        await lua.raw.zadd(lua.key(name), {"s": 1})
    assert await lua.run("claim", **CLAIM) == [b"gone", b"", 0, NOW_MS]
    assert await queues(lua) == {"overdue": {b"other": NOW_MS}}
    assert await lua.raw.exists(lua.key("state"), lua.key("messages")) == 0


async def test_a_window_within_the_threshold_needs_no_worker(lua: Scripts) -> None:
    await create_overdue(lua)
    waiting = {"attempts": 2, "failure": "1 2 x", "deaths": 1}
    await lua.raw.hset(lua.key("state"), mapping={**waiting, "summaries_count": 2})
    before = await lua.fields()
    assert await lua.run("claim", **CLAIM | {"threshold": 6}) == [b"noop", b"", 0, NOW_MS]
    assert await queues(lua) == {}
    assert await changed_fields(lua, before) == dict.fromkeys((b"queued", *(name.encode() for name in waiting)))


async def test_summaries_to_fold_are_a_job_too(lua: Scripts) -> None:
    await create_overdue(lua)
    await lua.raw.hset(lua.key("state"), "summaries_count", 3)
    assert (await lua.run("claim", **CLAIM | {"threshold": 6}))[0] == b"job"


@pytest.mark.parametrize(("failure", "since_ms"), [(None, NOW_MS + LEASE_MS), ("77 78 openai answered 503", 77)])
async def test_after_the_last_attempt_it_is_dead(lua: Scripts, failure: Any, since_ms: int) -> None:
    await create_claimed(lua)
    await lua.raw.hset(lua.key("state"), mapping={"attempts": 3} | ({"failure": failure} if failure else {}))
    before = await lua.fields()
    later_ms = NOW_MS + LEASE_MS
    assert await lua.run("claim", **CLAIM | {"now_ms": later_ms}) == [b"dead", b"", 3, later_ms]
    assert await queues(lua) == {"dead": {b"s": later_ms}}
    assert await changed_fields(lua, before) == {
        b"queued": b"dead",
        b"fence": None,
        b"deaths": b"1",
        b"failure": b"%d %d no worker came back with it" % (since_ms, later_ms),
    }


@pytest.mark.parametrize("name", ["state", "messages"])
async def test_a_key_of_a_foreign_type_is_refused_and_left(lua: Scripts, name: str) -> None:
    await create_overdue(lua)
    await lua.raw.set(lua.key(name), "x")
    before = await lua.read_namespace()
    with pytest.raises(ResponseError, match=r"^WRONGTYPE"):
        await lua.run("claim", **CLAIM)
    assert await lua.read_namespace() == before


async def test_without_now_ms_the_servers_clock_counts(lua: Scripts) -> None:
    await create_overdue(lua)
    await lua.raw.zadd(lua.key("overdue"), {"s": 1})
    seconds, _ = await lua.raw.time()
    outcome, _, _, now_ms, _ = await lua.run("claim", **CLAIM | {"now_ms": "-"})
    assert outcome == b"job"
    assert seconds * 1000 <= now_ms < seconds * 1000 + 600_000
    assert await queues(lua) == {"leased": {b"s": now_ms + LEASE_MS}}


async def test_too_many_tokens_are_a_job_only_beyond_the_recent_messages(
    lua: Scripts,
) -> None:
    await create_overdue(lua, count=6)
    tokens = (await lua.counters())["tokens"]
    few = CLAIM | {"threshold": 6, "recent_limit": 3}
    assert (await lua.run("claim", **few | {"token_limit": tokens - 1, "now_ms": 1}))[0] == b"notdue"
    assert (await lua.run("claim", **few | {"token_limit": tokens - 1}))[0] == b"job"
    again = few | {"now_ms": NOW_MS + LEASE_MS}
    assert (await lua.run("claim", **again | {"token_limit": tokens - 1, "recent_limit": 6}))[0] == b"noop"
