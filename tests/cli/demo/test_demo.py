"""The demo runs, shows what it promises, and fails if the memory is wrong."""

import json
from importlib.resources import files
from typing import Any

import pytest
from support.commands import TransportLayer, run_command
from support.transcripts import namespace_keys

from redismem.protocol import replies
from redismem.protocol.scripts import load
from redismem.protocol.server_errors import ServerError
from redismem.store import agreement


def test_the_demo_shows_the_conversation_and_passes_its_checks(command: Any, store_options: Any) -> None:
    ran = command("demo", *store_options)
    assert (ran.code, ran.err) == (0, "")
    assert max(map(len, ran.out.splitlines())) <= 80
    assert "\x1b" not in ran.out
    for words in (
        "pinned S   pending UAUC 2-5   recent TAUCTT 6-11",
        "for order_id",
        "no longer: resumed",
        "queue: overdue",
        "summary 2-6   recent AUCTTA 7-12",
        "summary 2-14   recent UCTAUA 15-20",
        "Summary of the earlier messages 2 to 6 of this conversation",
        "</summary>",
        "duplicate=True",
        "Conflict(last_seq=20)",
        "0 keys left",
        "message 3 of 200 is given to the model",
        "All 15 turns checked",
        "2 drains checked",
        store_options[1] if store_options else "embedded",
    ):
        assert words in ran.out
    assert (ran.out.count("queue: overdue"), ran.out.count("queue: none")) == (5, 12)
    assert ("REDISMEM_URL" in ran.out) == (not store_options)


def test_the_bundled_conversation_has_what_a_newcomer_should_see() -> None:
    rows = [json.loads(line) for line in (files("redismem.cli.demo") / "demo.jsonl").read_text("utf-8").splitlines()]
    messages = [message for row in rows for message in row["messages"]]
    assert len(messages) > 10
    assert {message["role"] for message in messages} == {"system", "user", "assistant", "tool"}
    assert sum(len(message.get("tool_calls", ())) for message in messages) > 2
    assert any(row.get("waiting") for row in rows)
    assert len({row["id"] for row in rows}) == len(rows)


def test_the_document_of_the_demo(command: Any, store_options: Any) -> None:
    ran = command("demo", "--json", *store_options)
    document = ran.document
    assert (ran.code, document["good"]) == (0, True)
    turns = document["turns"]
    assert [turn["round_trips"] for turn in turns] == [1] * 15
    assert [turn["total_messages"] for turn in turns] == [2, 3, 4, 6, 7, 8, 11, 12, 13, 14, 15, 17, 18, 19, 20]
    overdue = {8, 12, 13, 14, 15}  # turns after which the window is over its threshold
    assert [turn["queue"] for turn in turns] == ["overdue" if n in overdue else None for n in range(1, 16)]
    assert [len(turn["for_the_model"]) for turn in turns[:8]] == [turn["total_messages"] for turn in turns[:8]]
    assert [len(turn["for_the_model"]) for turn in turns[8:]] == [turn["total_messages"] - 4 for turn in turns[8:]]
    assert turns[7]["state"]["waiting_for_param"] == turns[9]["state"]["waiting_for_param"] == "address"
    assert turns[10]["state"]["waiting_for_param"] is None
    assert turns[10]["state"]["params"]["address"] == "Lindenstraße 12, 50674 Köln"
    assert all(check["good"] for check in document["checks"])
    assert len(document["checks"]) == 5


def test_pending_messages_become_a_summary_in_the_context(command: Any, store_options: Any) -> None:
    turns = command("demo", "--json", *store_options).document["turns"]
    assert [turn["turn"] for turn in turns if turn["drained"]] == [8, 15]
    for turn, ranges in ((turns[7], [[2, 6]]), (turns[14], [[2, 14]])):
        drained = turn["drained"]
        assert drained["summaries"] == ranges
        assert turn["pending"][-1] == ranges[0][1]
        assert (drained["pending"], drained["recent"]) == ([], turn["recent"])
        assert len(drained["recent"]) == 6
        assert drained["queue"] is None
        summary = drained["summary"]
        pending = [str(seq) for seq in turn["pending"]]
        assert [name.rpartition(":")[2] for name in summary["message_ids"]][-len(pending) :] == pending
        quoted = drained["for_the_model"][len(ranges)]
        assert quoted["role"] == "user"
        assert f"<summary>\n{summary['text']}\n</summary>" in quoted["content"]
    assert "crack" in turns[7]["drained"]["summary"]["text"]
    assert all(turn["summaries"] == [[2, 6]] for turn in turns[8:])


def test_the_notes_are_true_of_the_figures_below_them(command: Any) -> None:
    turns = command("demo", "--json").document["turns"]
    said = {
        "`recent` is full": next(turn for turn in turns if len(turn["recent"]) == 6),
        "outgrown `recent`": next(turn for turn in turns if turn["pending"]),
        "holds ten messages": next(turn for turn in turns if len(turn["pending"] + turn["recent"]) == 10),
        "is over its threshold:": next(turn for turn in turns if turn["queue"]),
        "is over its threshold once more": next(turn for turn in turns[8:] if turn["queue"]),
    }
    for words, first in said.items():
        assert [turn["turn"] for turn in turns if words in turn["note"]] == [first["turn"]], words
    for turn in turns:
        drained = turn["drained"]
        assert drained is None or (len(drained["summaries"]) == 2) == ("second summary" in drained["note"])


