"""The record of an append, and its replay."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from redismem import UNSET, Settings
from redismem.protocol.appends import Append
from redismem.protocol.call import Call
from redismem.protocol.keys import Keys
from redismem.protocol.session.append import replay_call
from redismem.protocol.session.calls import SessionCalls

KEYS = Keys("test", 64).session("user-42")
CALLS = SessionCalls(KEYS, Settings())
OWNED = SessionCalls(KEYS, Settings(), owner="ann @home")
USER = {"role": "user", "content": "hello"}


def appended(call: Call[Any]) -> Append:
    assert call.append is not None
    return call.append


def test_the_record_of_an_append_has_what_the_caller_gave() -> None:
    append = appended(
        CALLS.append_and_read([USER, USER], {"merge": {"a": 1, "b": UNSET}, "waiting": "size", "plan": None, "id": "x"})
    )
    assert append.change is not None
    assert (len(append.elements), append.elements[0], append.has_expect) == (2, append.elements[1], False)
    assert append.change.sets[::2] == (b"param:a", b"waiting")
    assert append.change.drops == (b"param:b", b"plan")
    assert append.name == appended(CALLS.append([USER], {"id": "x"})).name
    assert append.size_bytes > sum(map(len, append.elements))
    assert appended(CALLS.append([USER], {"expect": 0})).has_expect
    assert appended(CALLS.update(merge={"a": 1})).elements == ()
    timed = SessionCalls(KEYS, Settings(), clock=lambda: 4_000_000_000_000)
    assert (append.now_ms, appended(timed.append([USER])).now_ms) == (None, 4_000_000_000_000)


@pytest.mark.parametrize("calls", [CALLS, OWNED], ids=["plain", "owned"])
@pytest.mark.parametrize(
    ("options", "may_be_there", "fresh"),
    [
        ({}, False, "1"),
        ({}, True, "2"),
        ({"id": "x", "expect": 3}, False, "0"),
        ({"id": "x"}, True, "3"),
    ],
)
def test_a_replay_says_whether_it_may_be_there(
    calls: SessionCalls, options: Any, may_be_there: bool, fresh: str
) -> None:
    append = appended(calls.append_and_read([USER], options))
    replayed = replay_call("user-42", append, may_be_there=may_be_there)
    made = appended(replayed)
    assert replace(made, token=b"") == replace(append, fresh=fresh, expect="@", token=b"")
    assert (made.token == append.token) is not may_be_there
    assert made.name == append.name
    assert replayed.commands == (made.command(),)
    assert replayed.decode(b"v1 1 3 30 0 0@1-ab").last_seq == 3
    assert (replayed.op, replayed.session_id) == ("replay", "user-42")
