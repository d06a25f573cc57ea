"""A call of a script by names, the key of a command, and the hash tag of commands."""

from __future__ import annotations

from typing import Any

import pytest

from redismem.events import Op
from redismem.protocol import scripts
from redismem.protocol.call import Command, key_of, script_call, tag_of
from redismem.protocol.ids import PROCESS
from redismem.protocol.keys import Keys

SESSION = Keys("shop", 8).session("user-42")
RELEASE = {"now_ms": None, "fence": "9-f", "backoff_ms": 7, "counts": True, "max_attempts": 3, "reason": None}


def test_names_go_to_the_places_that_the_head_declares() -> None:
    call = script_call(Op.RELEASE, SESSION, bool, dict(reversed(RELEASE.items())), more_keys=[b"k"], more=[b"m", 4])
    sha, shard = scripts.load("release").sha, SESSION.shard
    keys = (SESSION.state, shard.overdue, shard.leased, shard.dead, b"k")
    assert call.commands == (("EVALSHA", sha, 5, *keys, b"user-42", "-", "9-f", 7, 1, 3, "-", b"m", 4),)
    assert (call.session_id, call.script) == ("user-42", scripts.load("release"))


def test_a_key_given_as_none_is_left_out() -> None:
    named = {"cleared": None, "epoch": "*", "noted_ms": 0}
    assert script_call(Op.CLEAR, SESSION, bool, named).commands[0][2] == len(scripts.load("clear").keys) - 1


@pytest.mark.parametrize("named", [RELEASE | {"nonsense": 1}, {"fence": "9-f"}])
def test_an_unknown_or_a_missing_name_is_refused_at_once(named: dict[str, Any]) -> None:
    with pytest.raises((AssertionError, AttributeError)):
        script_call(Op.RELEASE, SESSION, bool, named)


def test_a_retry_is_the_same_call_with_a_new_sending_if_the_script_takes_one() -> None:
    assert (plain := script_call(Op.RELEASE, SESSION, bool, RELEASE)).again() == plain
    named = {
        "now_ms": None,
        "kept_ms": 1,
        "new_policy": b"",
        "sending": PROCESS.token(None)[10:22],
        "zone": "",
        "fence": None,
    }
    call = script_call(Op.SET_POLICY, SESSION, bool, named, after=[("PING",)])
    again = call.again()
    assert call.named is not None
    assert again.named is not None
    changed = {name for name in call.named if call.named[name] != again.named[name]}
    assert changed == {"sending"}
    assert again.commands == (
        tuple(again.named["sending"] if part == named["sending"] else part for part in call.commands[0]),
        ("PING",),
    )
    assert call.again(is_sent=False) is call


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
