"""Every script that reads counters refuses a session of another layout version, and leaves it unchanged."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from redis.exceptions import ResponseError
from support.live_scripts import APPEND, BEGIN
from support.queue_scripts import CLAIM, COMMIT, INDEXES, RELEASE, SWEEP, create_claimed, create_overdue, run_many
from support.raw_scripts import EDIT, NOW_MS, TIMEOUT_MS, Scripts

from redismem.protocol import scripts

LATER_MS = NOW_MS + 60_000
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "edit": ("edit", EDIT),
    "touch": ("touch", {"now_ms": LATER_MS, "kept_ms": TIMEOUT_MS}),
    "set_policy": ("set_policy", {"now_ms": LATER_MS, "kept_ms": TIMEOUT_MS, "new_policy": "~w"}),
    "claim": ("claim", CLAIM | {"now_ms": LATER_MS}),
    "commit": ("commit", COMMIT),
    "requeue": ("requeue", {"now_ms": LATER_MS, "again": 1}),
    "requeue, dropped": ("requeue", {"now_ms": LATER_MS, "again": 0}),
    "claim_eviction": ("claim_eviction", {"now_ms": LATER_MS, "lease_ms": 30_000, "nonce": "ab"}),
    "evict": ("evict", {"appends": "*"}),
    "begin_turn": ("begin_turn", BEGIN),
    "append_turn": ("append_turn", APPEND),
}
OTHERS = ["v2 1 6 10 4000000000000 4000001700000 idle", "v2", "v17 {}", "v0 1 6 10 4000000000000 4000001700000"]


async def create_with_layout(lua: Scripts, counters: str, what: str = "") -> dict[bytes, tuple[Any, int]]:
    """Create a session on which the script would act, if not for its layout version."""
    await (create_overdue if what in ("claim", "append") else create_claimed)(lua)
    if what.startswith("requeue"):
        await lua.run("release", **RELEASE | {"max_attempts": 1})
    await lua.raw.zadd(lua.key("evictions"), {"s": NOW_MS})
    await lua.raw.hset(lua.key("state"), "counters", counters)
    return await lua.read_namespace()


@pytest.mark.parametrize(("what", "counters"), [*product(RUNS, OTHERS[:1]), *product(["claim"], OTHERS[1:])])
async def test_another_version_is_refused_and_left_unchanged(lua: Scripts, what: str, counters: str) -> None:
    before = await create_with_layout(lua, counters, what)
    name, arguments = RUNS[what]
    version = counters.split(maxsplit=1)[0].removeprefix("v")
    with pytest.raises(ResponseError, match=rf"^LAYOUT {version}$"):
        await lua.run(name, **arguments)
    assert await lua.read_namespace() == before


@pytest.mark.parametrize(
    "counters", ["", "x", "1 6 10 4000000000000 4000001700000 idle", "v1 1 6 10 4000000000000", "v"]
)
@pytest.mark.parametrize("what", ["claim", "claim_eviction", "evict"])
async def test_unreadable_counters_are_corrupt_and_not_of_another_version(
    lua: Scripts, what: str, counters: str
) -> None:
    before = await create_with_layout(lua, counters, what)
    name, arguments = RUNS[what]
    with pytest.raises(ResponseError, match=r"^CORRUPT counters$"):
        await lua.run(name, **arguments)
    assert await lua.read_namespace() == before


@pytest.mark.parametrize("contents", [["7"], []])
@pytest.mark.parametrize("counters", OTHERS)
async def test_an_append_is_refused_too(lua: Scripts, contents: list[str], counters: str) -> None:
    before = await create_with_layout(lua, counters, "append")
    for fresh in (0, 1):
        with pytest.raises(ResponseError, match=r"^LAYOUT \d+$"):
            await lua.append(*contents, fresh=fresh, token=b"token..7", sets={"plan": "p"}, now_ms=LATER_MS)
    assert await lua.read_namespace() == before


async def test_it_does_not_stop_the_sweep_of_other_sessions(lua: Scripts) -> None:
    """Scripts about many sessions skip it without an error."""
    await create_with_layout(lua, OTHERS[0])
    await lua.raw.zrem(lua.key("leased"), "s")
    await lua.append("1", session_id="b")
    await lua.raw.zrem(lua.key("active"), "b")
    before = await lua.read_namespace()
    assert await run_many(lua, "sweep", ["s", "b"], LATER_MS, *SWEEP, "s", "b") == [0, 1]
    seen = ["s", NOW_MS, "b", NOW_MS]
    assert await run_many(lua, "queue_eviction", ["s", "b"], LATER_MS, "limit", 0, 0, *seen) == [1, 0]
    after = await lua.read_namespace()
    for key in (lua.key(name) for name in ("state", "messages", "overdue", "leased", "dead")):
        assert after.get(key) == before.get(key)
    assert await lua.queue("evictions") == {b"s": NOW_MS, b"b": LATER_MS}


async def test_clear_checks_only_the_epoch(lua: Scripts) -> None:
    await create_with_layout(lua, OTHERS[0])
    assert await lua.run("clear", epoch="1-ab", noted_ms=0, owner="-", keys_count=13) == 1
    assert set(await lua.read_namespace()) == {lua.key("fences")}
    assert [await lua.queue(index) for index in INDEXES] == [{}] * 5


def test_every_script_that_parses_counters_is_tested_here() -> None:
    parsing = {name for name in scripts.names() if b"LAYOUT" in scripts.load(name).source.split(b"local ", 1)[1]}
    listed = {name for name, _ in RUNS.values()} | {"append"}
    assert parsing <= listed, f"RUNS lacks {', '.join(sorted(parsing - listed))}"
    assert listed <= parsing, f"RUNS has what takes no counters apart: {', '.join(sorted(listed - parsing))}"
