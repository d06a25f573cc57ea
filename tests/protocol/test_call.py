"""The key of a command, and the subject of a call."""

from __future__ import annotations

from typing import Any

import pytest

from redismem.protocol.call import Call, Command, key_of


@pytest.mark.parametrize(
    ("command", "key"),
    [
        (("GET", b"a"), b"a"),
        (("EVALSHA", b"e", 2, b"a", b"b", "c"), b"a"),
        (("EVALSHA", b"e", 0), None),
        (("MEMORY", "USAGE", b"a", "SAMPLES", 0), b"a"),
        (("PING",), None),
        (("SCAN", 0, "MATCH", "a*"), None),
        (("GET",), None),
    ],
)
def test_the_key_of_a_command(command: Any, key: Any) -> None:
    assert key_of(command) == key


@pytest.mark.parametrize(
    ("session_id", "command", "subject"),
    [
        ("a", ("HGETALL", b"rm:{shop:07}:state:a"), "a"),
        (None, ("HMGET", b"rm:{shop:07}:record:a{b}", "f"), b"shop:07"),
        (None, ("EVALSHA", "sha", 2, b"rm:{shop:@p}:items", b"rm:{shop:@p}:names"), b"shop:@p"),
        (None, ("GET", "a{}b"), b"a{}b"),
        (None, ("GET", "a{b"), b"a{b"),
        (None, ("PING",), None),
    ],
)
def test_a_call_is_about_its_session_or_else_about_the_hash_tag_of_its_keys(
    session_id: str | None, command: Command, subject: Any
) -> None:
    assert Call(session_id, (command,), bool).subject == subject


def test_a_call_without_commands_is_about_nothing() -> None:
    assert Call(None, (), bool).subject is None
