"""Imported conversations belong to the people whom the user names, and are forgotten with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import redis
from langchain_core.messages import HumanMessage, message_to_dict

from redismem import blocking


def push(client: redis.Redis, key: str) -> None:
    """Store a message as langchain-community's RedisChatMessageHistory does."""
    client.lpush(key, json.dumps(message_to_dict(HumanMessage("a canary"))))


def test_imported_conversations_are_forgotten_with_their_owners(
    tmp_path: Path, client: redis.Redis, memory: blocking.Memory, run: Any, namespace: str
) -> None:
    prefix = f"{namespace}:"
    for session_id in ("1", "2", "3", "4"):
        push(client, prefix + session_id)
    memory.session("langchain:4", owner="bo").append({"role": "user", "content": "before"})
    file = tmp_path / "owners.json"
    file.write_text(json.dumps({"1": "ann", "2": "ann", "3": None, "4": "ann"}))
    push(client, f"{prefix}unknown")
    command = ("langchain", "--prefix", prefix, "--owners", file)
    for words, copied in ((["--dry-run"], 3), ([], 3), ([], 0)):
        told = run(*command, *words, code=1)
        assert told["copied"] == copied
        assert {each["conversation"]: each["problem"] for each in told["problems"]} == {
            f"{prefix}unknown": "the file of --owners does not name it; null means that it belongs to nobody",
            f"{prefix}4": "session langchain:4 was begun with another owner, or with none: clear it first",
        }
    assert memory.forget(owner="ann").session_count == 2
    assert {each.session_id for each in memory.sessions().sessions} == {"langchain:3", "langchain:4"}
    assert len(memory.session("langchain:4").tail(9)) == 1


def test_the_owner_in_a_line_of_a_file_is_that_of_the_session(
    tmp_path: Path, memory: blocking.Memory, run: Any
) -> None:
    file = tmp_path / "chats.jsonl"
    rows = [
        {"session_id": f"s-{number}", "messages": [{"role": "user", "content": "a"}], "owner": owner}
        for number, owner in enumerate(("ann", None, " ", 7))
    ]
    file.write_text("\n".join(map(json.dumps, rows)))
    ran = run("jsonl", file, code=1)
    assert [each["problem"][:11] for each in ran["problems"]] == ["an owner is", "owner is no"]
    assert [memory.session(name).info().owner for name in ("s-0", "s-1")] == ["ann", None]
    assert memory.forget(owner="ann").session_count == 1
