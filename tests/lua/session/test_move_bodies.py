"""move_bodies.lua and read_originals.lua, raw."""

from __future__ import annotations

from typing import Any

import pytest
from support.raw_scripts import EXPIRES_MS, MOVE_BODIES, Scripts, counters, stored_element


def moved(place: int = 1, content: str = "b", **changed: Any) -> list[Any]:
    """Return the arguments about one message; `changed` replaces some."""
    element = stored_element(content)
    return list(
        {"place": place, "size": len(element), "stamp": element[-9:], "field": "b2", "new": b"note", **changed}.values()
    )


async def test_the_whole_message_is_in_the_originals_and_the_shorter_one_in_its_place(lua: Scripts) -> None:
    await lua.append("a", "b", "c")
    assert await lua.run("move_bodies", *moved(), **MOVE_BODIES) == 1
    assert await lua.raw.lrange(lua.key("messages"), 0, -1) == [stored_element("a"), b"note", stored_element("c")]
    assert await lua.raw.hgetall(lua.key("originals")) == {b"b2": stored_element("b")}
    assert await lua.raw.pexpiretime(lua.key("originals")) == EXPIRES_MS
    assert (await lua.fields())[b"counters"] == counters(3, 1) + b"~b"
    assert (await lua.fields())[b"edited"] == b"e1"
    before = await lua.read_namespace()
    assert await lua.run("move_bodies", *moved(), **MOVE_BODIES) == 1, "sent again"
    assert await lua.read_namespace() == before


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"epoch": "1-cd"}, moved()),
        ({"first_seq": 2}, moved()),
        ({"edited": "e0"}, moved()),
        ({}, moved(place=7)),
        ({}, moved(size=1)),
        ({}, moved(stamp=b"\xcf\0\0\0\0\0\0\0\0")),
    ],
)
async def test_a_window_that_has_changed_is_left(lua: Scripts, changed: dict[str, Any], message: list[Any]) -> None:
    await lua.append("a", "b", "c")
    before = await lua.read_namespace()
    assert await lua.run("move_bodies", *message, **MOVE_BODIES | changed) == 0
    assert await lua.read_namespace() == before


async def test_a_policy_and_its_change_keep_the_mark(lua: Scripts) -> None:
    await lua.append("a", "b", new_policy="~w")
    assert await lua.run("move_bodies", *moved(), **MOVE_BODIES) == 1
    assert (await lua.fields())[b"counters"].endswith(b"~bw")
    for policy, expected in (("~x5000", b"~bx5000"), ("", b"~b")):
        await lua.run("set_policy", now_ms=EXPIRES_MS - 1000, kept_ms=9000, new_policy=policy)
        assert (await lua.fields())[b"counters"].endswith(expected)


async def test_a_check_reads_no_bodies(lua: Scripts) -> None:
    await lua.raw.hset(lua.key("originals"), mapping={"b2": b"body", "0": b"block", "s0": b"signature"})
    reply = await lua.run("read_originals")
    pairs = dict(zip(reply[::2], reply[1::2], strict=True))
    assert pairs == {b"b2": b"", b"0": b"block", b"s0": b"signature"}
