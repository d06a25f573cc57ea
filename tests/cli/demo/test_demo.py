"""The demo runs, shows what it promises, and fails if a step fails."""

import json
import re
from importlib.resources import files
from typing import Any

import pytest
from support.commands import TransportLayer, run_command
from support.transcripts import namespace_keys

from redismem.protocol.scripts import load


def test_the_demo_shows_window_summary_state_recall_and_project(command: Any, store_options: Any) -> None:
    ran = command("demo", *store_options)
    assert (ran.code, ran.err) == (0, "")
    assert max(map(len, ran.out.splitlines())) <= 80
    assert "\x1b" not in ran.out
    windows = [line.removeprefix("   window: ") for line in ran.out.splitlines() if line.startswith("   window: ")]
    assert windows[7:9] == [
        "pinned 1 · pending 2 to 6 · recent 7 to 12",
        "summary of 2 to 6 · pinned 1 · recent 7 to 12",
    ]
    assert windows[-1] == "summary of 2 to 14 · pinned 1 · recent 15 to 20"
    joined = " ".join(ran.out.split())
    for words in (
        "waiting for order_id",
        "resolution=new_tank",
        "address=Lindenstraße 12, 50674 Köln",
        "user Summary of the earlier messages 2 to 14 of this conversation",
        "not to the old address",
        "In a chat of 200 messages",
        "3 user Leave parcels at the blue kiosk beside the mill.",
        "PROJECT CONTEXT",
        "Ship spare parts by express",
        store_options[1] if store_options else "embedded",
    ):
        assert words in joined
    assert ("REDISMEM_URL" in ran.out) == (not store_options)


def test_the_bundled_conversation_has_what_a_newcomer_should_see() -> None:
    rows = [json.loads(line) for line in (files("redismem.cli.demo") / "demo.jsonl").read_text("utf-8").splitlines()]
    messages = [message for row in rows for message in row["messages"]]
    assert len(messages) > 10
    assert {message["role"] for message in messages} == {"system", "user", "assistant", "tool"}
    assert sum(len(message.get("tool_calls", ())) for message in messages) > 2
    assert any(row.get("waiting") for row in rows)
    assert len({row["id"] for row in rows}) == len(rows)


def test_the_notes_are_true_of_the_windows_below_them(command: Any) -> None:
    notes: list[str] = []
    pending: list[int] = []
    recent: list[int] = []
    for paragraph in command("demo").out.split("\n\n"):
        window = re.search(r"window: (?:.* )?recent (\d+)(?: to (\d+))?", paragraph)
        if window and re.match(r"\d+\. ", paragraph):
            waiting = re.search(r"pending (\d+)(?: to (\d+))?", paragraph)
            notes.append(" ".join(paragraph.split()))
            pending.append(0 if waiting is None else int(waiting[2] or waiting[1]) - int(waiting[1]) + 1)
            recent.append(int(window[2] or window[1]) - int(window[1]) + 1)
    said = {
        "`recent` is full": recent.index(6),
        "outgrown `recent`": next(number for number, count in enumerate(pending) if count),
        "holds ten messages": next(number for number, count in enumerate(pending) if count + recent[number] == 10),
        "is over its threshold:": next(number for number, count in enumerate(pending) if count + recent[number] > 10),
    }
    for words, first in said.items():
        assert [number for number, note in enumerate(notes) if words in note] == [first], words


def test_settings_of_the_environment_do_not_change_the_story(command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDISMEM_STRATEGY", "none")
    monkeypatch.setenv("REDISMEM_MODEL_PROVIDER", "openai")
    monkeypatch.setenv("REDISMEM_SUMMARIES_LIMIT", "1")
    ran = command("demo")
    assert (ran.code, "summary of 2 to 14 · pinned 1 · recent 15 to 20" in ran.out) == (0, True)


def test_the_demo_leaves_no_session_and_no_item_behind(command: Any, redis_server: Any, namespace: str) -> None:
    assert command("demo", "--url", redis_server.url, "--namespace", namespace).code == 0
    left = namespace_keys(redis_server.url, namespace)
    assert {name.rpartition(b":")[2] for name in left} == {b"namespace", b"fences", b"projects", b"changes"}


def test_the_demo_as_a_process_of_its_own_on_a_terminal_that_knows_ascii_only(tmp_path: Any) -> None:
    ran = run_command("demo", cwd=tmp_path, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert (ran.code, ran.err) == (0, "")
    assert "The demo has ended." in ran.out
    assert ran.out.isascii()


class CommitsNothing(TransportLayer):
    """A store that refuses every commit as fenced: the worker is always too late."""

    async def run(self, commands: Any, timeout_s: Any, script: Any = None, subject: Any = None) -> Any:
        if commands[0][0] == "EVALSHA" and commands[0][1] == load("commit").sha:
            return [b"fenced"]
        return await self._inner.run(commands, timeout_s, script, subject)


def test_the_demo_fails_if_a_step_fails(command: Any, intercept: Any, store_options: Any, namespace: str) -> None:
    intercept(CommitsNothing)
    ran = command("demo", "--namespace", namespace, *store_options)
    assert ran.code == 1
    assert "no summary was written" in ran.err
