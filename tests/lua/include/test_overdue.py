"""The rule for an overdue window in Lua and in Python gives the same answer."""

from __future__ import annotations

from pathlib import Path

import redis
from hypothesis import example, given
from hypothesis import strategies as st
from support.redis_server import RedisServer

from redismem import Settings
from redismem.protocol import scripts
from redismem.protocol.appends import append_limits
from redismem.protocol.keys import Keys
from redismem.protocol.queue.calls import QueueCalls

LUA = Path(__file__).parents[3] / "lua"
SCRIPT = """
local window_count, window_tokens, threshold, token_limit, recent_limit = unpack(ARGV)
window_count = tonumber(window_count)
--- @include overdue
return is_overdue and 1 or 0
"""
KEYS = Keys("n", 1).session("s")


@st.composite
def limits(draw: st.DrawFn) -> Settings:
    threshold = draw(st.integers(1, 60))
    return Settings(
        threshold=threshold,
        recent_limit=draw(st.integers(1, threshold)),
        threshold_tokens=draw(st.integers(0, 200) | st.integers(0, 100_000_000)),
        max_window_count=draw(st.integers(max(10, threshold), 70)),
        strategy=draw(st.sampled_from(["summarize", "trim", "none"])),
    )


@st.composite
def cases(draw: st.DrawFn) -> tuple[Settings, int, int]:
    """Draw numbers on both sides of every limit, and arbitrary ones."""
    known = draw(limits())
    edges = (known.threshold, known.recent_limit, known.max_window_count)
    count = draw(st.sampled_from(edges).flatmap(lambda edge: st.integers(max(0, edge - 1), edge + 1)))
    near = st.integers(max(0, known.threshold_tokens - 1), known.threshold_tokens + 1)
    return known, draw(st.integers(0, 80) | st.just(count)), draw(near | st.integers(0, 2**53))


@given(case=cases())
@example(case=(Settings(threshold=5, recent_limit=3, threshold_tokens=25), 4, 26))
@example(case=(Settings(threshold=5, recent_limit=3, threshold_tokens=25), 3, 26))
@example(case=(Settings(threshold=5, recent_limit=3), 6, 0))
def test_lua_and_python_agree_on_any_window(redis_server: RedisServer, case: tuple[Settings, int, int]) -> None:
    """The script runs with the real arguments of a claim and of an append."""
    known, count, tokens = case
    named = QueueCalls(KEYS, known).claim().named or {}
    limits = [named[name] for name in ("threshold", "token_limit", "recent_limit")]
    assert [str(each).encode() for each in limits] == append_limits(known).text.split()[1:4]
    with redis.Redis(port=redis_server.port) as client:
        told = client.eval(scripts.resolve_includes(SCRIPT, LUA / "include"), 0, count, tokens, *limits)
    assert bool(told) == known.is_overdue(count, tokens)


def test_the_rule_is_written_once_in_the_scripts() -> None:
    texts = {path.relative_to(LUA).as_posix(): path.read_text() for path in LUA.rglob("*.lua")}
    assert [name for name, text in texts.items() if "tonumber(threshold)" in text] == ["include/overdue.lua"]
    assert {name for name, text in texts.items() if "--- @include overdue\n" in text} == {
        "include/append_checks.lua",
        "session/edit.lua",
        "queue/claim.lua",
        "queue/commit.lua",
    }
