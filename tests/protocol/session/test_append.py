"""Parsing and replay of the command of an append."""

from __future__ import annotations

from typing import Any

import pytest

from redismem import UNSET, Settings
from redismem.protocol.keys import Keys
from redismem.protocol.owners import encode_owner
from redismem.protocol.session.append import parse_append, replay_call, request_place
from redismem.protocol.session.calls import SessionCalls

CALLS = SessionCalls(Keys("test", 64).session("user-42"), Settings())
OWNED = SessionCalls(Keys("test", 64).session("user-42"), Settings(), owner="ann @home")
USER = {"role": "user", "content": "hello"}


def test_a_parsed_append_has_the_parts_of_its_command() -> None:
    call = CALLS.append_and_read(
        [USER, USER], {"merge": {"a": 1, "b": UNSET}, "waiting": "size", "plan": None, "id": "x"}
    )
    append = parse_append(call.commands[0])
    assert (len(append.elements), append.elements[0], append.has_expect) == (2, append.elements[1], False)
    assert append.sets[::2] == (b"param:a", b"waiting")
    assert append.drops == (b"param:b", b"plan")
    assert append.token == parse_append(CALLS.append([USER], {"id": "x"}).commands[0]).token
    assert append.size_bytes > sum(map(len, append.elements))
    assert parse_append(CALLS.append([USER], {"expect": 0}).commands[0]).has_expect
    assert parse_append(CALLS.update(merge={"a": 1}).commands[0]).elements == ()
    owned = parse_append(OWNED.append([USER], {"id": "x"}).commands[0])
    assert (append.owner, owned.owner, owned.elements) == (b"", encode_owner("ann @home"), append.elements[:1])
    assert owned.token == append.token
    timed = SessionCalls(Keys("test", 64).session("user-42"), Settings(), clock=lambda: 4_000_000_000_000)
    assert (append.now_ms, parse_append(timed.append([USER]).commands[0]).now_ms) == (None, 4_000_000_000_000)


@pytest.mark.parametrize("calls", [CALLS, OWNED], ids=["plain", "owned"])
@pytest.mark.parametrize(
    ("options", "may_be_there", "fresh"),
    [
        ({}, False, "1"),
        ({}, True, "2"),
        ({"id": "x"}, False, "0"),
        ({"id": "x"}, True, "3"),
    ],
)
def test_a_replay_says_whether_it_may_be_there(
    calls: SessionCalls, options: Any, may_be_there: bool, fresh: str
) -> None:
    call = calls.append_and_read([USER], options)
    replayed = replay_call(call, may_be_there=may_be_there)
    (command,) = replayed.commands
    place = request_place(command)
    words = str(command[place]).split()
    assert (words[0], words[1], words[4]) == (fresh, "1", "@")
    assert command[:place] == call.commands[0][:place]
    assert command[place + 2 :] == call.commands[0][place + 2 :]
    assert (command[place + 1] == call.commands[0][place + 1]) is not may_be_there
    assert replayed.decode(b"v1 1 3 30 0 0@1-ab").last_seq == 3
    assert (replayed.op, replayed.script, replayed.session_id) == ("replay", call.script, "user-42")
