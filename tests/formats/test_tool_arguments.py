"""Arguments as objects: every value and text converts to an object that clients can send and providers accept."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.json_values import texts, values
from support.provider_rules import check_sendable, object_faults

from redismem.formats.sendable import make_sendable
from redismem.formats.tool_arguments import parse_object, to_object

json_texts = st.one_of(
    values.map(json.dumps),
    values.map(lambda value: json.dumps(value, ensure_ascii=False)),
    values.map(lambda value: json.dumps(value)[:-1]),
    st.lists(st.sampled_from(["{", "}", "[", "]", '"a"', ":", ",", "1e999", "NaN", "-Infinity", "9" * 400, " "])).map(
        "".join
    ),
    st.integers(30, 36).map(lambda levels: "[" * levels + "]" * levels),
    texts,
)


@given(json_texts | values)
def test_any_arguments_have_an_object(arguments: Any) -> None:
    found = make_sendable(to_object(arguments))
    assert list(object_faults(found)) == []
    check_sendable(found)


@given(json_texts)
def test_a_text_is_an_object_or_stays_a_text(text: str) -> None:
    found = parse_object(text)
    if found is not None:
        assert to_object(text) == found == json.loads(text)
    elif isinstance(to_object(text).get("arguments"), str) and text.strip():
        assert to_object(text)["arguments"] in (text, _parse(text))


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


@given(values)
def test_what_can_be_sent_is_sent_as_it_is(value: Any) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        check_sendable(make_sendable(value))
    else:
        assert make_sendable(value) is value


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("a\ud800b", "a\ufffdb"),
        ("\ud83d\ude00", "\U0001f600"),
        ("\ud83d\ud83d\ude00\ude00", "\ufffd\U0001f600\ufffd"),
        ("\udfff", "\ufffd"),
    ],
)
def test_halves_of_a_character(text: str, sent: str) -> None:
    assert make_sendable([{text: text}]) == [{sent: sent}]


def test_what_earlier_releases_stored_is_no_finite_number() -> None:
    assert make_sendable({"n": [float("nan"), 1.5]}) == {"n": [None, 1.5]}
    assert to_object({"n": float("inf")}) == {"arguments": '{"n": Infinity}'}
