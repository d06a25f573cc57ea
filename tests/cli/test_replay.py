"""Replays: identical or said so, on both stores; nothing of anybody else's is touched; the figures are true."""

import json
import re
from pathlib import Path

import pytest
import redis
from cli.running import Between
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import redismem.blocking
from redismem.errors import ServerError
from redismem.protocol.call import Call
from redismem.protocol.scripts import load

AIRLINE = Path(__file__).parents[3] / "shared" / "data" / "airline.jsonl"
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1.0'}}
CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": '{"n": null}', "more": [1, 1.0, True, None, 2**70]},
    {"role": "assistant", "content": "Done."},
    {"role": "user", "content": "Thanks"},
    {"role": "assistant", "content": ""},
]


def write(path: Path, *rows: object) -> Path:
    path.write_bytes(b"".join(row if isinstance(row, bytes) else json.dumps(row).encode() + b"\n" for row in rows))
    return path


def chat(session_id: str, messages: list = CHAT) -> dict:
    return {"session_id": session_id, "messages": messages}


@pytest.fixture
def file(tmp_path):
    return write(tmp_path / "chats.jsonl", *(chat(f"chat-{number}") for number in range(20)))


def namespace_keys(url: str, namespace: str) -> set[bytes]:
    with redis.Redis.from_url(url) as raw:
        return set(raw.scan_iter(match=f"rm:{{{namespace}[:}}]*", count=1000))


@pytest.mark.skipif(not AIRLINE.exists(), reason="the airline conversations are not on this machine")
def test_a_hundred_real_conversations_come_back_identical(command, where):
    ran = command("replay", AIRLINE, "--concurrency", 64, "--json", *where)
    found = ran.document
    assert (ran.code, ran.err) == (0, "")
    lines = [json.loads(line) for line in AIRLINE.read_text().splitlines()]
    assert found["sessions"] == len(lines) == 100
    assert found["identical_messages"] == found["messages"] == sum(len(line["messages"]) for line in lines)
    assert found["round_trips_per_turn"] == 1.0
    assert found["summaries"] >= sum(len(line["messages"]) > 16 for line in lines)
    assert (found["checked_sessions"], found["violations"]) == (100, 0)
    assert (found["bytes_per_message"] is None) == (not where)
    if where:
        assert found["stored_to_raw"] <= 1.5


def test_the_report_for_people(command, where, file):
    ran = command("replay", file, *where)
    assert (ran.code, ran.err) == (0, "")
    assert max(map(len, ran.out.splitlines())) <= 80
    for words in ("sessions", "turns a second", "latency p50", "latency p99"):
        assert words in ran.out
    assert re.search(r"round trips a turn +1\.000", ran.out)
    assert re.search(r"invariants +20 +sessions checked against them: 0 violations", ran.out)
    assert ("this store cannot tell" in ran.out) == (not where)
    assert "identical: all 140 messages" in ran.out


def test_a_turn_is_cut_behind_each_user_message(command, where, file):
    found = command("replay", file, "--json", *where).document
    assert (found["sessions"], found["messages"], found["turns"]) == (20, 140, 60)


def test_bad_lines_are_named_and_skipped(command, where, tmp_path):
    long = [{"role": "user", "content": "x" * 2_000_000}]
    rows = [
        chat("good-1"),
        b"no json\n",
        {"messages": CHAT},
        b"\n",
        chat("bad id"),
        chat("good-1"),
        chat("good-2", []),
        chat("too-long", CHAT + long),
        chat("good-3"),
        b'{"session_id": "cut',
    ]
    file = write(tmp_path / "chats.jsonl", *rows)
    ran = command("replay", file, "--json", "--concurrency", 1, *where)
    found = ran.document
    assert ran.code == 1
    assert (found["sessions"], found["identical_messages"], found["good"]) == (2, 14, False)
    assert [problem["line"] for problem in found["problems"]] == [2, 3, 5, 6, 7, 8, 10]
    assert [line.split(":")[1] for line in ran.err.splitlines()] == [f" line {n}" for n in (2, 3, 5, 6, 7, 8, 10)]
    said = {problem["line"]: problem["problem"] for problem in found["problems"]}
    assert said[6] == "session good-1 again, it was on line 1"
    assert "over 1048576" in said[8]
    assert "xxx" not in ran.err


