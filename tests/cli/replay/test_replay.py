"""Replays on both stores: every difference is reported, other sessions stay untouched, the figures are right."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st
from support.transcripts import CHAT, chat, namespace_keys, write

import redismem.blocking
from redismem.store import agreement

AIRLINE = Path(__file__).parents[4] / "shared" / "data" / "airline.jsonl"


@pytest.mark.skipif(not AIRLINE.exists(), reason="the airline conversations are not on this machine")
def test_a_hundred_real_conversations_come_back_identical(command: Any, store_options: Any) -> None:
    ran = command("demo", "replay", AIRLINE, "--concurrency", 64, "--json", *store_options)
    found = ran.document
    assert (ran.code, ran.err) == (0, "")
    lines = [json.loads(line) for line in AIRLINE.read_text().splitlines()]
    assert found["sessions"] == len(lines) == 100
    assert found["identical_messages"] == found["messages"] == sum(len(line["messages"]) for line in lines)
    assert found["round_trips_per_turn"] == 1.0
    assert found["summaries"] >= sum(len(line["messages"]) > 16 for line in lines)
    assert (found["checked_sessions"], found["violations"]) == (100, 0)
    assert (found["bytes_per_message"] is None) == (not store_options)
    if store_options:
        assert found["stored_to_raw"] <= 1.5


def test_the_report_for_people(command: Any, store_options: Any, file: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreement, "_LOOK_AGAIN_S", 0)  # each created session checks the record, as after a second
    ran = command("demo", "replay", file, *store_options)
    assert (ran.code, ran.err) == (0, "")
    assert max(map(len, ran.out.splitlines())) <= 80
    for words in ("sessions", "turns per second", "latency p50", "latency p99"):
        assert words in ran.out
    assert re.search(r"round trips per turn +1\.000", ran.out)
    assert re.search(r"invariants +20 +sessions, 0 violations", ran.out)
    assert ("not available on this store" in ran.out) == (not store_options)
    assert "identical: all 140 messages" in ran.out


def test_a_turn_ends_with_each_user_message(command: Any, store_options: Any, file: Any) -> None:
    found = command("demo", "replay", file, "--json", *store_options).document
    assert (found["sessions"], found["messages"], found["turns"]) == (20, 140, 60)


def test_bad_lines_are_named_and_skipped(command: Any, store_options: Any, tmp_path: Path) -> None:
    long = [{"role": "user", "content": "x" * 9_000_000}]
    rows = [
        chat("good-1"),
        b"no json\n",
        {"messages": CHAT},
        b"\n",
        chat("bad id "),
        chat("good-1"),
        chat("good-2", []),
        chat("too-long", CHAT + long),
        chat("good-3"),
        b'{"session_id": "cut',
    ]
    file = write(tmp_path / "chats.jsonl", *rows)
    ran = command("demo", "replay", file, "--json", "--concurrency", 1, *store_options)
    found = ran.document
    assert ran.code == 1
    assert (found["sessions"], found["identical_messages"], found["good"]) == (2, 14, False)
    assert [problem["line"] for problem in found["problems"]] == [2, 3, 5, 6, 7, 8, 10]
    assert [line.split(":")[1] for line in ran.err.splitlines()] == [f" line {n}" for n in (2, 3, 5, 6, 7, 8, 10)]
    said = {problem["line"]: problem["problem"] for problem in found["problems"]}
    assert said[6] == "session good-1 repeats line 1"
    assert "over 8388608" in said[8]
    assert "xxx" not in ran.err


def test_a_transcript_longer_than_the_window_may_be_is_skipped_whole(
    command: Any, monkeypatch: pytest.MonkeyPatch, redis_server: Any, tmp_path: Path
) -> None:
    monkeypatch.setenv("REDISMEM_MAX_WINDOW_COUNT", "10")
    file = write(tmp_path / "chats.jsonl", chat("long", CHAT * 2), chat("short"))
    ran = command("demo", "replay", file, "--json", "--url", redis_server.url, "--namespace", "test-long")
    assert (ran.code, ran.document["sessions"]) == (1, 1)
    assert "may not grow" in ran.err
    left = namespace_keys(redis_server.url, "test-long")
    assert not any(b"long" in key.rpartition(b":")[2] for key in left)


def test_a_long_turn_is_sent_in_several_batches(
    command: Any, monkeypatch: pytest.MonkeyPatch, store_options: Any, tmp_path: Path
) -> None:
    monkeypatch.setenv("REDISMEM_MAX_BATCH_COUNT", "3")
    file = write(tmp_path / "chats.jsonl", chat("a", [{"role": "assistant", "content": str(n)} for n in range(10)]))
    found = command("demo", "replay", file, "--json", *store_options).document
    assert (found["turns"], found["good"]) == (4, True)


def test_an_empty_file_is_not_a_success(command: Any, tmp_path: Path) -> None:
    ran = command("demo", "replay", write(tmp_path / "empty.jsonl", b"\n"))
    assert ran.code == 1
    assert "nothing was replayed" in ran.out


def test_the_same_file_again_and_nothing_left(
    command: Any, redis_options: Any, file: Any, redis_server: Any, namespace: str
) -> None:
    for _ in range(2):
        assert command("demo", "replay", file, *redis_options).code == 0
    left = namespace_keys(redis_server.url, namespace)
    assert {key.rpartition(b":")[2] for key in left} == {b"namespace", b"fences"}


def test_sessions_that_exist_are_left_alone_unless_told_otherwise(
    command: Any, redis_options: Any, file: Any, redis_server: Any, namespace: str
) -> None:
    with redismem.blocking.Memory.connect(redis_server.url, namespace=namespace) as memory:
        memory.session("chat-3").append({"role": "user", "content": "alive"}, merge={"a": 1})
        memory.session("chat-4").merge({"b": 2})
        ran = command("demo", "replay", file, "--json", *redis_options)
        assert (ran.code, ran.document["sessions"]) == (1, 18)
        assert [problem["line"] for problem in ran.document["problems"]] == [4, 5]
        assert "already exists" in ran.err
        assert [message.content for message in memory.session("chat-3").messages()] == ["alive"]
        assert memory.session("chat-4").params() == {"b": 2}
        assert memory.count() == 2

        assert command("demo", "replay", file, "--keep", "--replace", "--yes", *redis_options).code == 0
        assert memory.count() == 20
        assert [message.to_openai() for message in memory.session("chat-3").messages()] == CHAT


def test_the_bytes_equal_memory_usage_of_redis(
    command: Any, redis_options: Any, file: Any, redis_server: Any, namespace: str
) -> None:
    found = command("demo", "replay", file, "--json", "--keep", "--no-summaries", *redis_options).document
    with redis.Redis.from_url(redis_server.url) as raw:
        keys = [
            key
            for key in namespace_keys(redis_server.url, namespace)
            if key.rpartition(b":")[2] not in (b"fences", b"namespace")
        ]
        assert found["stored_bytes"] == sum(raw.memory_usage(key, samples=0) for key in keys)
    assert found["bytes_per_message"] == round(found["stored_bytes"] / 140, 1)


FLOATS = st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | st.integers() | FLOATS | st.text(max_size=20)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)
MESSAGES = st.lists(
    st.builds(
        lambda payload, role: payload | {"role": role},
        st.dictionaries(st.sampled_from(["role", "content", "tool_calls", "name", "x"]), VALUES, max_size=4),
        st.sampled_from(["user", "assistant", "chatbot"]),
    )
    | st.builds(lambda role, content: {"role": role, "content": content}, st.sampled_from(["user", "tool"]), SCALARS),
    min_size=1,
    max_size=6,
)


@given(chats=st.lists(MESSAGES, min_size=1, max_size=3))
def test_any_json_in_a_transcript_comes_back_identical(
    command: Any, store_options: Any, tmp_path: Path, chats: Any
) -> None:
    file = write(tmp_path / "chats.jsonl", *(chat(f"chat-{n}", messages) for n, messages in enumerate(chats)))
    options = ("--replace", "--yes", "--concurrency", 2, "--namespace", "test-any-json")
    ran = command("demo", "replay", file, "--json", *options, *store_options)
    assert (ran.code, ran.err) == (0, "")
    assert ran.document["identical_messages"] == sum(map(len, chats))
