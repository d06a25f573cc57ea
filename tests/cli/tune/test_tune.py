"""`redismem tune`: figures of the user's own conversations, settings for a goal, and nothing left behind."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from support.commands import TransportLayer
from support.redis_server import RedisServer
from support.transcripts import CALL, chat, write

from redismem import Message
from redismem.blocking import Memory
from redismem.cli.terminal import Stop
from redismem.cli.transcripts import Transcript
from redismem.cli.tune import choices, claim, running
from redismem.cli.tune.playing import prepare
from redismem.protocol.scripts import load

QUICK = ("--seconds", "0.05", "--rate", "200")
FIGURES = ("p50", "p95", "priced_tokens", "words", "prefix", "client_us", "p99_ms")


def talk(number: int) -> list[dict[str, Any]]:
    """A conversation whose second half needs the first: a name is told early, and said again at the end."""
    said: list[dict[str, Any]] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": f"I am Ada{number} from Lisbon, with my dog Rufus."},
        {"role": "assistant", "content": None, "tool_calls": [CALL | {"id": f"c{number}"}]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": '{"n": 1.0, "more": null}'},
    ]
    for turn in range(9):
        said += [{"role": "assistant", "content": f"Item {turn} is packed."}]
        said += [{"role": "user", "content": f"Then item {turn + 1}."}]
    return [*said, {"role": "assistant", "content": f"Ada{number}, your parcel goes to Lisbon."}]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    rows = [chat(f"secret-{number}", talk(number)) for number in range(4)]
    asked = {
        "questions": [
            {"text": "What is the zebra's dog called?", "answer": "Rufus"},
            {"text": "And?", "answer": "zebra"},
        ]
    }
    return write(tmp_path / "chats.jsonl", *(row | asked for row in rows))


@pytest.fixture(autouse=True)
def few_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Less to play: a run takes seconds."""
    monkeypatch.setattr(choices, "_WINDOWS", ((20, 12),))
    monkeypatch.setattr(choices, "_SUMMARIES", (600,))
    monkeypatch.setattr(choices, "_RECALLS", (0, 350))
    monkeypatch.setattr(running, "_IDLE_S", 0.01)


def test_each_choice_is_measured_and_nothing_is_left(
    command: Any, store_options: list[str], file: Path, redis_server: RedisServer
) -> None:
    ran = command("tune", file, "--json", "--goal", "remembers", "--goal", "fastest", *QUICK, *store_options)
    found = ran.document
    assert ran.code == 0
    names = [row["name"] for row in found["rows"]]
    assert names[:6] == ["now", "window 20/12", "summary 600", "recall 350", "strategy trim", "strategy none"]
    rows = dict(zip(names, found["rows"], strict=True))
    for row in rows.values():
        assert all(row[name] > 0 for name in FIGURES)
        assert row["requests"] == 2 * 11
        assert (row["session_bytes"] is None) == (not store_options)
    assert rows["now"]["summaries"] > rows["window 20/12"]["summaries"] > rows["strategy none"]["summaries"] == 0
    assert rows["strategy trim"]["words"] < rows["recall 350"]["words"]
    assert rows["now"]["p95"] < rows["recall 350"]["p95"]
    assert rows["strategy trim"]["answers"] < rows["strategy none"]["answers"] == 0.5, (
        "a question is taken back before the next one"
    )
    assert rows["strategy trim"]["p95"] < rows["strategy none"]["p95"]
    assert rows["no originals"]["set"] == {"REDISMEM_KEEP_ORIGINALS": False}
    assert found["problems"] == []
    assert [goal["goal"] for goal in found["goals"]] == ["remembers", "fastest"]
    for named in found["goals"]:
        again = named["again"]
        assert again is None or again["on"] == "on 2 conversations that nothing was chosen on"
        assert again is None or again["named"]["cpu_ratio"]["least"] > 0
    assert rows["now"]["cpu_ratio"] == {"middle": 1, "least": 1, "most": 1}
    assert rows["now"]["trips"] == 2
    assert redis_server.say("KEYS", "*redismem-tune*") == []