def test_a_transcript_longer_than_the_window_may_be_is_skipped_whole(command, monkeypatch, redis_server, tmp_path):
    monkeypatch.setenv("REDISMEM_MAX_WINDOW_COUNT", "10")
    file = write(tmp_path / "chats.jsonl", chat("long", CHAT * 2), chat("short"))
    ran = command("replay", file, "--json", "--url", redis_server.url, "--namespace", "test-long")
    assert (ran.code, ran.document["sessions"]) == (1, 1)
    assert "may not grow" in ran.err
    left = namespace_keys(redis_server.url, "test-long")
    assert not any(b"long" in key.rpartition(b":")[2] for key in left)


def test_a_long_turn_is_sent_in_several_batches(command, monkeypatch, where, tmp_path):
    monkeypatch.setenv("REDISMEM_MAX_BATCH_COUNT", "3")
    file = write(tmp_path / "chats.jsonl", chat("a", [{"role": "assistant", "content": str(n)} for n in range(10)]))
    found = command("replay", file, "--json", *where).document
    assert (found["turns"], found["good"]) == (4, True)


def test_an_empty_file_is_not_a_success(command, tmp_path):
    ran = command("replay", write(tmp_path / "empty.jsonl", b"\n"))
    assert ran.code == 1
    assert "nothing was replayed" in ran.out


def test_the_same_file_again_and_nothing_left(command, here, file, redis_server, namespace):
    for _ in range(2):
        assert command("replay", file, *here).code == 0
    left = namespace_keys(redis_server.url, namespace)
    assert {key.rpartition(b":")[2] for key in left} == {b"namespace", b"fences"}


def test_sessions_that_exist_are_left_alone_unless_told_otherwise(command, here, file, redis_server, namespace):
    with redismem.blocking.Memory.connect(redis_server.url, namespace=namespace) as memory:
        memory.session("chat-3").append({"role": "user", "content": "alive"}, merge={"a": 1})
        memory.session("chat-4").merge({"b": 2})
        ran = command("replay", file, "--json", *here)
        assert (ran.code, ran.document["sessions"]) == (1, 18)
        assert [problem["line"] for problem in ran.document["problems"]] == [4, 5]
        assert "exists already" in ran.err
        assert [message.content for message in memory.session("chat-3").messages()] == ["alive"]
        assert memory.session("chat-4").params() == {"b": 2}
        assert memory.count() == 2

        assert command("replay", file, "--keep", "--replace", *here).code == 0
        assert memory.count() == 20
        assert [message.to_openai() for message in memory.session("chat-3").messages()] == CHAT


def test_the_bytes_are_those_that_redis_names(command, here, file, redis_server, namespace):
    found = command("replay", file, "--json", "--keep", "--no-summaries", *here).document
    with redis.Redis.from_url(redis_server.url) as raw:
        keys = [
            key
            for key in namespace_keys(redis_server.url, namespace)
            if key.rpartition(b":")[2] not in (b"fences", b"namespace")
        ]
        assert found["stored_bytes"] == sum(raw.memory_usage(key, samples=0) for key in keys)
    assert found["bytes_per_message"] == round(found["stored_bytes"] / 140, 1)


class Changes(Between):
    """Gives back a message that was not put in: 1.0 became 1."""

    async def passed(self, commands, answers):
        def changed(answer):
            if isinstance(answer, bytes):
                return answer.replace(b"\xcb\x3f\xf0" + bytes(6), b"\xd3" + bytes(7) + b"\x01")
            return [changed(each) for each in answer] if isinstance(answer, list) else answer

        return changed(answers)


