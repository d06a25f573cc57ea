"""A stored reply as events: texts, parts and calls."""

from typing import Any

import pytest
from support.streams import CHECKS, convert_all, parse_data

from redismem.formats.streams.replies import reply_events
from redismem.messages.message import Message

END = {"type": "end", "outcome": "done", "reason": "", "seq": 4, "usage": None}


def test_a_text() -> None:
    assert reply_events(Message("assistant", "It rains.")) == [{"type": "text", "delta": "It rains."}]


def test_parts_and_calls_of_the_openai_form() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://example.org/rain.png"}}
    calls = [{"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Bergen"}'}}]
    message = Message("assistant", [{"type": "text", "text": "Look: "}, image], tool_calls=calls)
    events = reply_events(message)
    assert events == [
        {"type": "text", "delta": "Look: "},
        {"type": "data", "name": "image_url", "data": image},
        {"type": "tool_call", "id": "c1", "name": "weather", "delta": '{"city":"Bergen"}', "done": True},
    ]
    for format, check in CHECKS.items():
        check(convert_all(format, [*events, END]))


def test_a_reply_in_another_form() -> None:
    parts: list[Any] = [{"type": "thinking", "thinking": "…"}, {"type": "text", "text": "Hm."}]
    parts += [{"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Bergen"}}]
    assert reply_events(Message("assistant", parts)) == [
        {"type": "text", "delta": "Hm."},
        {"type": "tool_call", "id": "c1", "name": "weather", "delta": '{"city":"Bergen"}', "done": True},
    ]


def test_a_call_that_is_in_the_content_too_is_told_once() -> None:
    part = {"type": "tool_use", "id": "c1", "name": "weather", "input": {}}
    entry = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    (told,) = reply_events(Message("assistant", [part], tool_calls=[entry]))
    assert told == {"type": "tool_call", "id": "c1", "name": "weather", "delta": "{}", "done": True}


@pytest.mark.parametrize("content", [None, "", []])
def test_a_reply_without_content_has_no_events(content: Any) -> None:
    assert reply_events(Message("assistant", content)) == []
    (start, *_) = parse_data(convert_all("ai", [END]))
    assert start["type"] == "start"
