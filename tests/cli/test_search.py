"""`redismem search` and `show --originals`: the originals of sessions and of archives."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from support.redis_server import RedisServer
from support.writers import Echo

from redismem import Memory
from redismem.workers.archive import JsonlArchive
from redismem.workers.summaries import Worker

DOG = "My dog Biscuit came from the shelter."
WALRUS = "A walrus swam by."


@pytest.fixture
def archive(redis_server: RedisServer, namespace: str, tmp_path: Path) -> Path:
    """Create two sessions whose third message is about a dog, and an archive of them with one session twice."""
    path = tmp_path / "archive.jsonl"

    async def tell() -> None:
        archive = JsonlArchive(path)
        async with Memory.connect(redis_server.url, namespace=namespace) as memory:
            for name in ("first", "second"):
                session, worker = memory.session(name), Worker(memory.store, Echo())
                for seq in range(1, 41):
                    await session.append({"role": "user", "content": DOG if seq == 3 else f"number {seq}"})
                await archive(name, await session.read())
                await worker.drain()
            await session.append({"role": "user", "content": WALRUS})
            context = await session.read()
            context.messages = await session.messages(include_originals=True)
            await archive(name, context)

    asyncio.run(tell())
    return path


def test_a_question_to_a_session(archive: Path, command: Any, redis_options: Any) -> None:
    ran = command("search", "Where did my dogs come from?", "--session", "first", "--limit", 1, *redis_options)
    assert (ran.code, ran.err) == (0, "")
    assert "recalled from first: 2 to 4" in ran.out
    assert DOG in ran.out
    document = command("search", "dogs", "--session", "first", "--limit", 1, "--json", *redis_options).document
    (found,) = document["sessions"]
    assert (found["session_id"], [each["seq"] for each in found["messages"]]) == ("first", [2, 3, 4])
    assert found["messages"][1]["message"] == {"role": "user", "content": DOG}


def test_a_question_to_an_archive(archive: Path, command: Any) -> None:
    ran = command("search", "the dog", "--archive", archive, "--limit", 1, "--json")
    assert [each["session_id"] for each in ran.document["sessions"]] == ["first", "second"]
    assert all(each["messages"][1]["message"]["content"] == DOG for each in ran.document["sessions"])
    assert "recalled from second: 2 to 4" in command("search", "the dog", "--archive", archive, "--limit", 1).out
    (newest,) = command("search", "walrus", "--archive", archive, "--limit", 1, "--json").document["sessions"]
    assert newest["messages"][-1]["message"]["content"] == WALRUS  # only in the second transcript of the session


def test_words_are_found_in_all_conversations(archive: Path, command: Any, redis_options: Any) -> None:
    ran = command("search", "dogs", "from", "a", "shelter", *redis_options)
    assert (ran.code, ran.err) == (0, "")
    assert [line.split()[:3] for line in ran.out.splitlines()[1:3]] == [["second", "3", "user"], ["first", "3", "user"]]
    assert DOG in " ".join(ran.out.split())
    (found,) = command("search", "walrus", "--json", *redis_options).document["sessions"]
    assert (found["session_id"], found["match"]["text"]) == ("second", WALRUS)
    assert "1 session of namespace" in (one := command("search", "dogs", "--limit", 1, *redis_options).out)
    assert "there may be more: --limit" in one
    for words in (["zebra"], ["dogs walrus"], ["dogs", "--owner", "ann"]):
        assert command("search", *words, *redis_options).code == 1


def test_missing_sessions_and_originals_are_reported(
    archive: Path, command: Any, redis_options: Any, tmp_path: Path
) -> None:
    ran = command("search", "zebra", "--session", "first", *redis_options)
    assert (ran.code, ran.out) == (1, "no matching messages\n")
    ran = command("search", "dog", "--session", "nobody", *redis_options)
    assert ran.code == 1
    assert "there is no such session" in ran.err
    (tmp_path / "foreign").write_text("foreign\n")
    ran = command("search", "dog", "--archive", tmp_path / "foreign")
    assert ran.code == 2
    assert "no line of an archive" in ran.err


def test_show_prints_the_originals_on_request(archive: Path, command: Any, redis_options: Any) -> None:
    assert "originals:" not in command("show", "first", *redis_options).out
    ran = command("show", "first", "--originals", *redis_options)
    assert "originals: 1 to 34" in ran.out
    assert DOG in ran.out
    document = command("show", "first", "--originals", "--json", *redis_options).document
    assert [each["seq"] for each in document["originals"]] == list(range(1, 35))
    assert "originals" not in command("show", "first", "--json", *redis_options).document
    redacted = command("show", "first", "--originals", "--redact", *redis_options).out
    assert "originals: 1 to 34" in redacted
    assert DOG not in redacted