def test_what_does_not_come_back_identical_is_found_and_kept(command, intercept, here, tmp_path, redis_server):
    messages = [{"role": "user", "content": "a", "n": 1.0}]
    file = write(tmp_path / "chats.jsonl", chat("same"), chat("changed", messages))
    intercept(Changes)
    ran = command("replay", file, *here)
    assert ran.code == 1
    assert "line 2: session changed: message 1 is not what the file says" in ran.err
    assert "7 of 8 messages identical" in ran.out
    kept = namespace_keys(redis_server.url, here[-1])
    assert {key.rpartition(b":")[2] for key in kept} == {b"namespace", b"fences", b"active", b"changed"}


LONG = [*CHAT * 3, *({"role": "user", "content": f"Order {n}, please."} for n in range(9))]


@pytest.fixture
def long_file(tmp_path):
    """Ten conversations that need a summary, and one that does not."""
    return write(tmp_path / "long.jsonl", *(chat(f"long-{n}", LONG) for n in range(10)), chat("short"))


def test_a_replay_ends_with_summaries_and_every_message_is_still_there(command, where, long_file):
    ran = command("replay", long_file, "--json", *where)
    found = ran.document
    assert (ran.code, ran.err, found["good"]) == (0, "", True)
    assert found["summaries"] == 10
    assert found["covered_messages"] == 10 * (len(LONG) - 6)
    assert found["identical_messages"] == 10 * len(LONG) + len(CHAT)
    assert (found["checked_sessions"], found["violations"]) == (11, 0)
    assert re.search(r"summaries +10 +of 240 messages", command("replay", long_file, *where).out)


def test_what_a_replay_leaves_is_summarised_and_sound(command, here, long_file, redis_server, namespace):
    assert command("replay", long_file, "--keep", *here).code == 0
    checked = command("check", "--json", *here).document
    assert (checked["sessions_count"], checked["good"]) == (11, True)
    with redismem.blocking.Memory.connect(redis_server.url, namespace=namespace) as memory:
        context = memory.session("long-3").read()
        assert [(each.first_seq, each.last_seq) for each in context.summaries] == [(1, len(LONG) - 6)]
        assert len(context.messages) == 6
        originals = memory.session("long-3").messages(include_originals=True)
        assert [each.to_openai() for each in originals] == LONG


def test_without_summaries_the_sessions_stay_as_they_are(command, here, long_file, redis_server, namespace):
    found = command("replay", long_file, "--keep", "--no-summaries", "--json", *here).document
    assert (found["summaries"], found["covered_messages"], found["good"]) == (0, 0, True)
    with redismem.blocking.Memory.connect(redis_server.url, namespace=namespace) as memory:
        assert memory.session("long-3").info().queued == "overdue"


def test_only_sessions_of_the_file_are_summarised(command, here, long_file, redis_server, namespace):
    with redismem.blocking.Memory.connect(redis_server.url, namespace=namespace) as memory:
        memory.session("other").append(*LONG)
        assert command("replay", long_file, *here).code == 0
        assert memory.session("other").info().queued == "overdue"


class MiscountsTokens(Between):
    """What is stored of the third conversation does not add up."""

    async def passed(self, commands, answers):
        if commands[0][0] == "EVALSHA" and commands[0][1] == load("commit").sha and b"long-3" in commands[0]:
            state = self.memory.store.keys.session("long-3").state
            counters = await self.memory.store.run(Call(None, (("HGET", state, "counters"),), bytes.split))
            counters[3] = b"%d" % (int(counters[3]) + 1)
            await self.memory.store.run(Call(None, (("HSET", state, "counters", b" ".join(counters)),), int))
        return answers


