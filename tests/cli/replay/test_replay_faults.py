"""Replays on a store that changes messages, refuses writes or has other writers: each fault is reported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.commands import TransportLayer
from support.transcripts import chat, namespace_keys, write

from redismem.protocol.server_errors import ServerError


class Changes(TransportLayer):
    """A store that returns 1 for a stored 1.0."""

    async def change_replies(self, commands: Any, answers: Any) -> Any:
        def changed(answer: Any) -> Any:
            if isinstance(answer, bytes):
                return answer.replace(b"\xcb\x3f\xf0" + bytes(6), b"\xd3" + bytes(7) + b"\x01")
            return [changed(each) for each in answer] if isinstance(answer, list) else answer

        return changed(answers)


def test_a_changed_message_is_reported_and_its_session_kept(
    command: Any, intercept: Any, redis_options: Any, tmp_path: Path, redis_server: Any
) -> None:
    messages = [{"role": "user", "content": "a", "n": 1.0}]
    file = write(tmp_path / "chats.jsonl", chat("same"), chat("changed", messages))
    intercept(Changes)
    ran = command("demo", "replay", file, *redis_options)
    assert ran.code == 1
    assert "line 2: session changed: message 1 differs from the file" in ran.err
    assert "7 of 8 messages identical" in ran.out
    kept = namespace_keys(redis_server.url, redis_options[-1])
    assert {key.rpartition(b":")[2] for key in kept} == {b"namespace", b"fences", b"active", b"changed"}


class WritesToo(TransportLayer):
    """A store in which another client writes to a session between the turns of a replay."""

    async def run(self, commands: Any, timeout_s: Any, script: Any = None, subject: Any = None) -> Any:
        answers = await self._inner.run(commands, timeout_s, script, subject)
        if len(commands) > 1 and b"chat-3" in commands[0] and isinstance(answers[0], list) and answers[0][3] == 1:
            await self.memory.session("chat-3").append({"role": "user", "content": "me too"})
        return answers


def test_a_session_with_another_writer_is_left_alone(
    command: Any, intercept: Any, redis_options: Any, file: Any, redis_server: Any
) -> None:
    intercept(WritesToo)
    ran = command("demo", "replay", file, "--json", *redis_options)
    assert (ran.code, ran.document["sessions"]) == (1, 19)
    assert "line 4: session chat-3: another client is writing to it" in ran.err
    left = namespace_keys(redis_server.url, redis_options[-1])
    assert sum(key.endswith(b":chat-3") for key in left) == 2


class RunsFull(TransportLayer):
    """A server that runs out of memory after 30 appends."""

    appends = 0

    async def run(self, commands: Any, timeout_s: Any, script: Any = None, subject: Any = None) -> Any:
        if commands[0][0] == "EVALSHA" and len(commands) > 1:
            self.appends += 1
            if self.appends > 30:
                raise ServerError("OOM", "OOM")
        return await self._inner.run(commands, timeout_s, script, subject)


def test_a_server_out_of_memory_ends_the_replay_and_leaves_nothing(
    command: Any, intercept: Any, redis_options: Any, file: Any, redis_server: Any
) -> None:
    intercept(RunsFull)
    ran = command("demo", "replay", file, "--concurrency", 4, *redis_options)
    assert ran.code == 3
    assert "OOM" in ran.error_line
    left = namespace_keys(redis_server.url, redis_options[-1])
    assert {key.rpartition(b":")[2] for key in left} == {b"namespace", b"fences"}
