"""The namespace of a command: from `REDISMEM_NAMESPACE`, and refused if nothing ever used it."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from support.transcripts import namespace_keys

from redismem import Memory
from redismem.blocking import Memory as BlockingMemory

COMMANDS = (
    *(
        "list",
        "status",
        "doctor --deep",
        "show a",
        "search hotel --session a",
        "search hotel",
        "status --watch --count 1",
    ),
    *("list dead", "list quarantine", "show quarantine a", "show record a", "list dictionaries", "list projects"),
    *("show project a", "remove a --yes", "repair dead", "remove dead --yes", "remove quarantine a --yes"),
    *("repair quarantine a", "remove prefix a --yes", "remove dictionary 1 --yes"),
)


@pytest.mark.parametrize("words", COMMANDS)
def test_an_unused_namespace_is_refused_with_the_existing_ones(
    command: Any, redis_server: Any, raw: Any, namespace: str, memory_of: Any, words: str
) -> None:
    memory_of(f"{namespace}-shop")
    ran = command(*words.split(), "--url", redis_server.url, "--namespace", f"{namespace}-shpo")
    assert (ran.code, ran.out) == (2, "")
    assert f"has no namespace {namespace}-shpo; there are: " in ran.error_line
    assert f"{namespace}-shop" in ran.error_line
    assert list(raw.scan_iter(match=f"rm:{{{namespace}-shpo*", count=1000)) == []


@pytest.fixture
def raw(redis_server: Any) -> Any:
    with redis.Redis(port=redis_server.port) as raw:
        yield raw


@pytest.fixture
def memory_of(redis_server: Any) -> Any:
    """Return a function that stores a session in a namespace."""

    def store(name: str) -> None:
        with BlockingMemory.connect(redis_server.url, namespace=name) as memory:
            memory.session("a").append({"role": "user", "content": "x"})

    return store


def test_the_environment_names_the_namespace(
    command: Any, redis_server: Any, namespace: str, memory_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory_of(namespace)
    monkeypatch.setenv("REDISMEM_NAMESPACE", namespace)
    assert command("list", "--json", "--url", redis_server.url).document["namespace"] == namespace
    other = command("list", "--url", redis_server.url, "--namespace", f"{namespace}-other")
    assert f"has no namespace {namespace}-other" in other.error_line
    for connect in (Memory.connect, BlockingMemory.connect):
        assert connect("memory://").store.keys.namespace == namespace
        assert connect("memory://", namespace="own").store.keys.namespace == "own"
    monkeypatch.setenv("REDISMEM_NAMESPACE", "")
    ran = command("list", "--url", redis_server.url)
    assert (ran.code, ran.out) == (2, "")
    assert "a namespace has 1 to 64 characters" in ran.error_line


def test_a_demo_stays_out_of_the_namespace_of_the_environment(
    command: Any, monkeypatch: pytest.MonkeyPatch, redis_server: Any, namespace: str
) -> None:
    monkeypatch.setenv("REDISMEM_NAMESPACE", namespace)
    assert command("demo", "--url", redis_server.url).code == 0
    assert namespace_keys(redis_server.url, namespace) == set()


def test_sessions_without_their_record_can_still_be_inspected(
    command: Any, redis_server: Any, raw: Any, namespace: str, memory_of: Any
) -> None:
    memory_of(namespace)
    raw.delete(f"rm:{{{namespace}}}:namespace")
    assert command("list", "--url", redis_server.url, "--namespace", namespace).code == 0
