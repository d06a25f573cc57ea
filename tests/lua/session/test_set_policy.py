"""set_policy.lua, raw; and what the other scripts do with a policy in the counters."""

from __future__ import annotations

from typing import Any

import pytest
from redis.exceptions import ResponseError
from support.queue_scripts import CLAIM, COMMIT, SWEEP, create_claimed, create_overdue, queues, run_many
from support.raw_scripts import NOW_MS, PRUNE, REWRITE, TIMEOUT_MS, Scripts, counters
from support.turns import put_turn

LATER_MS = NOW_MS + 2_000
SET: dict[str, Any] = {"now_ms": LATER_MS, "kept_ms": TIMEOUT_MS, "new_policy": "~wx5000"}


async def policy_of(lua: Scripts) -> bytes:
    return (await lua.fields())[b"counters"].partition(b"~")[2]


async def test_it_is_stored_in_the_counters_and_sets_every_place(lua: Scripts) -> None:
    await lua.append("a")
    await put_turn(lua.raw, lua.session(), "d")
    before = await lua.fields()
    assert await lua.run("set_policy", **SET) == 1
    changed = counters(1, 10, active_ms=LATER_MS, expires_ms=LATER_MS + 5000) + b"~wx5000"
    assert await lua.fields() == before | {b"counters": changed}
    assert await lua.queue("active") == {b"s": -LATER_MS}
    assert await queues(lua) == {"evictions": {b"s": -(LATER_MS + 5000)}}
    for name in ("state", "messages", "turned", "live"):
        assert await lua.raw.pexpiretime(lua.key(name)) == LATER_MS + 5000
    after = await lua.read_namespace()
    assert await lua.run("set_policy", **SET) == 1, "sent again"
    assert await lua.read_namespace() == after


async def test_without_a_policy_the_caller_decides_again_and_a_worker_looks_at_it(lua: Scripts) -> None:
    await lua.append("a", new_policy="~wx5000")
    assert await lua.run("set_policy", **SET | {"new_policy": ""}) == 1
    expected = counters(1, 10, active_ms=LATER_MS, expires_ms=LATER_MS + TIMEOUT_MS)
    assert (await lua.fields())[b"counters"] == expected
    assert await lua.queue("active") == {b"s": LATER_MS}
    assert await queues(lua) == {"overdue": {b"s": LATER_MS}}


@pytest.mark.parametrize("create", [create_overdue, create_claimed])
async def test_a_session_kept_whole_leaves_the_queues_and_its_worker_is_fenced(lua: Scripts, create: Any) -> None:
    await create(lua)
    await lua.run("set_policy", **SET | {"new_policy": "~w"})
    assert await queues(lua) == {}
    assert b"queued" not in await lua.fields()
    before = await lua.read_namespace()
    if create is create_claimed:
        assert await lua.run("commit", **COMMIT) == b"fenced"
    assert await lua.run("claim", **CLAIM) == [b"none", b"", 0, NOW_MS]
    assert await lua.read_namespace() == before


async def test_a_session_kept_whole_is_never_overdue_but_full_all_the_same(lua: Scripts) -> None:
    await lua.append(*map(str, range(20)), new_policy="~w")
    assert await queues(lua) == {}
    with pytest.raises(ResponseError, match=r"^FULL 20"):
        await lua.append("a", token=b"token..2")
    await lua.raw.zadd(lua.key("overdue"), {"s": NOW_MS})
    await lua.raw.hset(lua.key("state"), "queued", "overdue")
    assert (await lua.run("claim", **CLAIM))[0] == b"noop"
    assert await queues(lua) == {}


async def test_only_the_first_write_of_a_session_sets_it(lua: Scripts) -> None:
    await lua.append("a", new_policy="~x7000")
    assert (await lua.counters())["expires_ms"] == NOW_MS + 7000
    await lua.append("b", token=b"token..2", new_policy="~w", now_ms=LATER_MS)
    assert await policy_of(lua) == b"x7000"
    assert (await lua.counters())["expires_ms"] == LATER_MS + 7000
    assert await lua.queue("active") == {b"s": -LATER_MS}
    assert await queues(lua) == {"evictions": {b"s": -(LATER_MS + 7000)}}