def test_settings_of_the_environment_do_not_change_the_story(command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDISMEM_STRATEGY", "none")
    monkeypatch.setenv("REDISMEM_MODEL_PROVIDER", "openai")
    monkeypatch.setenv("REDISMEM_SUMMARIES_LIMIT", "1")
    assert command("demo", "--json").document["good"]


def test_a_pause_before_the_first_turn_is_no_fault(command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a second, a session that is created makes the store check the record again: not a trip of the turn."""
    monkeypatch.setattr(agreement, "_LOOK_AGAIN_S", 0)
    assert command("demo", "--json").document["good"]


def test_the_demo_leaves_no_session_behind(command: Any, redis_server: Any, namespace: str) -> None:
    assert command("demo", "--url", redis_server.url, "--namespace", namespace).code == 0
    left = namespace_keys(redis_server.url, namespace)
    assert {name.rpartition(b":")[2] for name in left} == {b"namespace", b"fences"}


def test_the_demo_as_a_process_of_its_own_on_a_terminal_that_knows_ascii_only(tmp_path: Any) -> None:
    ran = run_command("demo", cwd=tmp_path, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert (ran.code, ran.err) == (0, "")
    assert "All 15 turns checked" in ran.out
    assert ran.out.isascii()


class SwapsMessages(TransportLayer):
    async def change_replies(self, commands: Any, answers: Any) -> Any:
        for command, answer in zip(commands, answers, strict=True):
            if command[0] == "LRANGE" and len(answer) > 1:
                answer[0], answer[1] = answer[1], answer[0]
        return answers


class ForgetsToClear(TransportLayer):
    async def change_replies(self, commands: Any, answers: Any) -> Any:
        return [1 if command[0] == "EXISTS" else answer for command, answer in zip(commands, answers, strict=True)]


class AddsOne(TransportLayer):
    """A store that adds one message to each append."""

    async def run(self, commands: Any, timeout_s: Any, script: Any = None, subject: Any = None) -> Any:
        answers = await self._inner.run(commands, timeout_s, script, subject)
        for command in commands:
            sessions = [word.decode() for word in command if isinstance(word, bytes) and word.startswith(b"demo-")]
            if command[0] == "EVALSHA" and sessions and isinstance(answers[0], list):
                await self.memory.session(sessions[0]).append({"role": "user", "content": "one more"})
        return answers


class MisplacesInQueue(TransportLayer):
    """A store that reports an overdue session in no queue, or in the queue `elsewhere`."""

    elsewhere: bytes | None = None

    async def change_replies(self, commands: Any, answers: Any) -> Any:
        if [command[0] for command in commands] == ["HGETALL"]:
            fields = replies.fields(answers[0])
            if fields.pop(b"queued", None) and self.elsewhere:
                fields[b"queued"] = self.elsewhere
            return [fields]
        return answers


class SaysItIsLeased(MisplacesInQueue):
    elsewhere = b"leased"


class PutsAllInLine(TransportLayer):
    """A store that reports every session as overdue."""

    async def change_replies(self, commands: Any, answers: Any) -> Any:
        if [command[0] for command in commands] == ["HGETALL"]:
            return [replies.fields(answers[0]) | {b"queued": b"overdue"}]
        return answers


class NeedsTwoTrips(TransportLayer):
    """A store that answers every second script call with NOSCRIPT."""

    lost = 0

    async def run(self, commands: Any, timeout_s: Any, script: Any = None, subject: Any = None) -> Any:
        if commands[0][0] == "EVALSHA":
            self.lost += 1
            if self.lost % 2:
                raise ServerError("NOSCRIPT", "NOSCRIPT")
        return await self._inner.run(commands, timeout_s, script, subject)


class LosesOneOriginal(TransportLayer):
    """A store that drops the second message of the newest page."""

    async def change_replies(self, commands: Any, answers: Any) -> Any:
        words = [command[0] for command in commands]
        if words == ["HMGET", "LLEN", "LRANGE", "HLEN"]:
            state, count, elements, kept = answers
            return [state, count, [*elements[:1], *elements[2:]], kept]
        return answers


class CommitsNothing(TransportLayer):
    """A store that refuses every commit as fenced: the worker is always too late."""

    async def run(self, commands: Any, timeout_s: Any, script: Any = None, subject: Any = None) -> Any:
        if commands[0][0] == "EVALSHA" and commands[0][1] == load("commit").sha:
            return [b"fenced"]
        return await self._inner.run(commands, timeout_s, script, subject)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (LosesOneOriginal, "the originals differ"),
        (CommitsNothing, "the drain's outcome is fenced"),
        (SwapsMessages, "the messages for the model differ"),
        (ForgetsToClear, "3 keys left"),
        (AddsOne, "total_messages differ"),
        (NeedsTwoTrips, "the turn took 2 round trips"),
        (MisplacesInQueue, "the queue differ"),
        (SaysItIsLeased, "the queue differ"),
        (PutsAllInLine, "the queue differ"),
    ],
)
def test_the_demo_fails_where_the_memory_is_wrong(
    command: Any, intercept: Any, store_options: Any, namespace: str, fault: Any, said: Any
) -> None:
    intercept(fault)
    ran = command("demo", "--namespace", namespace, *store_options)
    assert ran.code == 1
    assert "WRONG" in ran.out
    assert said in ran.out
    if fault is LosesOneOriginal:
        assert not command("demo", "--json", "--namespace", namespace, *store_options).document["good"]
