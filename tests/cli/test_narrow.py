"""On a narrow terminal, an id of the usual length stays on one line, so that it can be copied."""

from __future__ import annotations

from typing import Any

import pytest
import redis

import redismem.blocking
from redismem.protocol import layout

IDS = [f"0192a4c3-7d1e-7b33-9c1f-0000000000{number:02d}" for number in range(3)]


@pytest.fixture
def memory(redis_server: Any, namespace: str) -> Any:
    with redismem.blocking.Memory.connect(redis_server.url, namespace=namespace) as memory:
        for session_id in IDS:
            memory.session(session_id).append(*({"role": "user", "content": "x"} for _ in range(12)), waiting="city")
        yield memory


@pytest.fixture
def raw(redis_server: Any) -> Any:
    with redis.Redis(port=redis_server.port) as raw:
        yield raw


@pytest.mark.parametrize("columns", [40, 60, 80, 120, 200])
@pytest.mark.parametrize("words", [("list",), ("list", "dead"), ("doctor", "--deep"), ("show", IDS[0])], ids=" ".join)
def test_a_uuid_stays_on_one_line(
    command: Any, memory: Any, redis_options: Any, raw: Any, monkeypatch: pytest.MonkeyPatch, columns: int, words: Any
) -> None:
    for session_id in IDS:
        keys = memory.store.keys.session(session_id)
        if words[-1] == "dead":
            raw.zadd(keys.shard.dead, {session_id: 1_700_000_000_000})
        if words[0] == "doctor":
            raw.hset(keys.state, layout.QUEUED, "leased")
    monkeypatch.setenv("COLUMNS", str(columns))
    ran = command(*words, *redis_options)
    expected = IDS[:1] if words[0] == "show" else IDS
    for session_id in expected:
        assert any(session_id in line for line in ran.out.splitlines()), ran.out
    table = [line for line in ran.out.splitlines() if not line.startswith(("3 ", "more:", "`redismem", "and "))]
    assert max(map(len, table)) <= max(columns, 80)
    if words[0] != "show":
        for told in {"list": ("12", "city"), "dead": ("12",), "--deep": ("I",)}[words[-1]]:
            assert told in ran.out


def test_a_wide_terminal_shows_a_table(command: Any, memory: Any, redis_options: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    heading, *rows = command("list", *redis_options).out.splitlines()
    assert heading.split()[:2] == ["session", "active"]
    assert {row.split()[0] for row in rows[:3]} == set(IDS)