def test_a_session_that_breaks_an_invariant_is_reported_and_kept(command, intercept, here, long_file, redis_server):
    intercept(MiscountsTokens)
    ran = command("replay", long_file, "--json", *here)
    assert (ran.code, ran.document["violations"]) == (1, 1)
    assert ran.document["identical_messages"] == ran.document["messages"]
    assert "line 4: session long-3: I10: " in ran.err
    left = {key.rpartition(b":")[2] for key in namespace_keys(redis_server.url, here[-1])}
    assert left == {b"namespace", b"fences", b"active", b"long-3"}


class CommitsLate(Between):
    """A worker whose lease was taken over."""

    async def run(self, commands, timeout_s, script=None):
        if commands[0][0] == "EVALSHA" and commands[0][1] == load("commit").sha and b"long-3" in commands[0]:
            return [b"fenced"]
        return await self._inner.run(commands, timeout_s, script)


def test_a_summary_that_was_not_made_is_reported(command, intercept, where, namespace, long_file):
    intercept(CommitsLate)
    ran = command("replay", long_file, "--json", "--namespace", namespace, *where)
    assert (ran.code, ran.document["summaries"]) == (1, 9)
    assert "line 4: session long-3: not summarised: fenced" in ran.err
    assert ran.document["identical_messages"] == ran.document["messages"]


class WritesToo(Between):
    """Somebody else writes to a session between the turns of a replay."""

    async def run(self, commands, timeout_s, script=None):
        answers = await self._inner.run(commands, timeout_s, script)
        if len(commands) > 1 and b"chat-3" in commands[0] and isinstance(answers[0], list) and answers[0][3] == 1:
            await self.memory.session("chat-3").append({"role": "user", "content": "me too"})
        return answers


def test_a_session_that_somebody_else_writes_to_is_left_as_it_is(command, intercept, here, file, redis_server):
    intercept(WritesToo)
    ran = command("replay", file, "--json", *here)
    assert (ran.code, ran.document["sessions"]) == (1, 19)
    assert "line 4: session chat-3: somebody else writes to it" in ran.err
    left = namespace_keys(redis_server.url, here[-1])
    assert sum(key.endswith(b":chat-3") for key in left) == 2


class RunsFull(Between):
    """A server that has no more memory after a while."""

    appends = 0

    async def run(self, commands, timeout_s, script=None):
        if commands[0][0] == "EVALSHA" and len(commands) > 1:
            self.appends += 1
            if self.appends > 30:
                raise ServerError("OOM", "OOM")
        return await self._inner.run(commands, timeout_s, script)


def test_a_server_that_stops_taking_writes_ends_it_and_leaves_nothing(command, intercept, here, file, redis_server):
    intercept(RunsFull)
    ran = command("replay", file, "--concurrency", 4, *here)
    assert ran.code == 1
    assert "OOM" in ran.complaint
    left = namespace_keys(redis_server.url, here[-1])
    assert {key.rpartition(b":")[2] for key in left} == {b"namespace", b"fences"}


FLOATS = st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | st.integers() | FLOATS | st.text(max_size=20)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)
MESSAGES = st.lists(
    st.dictionaries(st.sampled_from(["role", "content", "tool_calls", "name", "x"]), VALUES, max_size=4)
    | st.builds(lambda role, content: {"role": role, "content": content}, st.sampled_from(["user", "tool"]), SCALARS),
    min_size=1,
    max_size=6,
)


@given(chats=st.lists(MESSAGES, min_size=1, max_size=4))
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_json_is_in_a_transcript_comes_back_identical(command, where, tmp_path, chats):
    file = write(tmp_path / "chats.jsonl", *(chat(f"chat-{n}", messages) for n, messages in enumerate(chats)))
    options = ("--replace", "--concurrency", 2, "--namespace", "test-any-json")
    ran = command("replay", file, "--json", *options, *where)
    assert (ran.code, ran.err) == (0, "")
    assert ran.document["identical_messages"] == sum(map(len, chats))
