"""`redismem list records` and `show record`: the conversations of the four frameworks, until they are removed."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from support.framework_talks import ANSWER, QUESTION, RESULT, TALKS, TOOL, name_of, remove
from support.redis_server import RedisServer

from redismem import Memory
from redismem.blocking import Memory as BlockingMemory
from redismem.protocol.record.keys import record_keys
from redismem.record import Change


@pytest.fixture
def removal(redis_server: RedisServer, namespace: str) -> Any:
    """A conversation of each framework, of the owner ann. Returns a function that lets the framework remove it."""

    async def work(function: Any, *kind: str) -> None:
        async with Memory.connect(redis_server.url, namespace=namespace) as memory:
            await function(*kind, memory, redis_server.url, "monday", "ann")

    for talk in TALKS.values():
        asyncio.run(work(talk))
    return lambda kind: asyncio.run(work(remove, kind))


def test_conversations_are_listed_shown_and_gone(command: Any, redis_options: list[str], removal: Any) -> None:
    for kind in TALKS:
        name = name_of(kind, "monday", "ann")
        plain, titled = (command("list", "records", *more, *redis_options) for more in ((), ("--owner", "ann")))
        assert (plain.code, kind in plain.out, name in plain.out, QUESTION[:20] in plain.out) == (0, True, True, False)
        assert QUESTION[:20] in titled.out
        assert f"last message {ANSWER[:20]}" in " ".join(titled.out.split())
        for words in ((kind, name), (name,)):
            shown = command("show", "record", *words, *redis_options)
            assert shown.code == 0, shown.err
            assert all(word in shown.out for word in (QUESTION, TOOL, RESULT, ANSWER, "owner: ann"))
        document = command("show", "record", kind, name, "--json", *redis_options).document
        assert [each["role"] for each in document["conversation"]["messages"]] == [
            "user",
            "assistant",
            "tool",
            "assistant",
        ]
        hidden = command("show", "record", kind, name, "--redact", "--json", *redis_options)
        assert (QUESTION in hidden.out, RESULT in hidden.out) == (False, False)
        removal(kind)
        assert command("show", "record", kind, name, *redis_options).code == 1
        rows = command("list", "records", "--json", *redis_options).document["records"]
        assert kind not in [row["kind"] for row in rows if row["fault"] is None]


def test_the_list_of_sessions_and_the_status_name_records_too(
    command: Any, redis_server: RedisServer, redis_options: list[str], namespace: str
) -> None:
    with BlockingMemory.connect(redis_server.url, namespace=namespace) as memory:
        memory.record("langgraph:a").write(Change(sets={b"v": b"1", b"c:\0zz": b"no head"}, adds=[b"c:\0zz"]))
    listed = command("list", "sessions", *redis_options)
    assert "0 live sessions" in listed.out
    assert "1 record: redismem list records" in listed.out
    assert command("list", "sessions", "--json", *redis_options).document["records_count"] == 1
    assert command("status", "--json", *redis_options).document["records"] == 1
    assert "records" in command("status", *redis_options).out
    assert re.search(r"room +0 sessions of [\d,]+; 1 record", command("doctor", *redis_options).out)
    assert "damaged" in command("list", "records", *redis_options).out
    shown = command("show", "record", "langgraph", "a", *redis_options)
    assert (shown.code, "damaged: " in shown.out) == (0, True)
    with BlockingMemory.connect(redis_server.url, namespace=namespace) as memory:
        redis_server.say("HSET", record_keys(memory.store.keys, "langgraph:a").record, b"", b"v1")
        assert "damaged" in command("list", "records", *redis_options).out
        assert command("show", "record", "langgraph", "a", *redis_options).code == 1
        memory.record("langgraph:a").set_aside()
    assert "a copy is in quarantine" in command("show", "record", "langgraph", "a", *redis_options).error_line
    wrong = command("show", "record", "nothing", "a", *redis_options)
    assert (wrong.code, "google-adk" in wrong.error_line) == (2, True)
