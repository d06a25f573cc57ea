"""`redismem remove owner` and `remove prefix`: it asks, removes all sessions of a person, and prints the proof."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support.redis_server import RedisServer

from redismem import ForgetIncomplete, ForgottenSessions, Memory
from redismem.blocking import memory as blocking


@pytest.fixture
def memory(redis_server: RedisServer, namespace: str) -> Iterator[blocking.Memory]:
    with blocking.Memory.connect(redis_server.url, namespace=namespace) as memory:
        yield memory


@pytest.fixture
def people(memory: blocking.Memory) -> blocking.Memory:
    """Two sessions of Ann and one of Bob."""
    for session_id, owner in (("a-1", "ann"), ("a-2", "ann"), ("b-1", "bob")):
        memory.session(session_id, owner=owner).append({"role": "user", "content": "hello"})
    return memory


@pytest.mark.parametrize("named", [("owner", "ann"), ("prefix", "a-")])
def test_it_removes_all_sessions_and_prints_the_proof(
    command: Any, people: blocking.Memory, redis_options: Any, named: Any
) -> None:
    ran = command("remove", *named, "--yes", *redis_options)
    assert ran.code == 0
    assert f"forgot 2 sessions with {named[0]} {named[1]} in namespace" in ran.out
    assert "proof: a scan of all keys that ended at 20" in ran.out
    assert people.count() == 1
    again = command("remove", *named, "--yes", "--json", *redis_options).document
    assert (again["session_count"], again["quarantined_count"], again["unattributed_count"]) == (0, 0, 0)
    assert again["proven_ms"] > 0
    assert again["error"] is None


def test_a_misspelt_owner_is_no_proof_without_a_warning(
    command: Any, people: blocking.Memory, redis_options: Any
) -> None:
    ran = command("remove", "owner", "Ann", "--yes", *redis_options)
    assert (ran.code, people.count()) == (0, 3)
    assert "there was no session with owner Ann" in ran.err
    assert "check the spelling" in ran.err
    ran = command("remove", "owner", "Ann", *redis_options)
    assert (ran.code, ran.error_line.startswith("redismem: there is no session or record with owner Ann")) == (1, True)
    assert "spelling" not in command("remove", "owner", "ann", "--yes", *redis_options).err


@pytest.mark.parametrize(("answer", "code", "left"), [("n\n", 1, 3), ("", 1, 3), ("y\n", 0, 1)])
def test_it_asks_with_the_number_of_sessions(
    command: Any, keyboard: Any, people: blocking.Memory, redis_options: Any, answer: Any, code: Any, left: Any
) -> None:
    keyboard(answer)
    ran = command("remove", "owner", "ann", *redis_options)
    assert "Forget 2 sessions with owner ann in namespace " in ran.err
    assert ran.code == code
    assert people.count() == left


@pytest.mark.parametrize("named", [("owner",), ("owner", ""), ("prefix", ""), ("prefix", " ")])
def test_an_empty_variable_forgets_nobody(
    command: Any, people: blocking.Memory, redis_options: Any, named: Any
) -> None:
    assert command("remove", *named, "--yes", *redis_options).code == 2
    assert people.count() == 3


def test_an_incomplete_removal_fails_and_says_what_was_done(
    command: Any, used_options: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(self: Memory, **_: Any) -> None:
        raise ForgetIncomplete("stopped: Redis is down", forgotten=ForgottenSessions(4, 1))

    monkeypatch.setattr(Memory, "forget", fail)
    ran = command("remove", "owner", "ann", "--yes", *used_options)
    assert ran.code == 1
    assert "forgot 4 sessions, and 1 in quarantine," in ran.out
    assert "proof" not in ran.out
    assert "not complete: stopped: Redis is down; the same command removes the rest" in ran.err


def test_sessions_that_name_no_owner_are_counted(
    command: Any, used_options: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def find_one(self: Memory, **_: Any) -> ForgottenSessions:
        return ForgottenSessions(unattributed_count=1, proven_ms=1_700_000_000_000)

    monkeypatch.setattr(Memory, "forget", find_one)
    ran = command("remove", "owner", "ann", "--yes", *used_options)
    assert ran.code == 0
    assert "1 unreadable session: nobody can tell the owner" in " ".join(ran.out.split())


def test_what_was_not_searched_is_printed(command: Any, people: blocking.Memory, redis_options: Any) -> None:
    people.session("nobody's").append({"role": "user", "content": "hello"})
    people.take("chat:ann", 0.01)
    people.take("chat:x", 0.01)
    project = people.project("apollo")
    task = project.tasks.create("Call back", assignee="ann")
    ran = command("remove", "owner", "ann", "--yes", *redis_options)
    lines = ran.out.splitlines()
    assert "found no session, record or copy in quarantine" in ran.out
    assert "removed 1 rate limit" in lines
    assert any(line.startswith(f"left: apollo/{task.id} ") for line in lines)
    told = [line.removeprefix("not searched: ") for line in lines if line.startswith("not searched: ")]
    assert told == [
        "other names of rate limits",
        "sessions and records without an owner",
        "texts of project items, and records of project conversations whose messages had no owner or had gone before",
    ]
