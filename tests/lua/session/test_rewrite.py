"""rewrite.lua, raw: what it writes, and sessions that it must not change. The model check covers the rest."""

from __future__ import annotations

from typing import Any

import pytest
from redis.exceptions import ResponseError
from support.raw_scripts import NOW_MS, REWRITE, Scripts, counters, element, stored_element

POP: dict[str, Any] = REWRITE | {"sizes": "1 2 0 1", "left": "4+1-2"}
"""Removes b and c, as a pop does; a pinned message and a gap follow a."""


async def test_what_follows_takes_the_place_of_the_newest(lua: Scripts) -> None:
    await lua.append("a", "b", "c")
    assert await lua.run("rewrite", "gap", element("d"), element("e"), **REWRITE) == counters(5, 4) + b"+1-1@1-ab"
    window = [stored_element("a"), b"gap", stored_element("d"), stored_element("e")]
    assert await lua.raw.lrange(lua.key("messages"), 0, -1) == window
    fields = await lua.fields()
    assert (fields[b"counters"], fields[b"edited"]) == (counters(5, 4) + b"+1-1", b"e1")


async def test_without_messages_one_seq_is_taken(lua: Scripts) -> None:
    await lua.append("a", "b", "c")
    assert await lua.run("rewrite", "pinned", "gap", **POP) == counters(4, 4) + b"+1-2@1-ab"
    assert await lua.raw.lrange(lua.key("messages"), 0, -1) == [stored_element("a"), b"pinned", b"gap"]


async def test_a_rewrite_of_everything_keeps_the_expiry(lua: Scripts) -> None:
    await lua.append("a", "b", "c")
    expires_ms = await lua.raw.pexpiretime(lua.key("messages"))
    assert await lua.run("rewrite", "gap", **POP | {"sizes": "0 1 0 0"}) != 0
    assert await lua.raw.lrange(lua.key("messages"), 0, -1) == [b"gap"]
    assert await lua.raw.pexpiretime(lua.key("messages")) == expires_ms


async def test_thousands_of_elements_are_pushed(lua: Scripts) -> None:
    await lua.append("a", "b", "c")
    restored = [b"%d" % number for number in range(9000)]
    assert await lua.run("rewrite", *restored, **POP | {"sizes": "1 9000 0 1"}) != 0
    assert await lua.raw.lrange(lua.key("messages"), 0, -1) == [stored_element("a"), *restored]


async def test_a_window_that_grows_too_long_is_refused_and_one_that_is_too_long_gets_overdue(lua: Scripts) -> None:
    await lua.append("a", "b", "c")
    before = await lua.read_namespace()
    with pytest.raises(ResponseError, match=r"^FULL 3$"):
        await lua.run("rewrite", "gap", element("d"), **REWRITE | {"sizes": "1 1 1 21"})
    with pytest.raises(ResponseError, match=r"^PINS 1 900 3 800"):
        await lua.run("rewrite", "gap", element("d"), **REWRITE | {"pins": "1,900,3,800"})
    assert await lua.read_namespace() == before
    assert await lua.run("rewrite", "gap", element("d"), **REWRITE | {"sizes": "1 1 1 9"}) != 0
    assert await lua.raw.zscore(lua.key("overdue"), "s") == NOW_MS


async def test_a_resent_rewrite_is_recognised_as_the_same_call(lua: Scripts) -> None:
    await lua.append("a", "b", "c")
    assert await lua.run("rewrite", "gap", element("d"), element("e"), **REWRITE) != 0
    before = await lua.read_namespace()
    again = [counters(5, 4) + b"+1-1", 4, 5, 0, 0, b"1-ab"]
    assert await lua.run("rewrite", "gap", element("d"), element("e"), **REWRITE) == again
    another = REWRITE | {"token": b"rewriteANOTHERone"}
    again[4] = 1
    assert await lua.run("rewrite", "gap", element("d"), element("e"), **another) == again, "a duplicate"
    assert await lua.read_namespace() == before


