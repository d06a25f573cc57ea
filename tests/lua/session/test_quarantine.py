"""quarantine.lua, raw."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from support.raw_scripts import EXPIRES_MS, Scripts

INDEXES = ("active", "overdue", "leased", "dead", "evictions")
KEYS = ("messages", "state", "originals")
ASIDE: dict[str, Any] = {"epoch": "-", "idle_timeout_ms": 60_000}


async def broken(lua: Scripts, commands: list[tuple[Any, ...]]) -> dict[bytes, tuple[Any, int]]:
    """Create a session in all indexes, with originals, and break it with these commands."""
    await lua.append("a", "b")
    await lua.raw.hset(lua.key("originals"), "0", "old")
    for index in INDEXES:
        await lua.raw.zadd(lua.key(index), {"s": 1, "other": 2})
    for command, key, *rest in commands:
        await lua.raw.execute_command(command, lua.key(key), *rest)
    return await lua.read_namespace()


COMMANDS: dict[str, list[tuple[Any, ...]]] = {
    "state is a string": [("DEL", "state"), ("SET", "state", "x")],
    "messages are a string": [("DEL", "messages"), ("SET", "messages", "x")],
    "originals are a list": [("DEL", "originals"), ("RPUSH", "originals", "x", "y")],
    "no epoch": [("HDEL", "state", "epoch")],
    "no counters": [("HDEL", "state", "counters")],
    "no state": [("DEL", "state")],
    "an epoch that is none": [("HSET", "state", "epoch", b"\xff\xfe")],
    "an empty epoch": [("HSET", "state", "epoch", "")],
}
BROKEN = COMMANDS | {
    f"counters are {counters!r}": [("HSET", "state", "counters", counters)]
    for counters in (
        "",
        "x",
        "v1 1 2 10 5",
        "v1 1 2 10 5 6 7",
        "v1 1 2 -10 5 6",
        "v1 1 2 1e+15 5 6",
        " v1 1 2 10 5 6",
        "1 2 10 5 6",
        "v 1 2 10 5 6",
        "v1 1 2 10 5 6 x y",
    )
}


@pytest.mark.parametrize(
    ("what", "epoch"), [*((what, "-") for what in BROKEN), *product(["no state", "no epoch"], ["1-ab", "9-ff"])]
)
async def test_a_visibly_broken_session_is_renamed_and_keeps_its_time_to_live(
    lua: Scripts, what: str, epoch: str
) -> None:
    before = await broken(lua, BROKEN[what])
    there = [name for name in KEYS if lua.key(name) in before]
    assert await lua.run("quarantine", **ASIDE | {"epoch": epoch}) == len(there)
    after = await lua.read_namespace()
    for name in there:
        content, expires_ms = before[lua.key(name)]
        aside, aside_ms = after[lua.key(f"quarantine_{name}")]
        assert aside == content
        assert aside_ms == expires_ms if expires_ms > 0 else aside_ms > 0
        assert lua.key(name) not in after
    assert len([key for key in after if b":quarantine:" in key]) == len(there)
    for index in INDEXES:
        assert await lua.queue(index) == {b"other": 2}


async def test_a_session_of_the_epoch_that_the_caller_saw_is_renamed(lua: Scripts) -> None:
    before = await broken(lua, [])
    assert await lua.run("quarantine", **ASIDE | {"epoch": "1-ab"}) == 3
    after = await lua.read_namespace()
    assert after[lua.key("quarantine_messages")] == before[lua.key("messages")]
    assert after[lua.key("quarantine_state")][1] == EXPIRES_MS


@pytest.mark.parametrize("epoch", ["-", "2-ab", "1-cd"])
async def test_a_sound_session_of_another_epoch_is_left(lua: Scripts, epoch: str) -> None:
    before = await broken(lua, [])
    assert await lua.run("quarantine", **ASIDE | {"epoch": epoch}) == 0
    assert await lua.read_namespace() == before


@pytest.mark.parametrize("epoch", ["-", "1-ab"])
async def test_the_second_of_two_callers_spares_the_fresh_session(lua: Scripts, epoch: str) -> None:
    await broken(lua, BROKEN["state is a string"])
    assert await lua.run("quarantine", **ASIDE | {"epoch": epoch}) == 3
    assert await lua.run("quarantine", **ASIDE | {"epoch": epoch}) == 0
    await lua.append("current", nonce="fe")
    before = await lua.read_namespace()
    assert await lua.run("quarantine", **ASIDE | {"epoch": epoch}) == 0
    assert await lua.read_namespace() == before


async def test_without_a_session_nothing_is_renamed(lua: Scripts) -> None:
    assert await lua.run("quarantine", **ASIDE) == 0
    assert await lua.read_namespace() == {}
