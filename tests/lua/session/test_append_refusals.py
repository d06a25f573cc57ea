"""append.lua, raw: refusals write nothing."""

from __future__ import annotations

from typing import Any

import pytest
from redis.exceptions import ResponseError
from support.raw_scripts import EXPIRES_MS, NOW_MS, Scripts, counters


async def test_a_window_of_another_length_than_the_counters_is_reported(lua: Scripts) -> None:
    await lua.append("a", "b")
    await lua.raw.lpop(lua.key("messages"))
    assert await lua.append("c", token=b"token..2") == [counters(2, 10), b"1-ab", 1]
    await lua.raw.delete(lua.key("messages"))
    assert await lua.append("d", token=b"token..3") == [counters(2, 10), b"1-ab", 0]
    assert not await lua.raw.exists(lua.key("messages"))
    assert await lua.raw.hget(lua.key("state"), "counters") == counters(2, 10)
    await lua.raw.rpush(lua.key("messages"), "a", "b", "c")
    assert await lua.append("e", token=b"token..4") == [counters(2, 10), b"1-ab", 3]


REFUSED: dict[str, dict[str, Any]] = {
    "CONFLICT 2": {"expect": "1"},
    "CONFLICT 2 ": {"expect": "0"},
    "FULL 2": {"window_limit": 2, "threshold": 2},
    "PARAMS 2": {"params_limit": 1, "sets": {"param:x": "1", "param:y": "2"}},
}


@pytest.mark.parametrize("word", REFUSED)
async def test_a_refusal_comes_before_anything_is_written(lua: Scripts, word: str) -> None:
    await lua.append("a", "b", sets={"param:a": "1"})
    before = await lua.read_namespace()
    with pytest.raises(ResponseError, match=f"^{word.strip()}"):
        await lua.append("c", token=b"token..2", now_ms=NOW_MS + 10**7, drops=["param:a"], **REFUSED[word])
    assert await lua.read_namespace() == before
    assert await lua.append("c", token=b"token..2") == counters(3, 20)


async def test_nothing_is_created_by_a_refusal(lua: Scripts) -> None:
    for changed in (
        {"expect": "1"},
        {"window_limit": 0, "threshold": 0},
        {"params_limit": 1, "sets": {"param:a": "1", "param:b": "2"}},
    ):
        with pytest.raises(ResponseError):
            await lua.append("c", **changed)
    assert await lua.read_namespace() == {}


FOREIGN: dict[str, list[tuple[Any, ...]]] = {
    "state is a string": [("SET", "state", "x")],
    "state is a list": [("RPUSH", "state", "x")],
    "state has no counters": [("HSET", "state", "foreign", "1")],
    "state has an epoch only": [("HSET", "state", "epoch", "1-ab")],
    "state counts in words": [("HSET", "state", "epoch", "1-ab", "counters", "one two three four five")],
    "state counts nothing": [("HSET", "state", "epoch", "1-ab", "counters", "")],
    "messages without a state": [("RPUSH", "messages", "x")],
    "messages are a hash": [("HSET", "messages", "x", "y")],
    "messages are a string, under a state": [("APPEND", "messages"), ("DEL", "messages"), ("SET", "messages", "x")],
    "messages are a hash, under a state": [("APPEND", "messages"), ("DEL", "messages"), ("HSET", "messages", "x", "y")],
}

FOREIGN["the counters are missing"] = [("APPEND", "messages"), ("HDEL", "state", "counters")]

for number, (what, foreign) in enumerate(
    (("no number", b"x"), ("below zero", b"-1"), ("a fraction", b"1.5"), ("1e15", b"1e+15"), ("empty", b""))
):
    sound = [b"1", b"1", b"10", b"%d" % NOW_MS, b"%d" % EXPIRES_MS]
    broken = b" ".join([b"v1", *sound[:number], foreign, *sound[number + 1 :]])
    FOREIGN[f"counter {number} is {what}"] = [("APPEND", "messages"), ("HSET", "state", "counters", broken)]
    fewer = b" ".join([b"v1", *sound[:number], *sound[number + 1 :]])
    FOREIGN[f"counter {number} is missing"] = [("APPEND", "messages"), ("HSET", "state", "counters", fewer)]

FOREIGN["no layout version"] = [("APPEND", "messages"), ("HSET", "state", "counters", counters(1, 10)[3:])]

FOREIGN["a counter too many"] = [("APPEND", "messages"), ("HSET", "state", "counters", counters(1, 10) + b" 6")]

# An append without messages does not access the list.
FOREIGN_CALLS = [(what, ["c"]) for what in FOREIGN] + [(what, []) for what in FOREIGN if "under" not in what]


@pytest.mark.parametrize(("what", "contents"), FOREIGN_CALLS)
async def test_foreign_keys_are_refused_and_left_as_they_are(lua: Scripts, what: str, contents: list[str]) -> None:
    for command, key, *rest in FOREIGN[what]:
        if command == "APPEND":
            await lua.append("a")
        else:
            await lua.raw.execute_command(command, lua.key(key), *rest)
    before = await lua.read_namespace()
    with pytest.raises(ResponseError, match=r"^(CORRUPT|WRONGTYPE)"):
        await lua.append(*contents, token=b"token..2", sets={"plan": "p"}, now_ms=NOW_MS + 10**7)
    assert await lua.read_namespace() == before