@pytest.mark.parametrize(
    "changed",
    [
        *({"epoch": "2-ab"}, {"first_seq": 2}, {"last_seq": 2}, {"last_seq": 4}, {"edited": "e0"}),
        *({"newest": stored_element("x")}, {"newest": stored_element("b")}, {"newest": element("c")}, {"newest": b""}),
    ],
)
async def test_a_session_changed_since_the_read_is_left(lua: Scripts, changed: dict[str, Any]) -> None:
    await lua.append("a", "b", "c")
    before = await lua.read_namespace()
    assert await lua.run("rewrite", "gap", **REWRITE | changed) == 0
    assert await lua.read_namespace() == before


async def test_the_same_text_at_another_time_is_another_message(lua: Scripts) -> None:
    """A failover has lost the last message, and another writer has appended an equal one."""
    await lua.append("a", "b")
    await lua.append("c", token=b"token..2", now_ms=NOW_MS + 1)
    before = await lua.read_namespace()
    assert await lua.run("rewrite", "gap", **REWRITE) == 0
    assert await lua.read_namespace() == before


@pytest.mark.parametrize("name", ["state", "messages"])
async def test_a_key_of_a_foreign_type_and_a_missing_session_are_left(lua: Scripts, name: str) -> None:
    assert await lua.run("rewrite", "gap", **REWRITE) == 0
    await lua.append("a", "b", "c")
    await lua.raw.set(lua.key(name), "x")
    before = await lua.read_namespace()
    with pytest.raises(ResponseError, match=r"^WRONGTYPE"):
        await lua.run("rewrite", "gap", **REWRITE)
    assert await lua.read_namespace() == before


async def test_a_window_of_another_length_is_refused(lua: Scripts) -> None:
    await lua.append("a", "b", "c")
    await lua.raw.lpop(lua.key("messages"))
    with pytest.raises(ResponseError, match=r"^CORRUPT"):
        await lua.run("rewrite", "gap", **REWRITE)


CUT: dict[str, Any] = REWRITE | {"committed": "9-f", "next_seq": 1, "block": 1, "sizes": "0 2 0 2", "more": "1 3"}
"""The window begins at 1 again; two fields go, one is set, and block 1 loses its end."""


async def test_summaries_and_originals_are_cut_with_the_window(lua: Scripts) -> None:
    await lua.append("a", "b", "c")
    state, originals = lua.key("state"), lua.key("originals")
    await lua.raw.hset(state, mapping={"committed": "9-f", "summary:1": "x", "summaries_count": 2, "sketch": "words"})
    blocks = {f"{kind}{number}": "old" for kind in ("", "s", "v") for number in (0, 1, 2, 10)}
    await lua.raw.hset(originals, mapping=blocks)
    expires_ms = await lua.raw.pexpiretime(state)
    await lua.raw.pexpireat(originals, expires_ms)
    tail = ("back", "gap", "summaries_count", "1", "summary:1", "sketch", "committed", "1", "rest", "s1", "of it")
    before = await lua.read_namespace()
    assert await lua.run("rewrite", *tail, **CUT | {"committed": "8-f"}) == 0, "summarised since"
    assert await lua.read_namespace() == before
    assert await lua.run("rewrite", *tail, **CUT) != 0
    fields = await lua.fields()
    assert fields[b"summaries_count"] == b"1"
    assert not fields.keys() & {b"summary:1", b"sketch", b"committed"}
    assert await lua.raw.lrange(lua.key("messages"), 0, -1) == [b"back", b"gap"]
    kept = dict.fromkeys(("0", "s0", "v0"), "old") | {"1": "rest", "s1": "of it"}
    assert await lua.raw.hgetall(originals) == {name.encode(): value.encode() for name, value in kept.items()}
    assert await lua.raw.pexpiretime(originals) == expires_ms