@pytest.mark.parametrize("by", ["append", "rewrite", "touch", "prune", "queue_eviction"])
async def test_every_script_keeps_it(lua: Scripts, by: str) -> None:
    await lua.append("a", "b", "c", new_policy="~x7000")
    if by == "append":
        await lua.append("d", token=b"token..2", now_ms=LATER_MS)
    elif by == "rewrite":
        assert await lua.edit(**REWRITE | {"now_ms": LATER_MS}) != 0
    elif by == "touch":
        assert await lua.run("touch", now_ms=LATER_MS, kept_ms=TIMEOUT_MS) == 1
    elif by == "prune":
        assert await lua.edit(**PRUNE) != 0
    elif by == "queue_eviction":
        assert await run_many(lua, "queue_eviction", ["s"], LATER_MS, "limit", 0, 0, "s", NOW_MS) == [0, 0]
        assert await run_many(lua, "queue_eviction", ["s"], LATER_MS, "idle", 1, 9000, "s", "-") == [1, 0]
        assert await lua.queue("evictions") == {b"s": NOW_MS + 7001}
    assert (await policy_of(lua)).startswith(b"x7000")
    assert (await lua.raw.zscore(lua.key("active"), "s")) < 0
    counted = await lua.counters()
    if by in ("append", "rewrite", "touch"):
        assert counted["expires_ms"] == LATER_MS + 7000
        assert await lua.queue("evictions") == {b"s": -(LATER_MS + 7000)}


async def test_a_chosen_session_in_use_again_is_watched_again(lua: Scripts) -> None:
    await lua.append("a", new_policy="~7000")
    assert await run_many(lua, "queue_eviction", ["s"], LATER_MS, "idle", 1, 9000, "s", "-") == [1, 0]
    await lua.append("b", token=b"token..2", now_ms=NOW_MS + 1)
    assert await lua.queue("evictions") == {b"s": -(NOW_MS + 7001)}
    assert await lua.raw.pexpiretime(lua.key("state")) == NOW_MS + 7001
    assert await lua.run("claim_eviction", now_ms=LATER_MS + 10**9, lease_ms=1, nonce="ab") == 0, "it is only watched"
    assert await lua.queue("evictions") == {b"s": -(NOW_MS + 7001)}


async def test_the_sweep_lists_it_again(lua: Scripts) -> None:
    await lua.append("a", new_policy="~x")
    before = await lua.read_namespace()
    await lua.raw.delete(lua.key("active"), lua.key("evictions"))
    assert await run_many(lua, "sweep", ["s"], LATER_MS, *SWEEP, "s") == [0, 1]
    assert await lua.read_namespace() == before


async def test_no_session_unreadable_counters_and_foreign_types(lua: Scripts) -> None:
    assert await lua.run("set_policy", **SET) == 0
    assert await lua.read_namespace() == {}
    await lua.append("a")
    await lua.raw.hset(lua.key("state"), "counters", "v1 1 1")
    before = await lua.read_namespace()
    with pytest.raises(ResponseError, match=r"^CORRUPT"):
        await lua.run("set_policy", **SET)
    assert await lua.read_namespace() == before
    await lua.append("b", session_id="other")
    with pytest.raises(ResponseError, match=r"^PAST"):
        await lua.run("set_policy", session_id="other", **SET | {"now_ms": 1})
    await lua.raw.hset(lua.key("state"), "counters", "v2 1 1")
    with pytest.raises(ResponseError, match=r"^LAYOUT 2"):
        await lua.run("set_policy", **SET)
    await lua.raw.set(lua.key("state"), "x")
    with pytest.raises(ResponseError, match=r"^WRONGTYPE"):
        await lua.run("set_policy", **SET)


async def test_a_worker_sets_it_only_while_it_has_the_session(lua: Scripts) -> None:
    await lua.append("a")
    await lua.raw.hset(lua.key("state"), mapping={"queued": "leased", "fence": "8-ab"})
    before = await lua.fields()
    assert await lua.run("set_policy", **SET | {"new_policy": "~w", "fence": "7-ab"}) == 0
    assert await lua.fields() == before
    assert await lua.run("set_policy", **SET | {"new_policy": "~w", "fence": "8-ab"}) == 1
    assert b"fence" not in await lua.fields()
    assert await lua.run("set_policy", **SET | {"new_policy": "~w", "fence": "8-ab"}) == 0
