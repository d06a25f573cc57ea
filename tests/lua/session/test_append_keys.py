"""append.lua, raw, with the first four of its keys: it does the same as with all of them, or refuses."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.exceptions import ResponseError
from support.raw_scripts import NOW_MS, Scripts, counters

LATER_MS = NOW_MS + 5_000
# Counters of a session of three messages; None for a session that does not exist.
NEED_ALL_KEYS: dict[str, bytes | None] = {
    "missing": None,
    "chosen for eviction": counters(3, 10) + b" idle",
    "summarised or pruned": counters(3, 10).replace(b"v1 1 3", b"v1 2 4"),
    "with a time of its own": counters(3, 10) + b"~900000",
    "exempt from the limit": counters(3, 10) + b"~x",
}


@pytest.mark.parametrize("what", NEED_ALL_KEYS)
async def test_four_keys_are_refused_before_anything_is_written(lua: Scripts, what: str) -> None:
    if (changed := NEED_ALL_KEYS[what]) is not None:
        await lua.append("a", "b", "c")
        await lua.raw.hset(lua.key("state"), "counters", changed)
    before = await lua.read_namespace()
    for later_ms in (NOW_MS, LATER_MS):
        with pytest.raises(ResponseError, match=r"^KEYS all$"):
            await lua.append("d", token=b"token..2", now_ms=later_ms, keys_count=4)
    assert await lua.read_namespace() == before
    assert await lua.append("d", token=b"token..2", now_ms=LATER_MS)


steps = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from([0, 400, 5_000]), st.sampled_from(["", "p"]), st.integers(0, 3)),
    min_size=1,
    max_size=12,
)


# On the embedded store the examples take ten times as long, and the script is the same.
@pytest.mark.parametrize("store", ["real"], indirect=True)
@given(steps=steps)
async def test_four_keys_have_the_effect_of_all(lua: Scripts, steps: list[tuple[int, int, str, int]]) -> None:
    await lua.raw.delete(*(lua.key(name) for name in ("active", "overdue")))
    for session_id in ("few", "all"):
        await lua.raw.delete(*(lua.key(name, session_id) for name in ("messages", "state")))
        await lua.append("a", session_id=session_id)
    now_ms = NOW_MS
    for number, (count, pause_ms, plan, fresh) in enumerate(steps):
        now_ms += pause_ms
        asked: dict[str, Any] = {"now_ms": now_ms, "fresh": fresh, "sets": {"plan": plan} if plan else {}}
        asked |= {"token": b"%07d" % (number // 2), "window_limit": 100}
        few, whole = [
            await lua.append(*["m"] * count, session_id=session_id, keys_count=keys_count, **asked)
            for session_id, keys_count in (("few", 4), ("all", None))
        ]
        assert few == whole
    contents = [await _contents(lua, session_id) for session_id in ("few", "all")]
    assert contents[0] == contents[1]


async def _contents(lua: Scripts, session_id: str) -> list[Any]:
    """Return what the keys contain about a session, without the number of its epoch."""
    fields = await lua.fields(session_id)
    messages, state = lua.key("messages", session_id), lua.key("state", session_id)
    scores = [await lua.raw.zscore(lua.key(index), session_id) for index in ("active", "overdue")]
    expiries = [await lua.raw.pexpiretime(key) for key in (messages, state)]
    return [fields | {b"epoch": b""}, await lua.raw.lrange(messages, 0, -1), *scores, *expiries]


async def test_four_keys_refuse_what_all_refuse(lua: Scripts) -> None:
    await lua.append("a", "b")
    with pytest.raises(ResponseError, match=r"^CONFLICT 2"):
        await lua.append("c", token=b"token..2", expect="1", keys_count=4)
    with pytest.raises(ResponseError, match=r"^FULL 2"):
        await lua.append("c", token=b"token..2", window_limit=2, threshold=2, keys_count=4)
    assert await lua.append("c", token=b"token..2", keys_count=4) == counters(3, 20)
