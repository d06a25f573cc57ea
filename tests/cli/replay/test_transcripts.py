"""Parsing lines into transcripts, cutting them into turns, and comparing messages, without a store."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redismem.cli.replay.transcripts import BadLine, first_difference, parse, turns
from redismem.protocol.keys import Keys

CHECK_ID = Keys("test", 64).session
ROLES = st.sampled_from(["system", "user", "assistant", "tool"])


@given(st.lists(st.fixed_dictionaries({}, optional={"role": ROLES, "content": st.text()})), st.integers(1, 5))
def test_each_turn_ends_with_a_user_message(messages: Any, most: Any) -> None:
    found = list(turns(messages, most))
    assert [message for turn in found for message in turn] == messages
    assert all(0 < len(turn) <= most for turn in found)
    assert all(message.get("role") != "user" for turn in found for message in turn[:-1])
    assert all(turn[-1].get("role") == "user" or len(turn) == most for turn in found[:-1])


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"hello", "not JSON"),
        (b'{"session_id": "a", "messages": [', "not JSON"),
        (b'{"session_id": "\xff"}', "not UTF-8"),
        (b"[" * 100_000, "cannot represent"),
        (b'{"session_id": "a", "messages": [{"n": ' + b"9" * 5_000 + b"}]}", "cannot represent"),
        (b'["a"]', "not a JSON object"),
        (b'{"messages": [{}]}', "no session_id"),
        (b'{"session_id": null, "messages": [{}]}', "no session_id"),
        (b'{"session_id": 7, "messages": [{}]}', "not a string"),
        (b'{"session_id": "a ", "messages": [{}]}', "a session id is"),
        (b'{"session_id": "a"}', "no messages"),
        (b'{"session_id": "a", "messages": []}', "no messages"),
        (b'{"session_id": "a", "messages": {"role": "user"}}', "no messages"),
        (b'{"session_id": "a", "messages": [{}, "secret"]}', "message 2 is not an object"),
    ],
)
def test_a_bad_line_says_why_and_quotes_nothing(line: Any, why: Any) -> None:
    with pytest.raises(BadLine, match=why) as refused:
        parse(7, line, CHECK_ID)
    assert "secret" not in str(refused.value)


def test_a_line_keeps_every_key_and_type() -> None:
    messages = [{"role": "user", "content": None, "n": [1, 1.0, True, 2**70], "s": "\ud800é"}]
    found = parse(3, json.dumps({"session_id": "a", "messages": messages, "more": 1}).encode(), CHECK_ID)
    assert (found.line, found.session_id) == (3, "a")
    assert first_difference(messages, found.messages) is None
    assert found.raw_bytes == len(
        json.dumps(messages, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    )


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"a": 1}, {"a": 1.0}),
        ({"a": 1}, {"a": True}),
        ({"a": 0.0}, {"a": -0.0}),
        ({"a": None}, {}),
        ({"a": []}, {"a": {}}),
        ({"a": ""}, {"a": None}),
        ({"a": "é"}, {"a": "e\u0301"}),
        ({"a": 2**53 + 1}, {"a": 2**53}),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"a": [{"b": [1]}]}, {"a": [{"b": [1.0]}]}),
    ],
)
def test_similar_messages_are_different(wanted: Any, found: Any) -> None:
    assert first_difference([{}, wanted], [{}, wanted]) is None
    assert first_difference([{}, wanted], [{}, found]) == "message 2 differs from the file"


def test_order_and_number_count() -> None:
    assert first_difference([{"a": 1}, {"b": 2}], [{"b": 2}, {"a": 1}]) == "message 1 differs from the file"
    assert first_difference([{}, {}], [{}]) == "1 messages came back, not 2"
    assert first_difference([{}], [{}, {}]) == "2 messages came back, not 1"