def test_the_report_names_the_settings_and_shows_no_text(
    command: Any, redis_server: RedisServer, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDISMEM_STRATEGY", "trim")
    options = ("--goal", "remembers", "--times-tokens", "9", "--seconds", "0")
    ran = command("tune", file, *options, "--url", redis_server.url)
    assert (ran.code, ran.err) == (0, "")
    assert max(map(len, ran.out.splitlines())) <= 80
    for shown in ("A now", "later", "└──", "remembers: ", "Both measured again"):
        assert shown in ran.out
    assert re.search(r"export REDISMEM_\w+=\w|recall=\d", ran.out)
    assert "remembers again" in ran.out, "all that is said is better than what trim leaves"
    assert "every message came back identical, with all settings" in ran.out
    for text in ("Ada", "Lisbon", "secret", "parcel"):
        assert text not in ran.out


class Changes(TransportLayer):
    """A store that returns 1 for a stored 1.0."""

    async def change_replies(self, commands: Any, answers: Any) -> Any:
        def changed(answer: Any) -> Any:
            if isinstance(answer, bytes):
                return answer.replace(b"\xcb\x3f\xf0" + bytes(6), b"\xd3" + bytes(7) + b"\x01")
            return [changed(each) for each in answer] if isinstance(answer, list) else answer

        return changed(answers)


class CommitsLate(TransportLayer):
    """A worker whose lease was taken over."""

    async def run(self, commands: Any, timeout_s: Any, script: Any = None, subject: Any = None) -> Any:
        if commands[0][0] == "EVALSHA" and commands[0][1] == load("commit").sha:
            return [b"fenced"]
        return await self._inner.run(commands, timeout_s, script, subject)


def test_a_changed_message_and_a_missing_summary_are_reported(
    command: Any, intercept: Any, redis_server: RedisServer, tmp_path: Path
) -> None:
    rows = [chat("same"), chat("changed", [{"role": "user", "content": "a", "n": 1.0}])]
    intercept(Changes)
    ran = command("tune", write(tmp_path / "a.jsonl", *rows), "--seconds", "0", "--url", redis_server.url)
    assert ran.code == 1
    assert "line 2: now: message 1 differs from the file" in ran.err
    assert "came back identical" not in ran.out
    intercept(CommitsLate)
    file = write(tmp_path / "b.jsonl", chat("long", talk(1)))
    ran = command("tune", file, "--seconds", "0", "--url", redis_server.url)
    assert ran.code == 1
    assert "now: not measured: line 1: no summary was written: fenced" in ran.error_line
    assert redis_server.say("KEYS", "*redismem-tune*") == []


def test_a_second_run_is_refused_until_the_first_has_ended_or_is_replaced(
    command: Any, redis_server: RedisServer, file: Path
) -> None:
    """A run that was killed leaves a claim, and sessions that expire."""
    with Memory.connect(redis_server.url, namespace=claim.NAMESPACE) as memory:
        for name in ("run", "line-1"):
            memory.session(name).append({"role": "user", "content": "a"})
    options = ("--url", redis_server.url, "--seconds", "0")
    ran = command("tune", file, *options)
    assert (ran.code, "--replace removes what it left" in ran.error_line) == (2, True)
    assert command("tune", file, "--replace", *options).code == 2, "it asks"
    assert command("tune", file, "--replace", "--yes", "--conversations", "1", *options).code == 0
    assert redis_server.say("KEYS", "*redismem-tune*") == []


def test_ctrl_c_or_a_lost_redis_keeps_what_is_done_and_removes_what_was_written(
    command: Any, redis_server: RedisServer, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure = running.Run._measure

    async def interrupted(run: running.Run, choice: choices.Choice) -> bool:
        if len(run.rows) == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return await measure(run, choice)

    monkeypatch.setattr(running.Run, "_measure", interrupted)
    ran = command("tune", file, "--url", redis_server.url, "--goal", "cheapest", "--seconds", "0")
    assert (ran.code, ran.err) == (130, "redismem: interrupted\n")
    assert "B window 20/12" in ran.out
    assert "C summary 600" not in ran.out
    assert "before the end" in ran.out
    assert redis_server.say("KEYS", "*redismem-tune*") == []

    play = running.Run._play

    async def refused(run: running.Run, choice: Any, conversations: Any, label: str, **options: Any) -> Any:
        if label.startswith("again: "):
            raise Stop("redis://…: Redis has not answered for 5.0 s", 3)
        return await play(run, choice, conversations, label, **options)

    monkeypatch.setattr(running.Run, "_measure", measure)
    monkeypatch.setattr(running.Run, "_play", refused)
    monkeypatch.setenv("REDISMEM_STRATEGY", "trim")
    options = ("--goal", "remembers", "--times-tokens", "9", "--seconds", "0")
    ran = command("tune", file, "--url", redis_server.url, *options)
    assert (ran.code, "before the end" in ran.out) == (3, True)
    assert re.search(r"remembers: .*\n  (export|recall=)", ran.out)
    assert "not measured again" in ran.out


def test_a_wrong_file_is_named_with_its_line(command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = chat("b") | {"questions": [{"text": "secret"}]}
    for rows, why in (
        ([chat("a"), b"{secret\n"], "line 2: not JSON"),
        ([chat("a"), b"\n", bad], "line 3: question 1 has no text and answer"),
        ([b"\n"], "has no conversations"),
    ):
        ran = command("tune", write(tmp_path / "a.jsonl", *rows))
        assert (ran.code, why in ran.error_line) == (2, True)
        assert "secret" not in ran.err
    monkeypatch.setenv("REDISMEM_MAX_MESSAGE_BYTES", "1024")
    ran = command("tune", write(tmp_path / "a.jsonl", chat("a", [{"role": "user", "content": "x" * 2_000}])))
    assert (ran.code, "line 1: " in ran.err, "1024" in ran.err) == (1, True, True)


def test_a_time_beside_a_message_becomes_its_timestamp() -> None:
    said = {"role": "user", "content": "a", "time_ms": 1_700_000_000_000}
    (message,) = prepare(Transcript(1, "", [said])).said
    assert isinstance(message, Message)
    assert (message.to_openai(), message.time_ms) == ({"role": "user", "content": "a"}, 1_700_000_000_000)
