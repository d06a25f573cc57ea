"""The key of a command, and the hash tag of commands."""

from __future__ import annotations

from typing import Any

import pytest

from redismem.protocol.call import Command, key_of, tag_of


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
    ("command", "tag"),
    [
        (("HMGET", b"rm:{shop:07}:record:a{b}", "f"), b"shop:07"),
        (("EVALSHA", "sha", 2, b"rm:{shop:@p}:items", b"rm:{shop:@p}:names"), b"shop:@p"),
        (("GET", "a{}b"), b"a{}b"),
        (("GET", "a{b"), b"a{b"),
        (("PING",), None),
    ],
)
def test_commands_have_the_hash_tag_of_their_first_key(command: Command, tag: Any) -> None:
    assert tag_of((command,)) == tag


def test_no_commands_have_no_hash_tag() -> None:
    assert tag_of(()) is None
