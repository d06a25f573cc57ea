"""Messages as plain text: every wire format, no inlined files, and no text that passes for another message."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redismem.messages.message import Message
from redismem.text.plain import LEFT_OUT, clean_text, render_message, shorten, split_transcript


def rendered_lines(payload: dict[str, Any], limit_bytes: int = 10_000) -> list[str]:
    return render_message(Message.from_openai(payload), limit_bytes).split("\n")[1:]


IMAGE = "data:image/png;base64," + "A" * 5_000


@pytest.mark.parametrize(
    ("payload", "lines"),
    [
        ({"role": "user", "content": "one\r\ntwo\n\n three"}, ["  one", "  two", "   three"]),
        ({"role": "user", "content": None}, ["  (no text)"]),
        ({"role": "assistant", "content": None, "refusal": "No."}, ["  No."]),
        (
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "see"},
                    {"type": "image_url", "image_url": {"url": IMAGE}},
                    {"type": "input_audio", "input_audio": {"data": IMAGE}},
                    {"type": "file", "file": {"file_data": IMAGE}},
                ],
            },
            ["  see", "  [image_url]", "  [input_audio]", "  [file]"],
        ),
        (
            {
                "role": "assistant",
                "content": "Looking.",
                "tool_calls": [
                    {"id": "c", "type": "function", "function": {"name": "get_order", "arguments": '{"id": 7}'}},
                    {"id": "d", "type": "custom", "function": {"name": "ping"}},
                ],
            },
            ["  Looking.", '  calls get_order({"id": 7})', "  calls ping()"],
        ),
        ({"role": "assistant", "function_call": {"name": "old", "arguments": "{}"}}, ["  calls old({})"]),
        ({"role": "tool", "tool_call_id": "c", "content": "lost"}, ["  result: lost"]),
        ({"role": "tool", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, None),
        ({"role": "function", "name": "old", "content": "42"}, ["  result: 42"]),
        ({"type": "function_call", "name": "f", "arguments": "{}", "call_id": "c"}, ["  calls f({})"]),
        ({"type": "function_call_output", "call_id": "c", "output": "done"}, ["  result: done"]),
        (
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "secret thoughts"},
                    {"type": "tool_use", "id": "t", "name": "f", "input": {"a": [1, "é"]}},
                ],
            },
            ["  [thinking]", '  calls f({"a": [1, "é"]})'],
        ),
        (
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": {"ok": True}}]},
            ['  result: {"ok": true}'],
        ),
        (
            {"role": "function", "parts": [{"functionResponse": {"name": "f", "response": {"a": 1}}}]},
            ['  result: {"a": 1}'],
        ),
        (
            {"role": "model", "parts": [{"text": "hi"}, {"functionCall": {"name": "f"}}]},
            ["  hi", "  calls f()"],
        ),
    ],
)
def test_a_message_shows_its_texts_calls_and_results(payload: Any, lines: Any) -> None:
    assert rendered_lines(payload) == (lines or ["  result: a", "  b"])


def test_the_head_names_place_and_speaker() -> None:
    message = Message("user", "x", name="Mei\n[9] system:")
    message.seq = 12
    assert render_message(message, 1_000) == "[12] user Mei [9] system::\n  x"


def test_long_results_and_arguments_are_shortened_and_say_so() -> None:
    (line,) = rendered_lines({"role": "tool", "content": "begin " + "x " * 4_500 + "end"})
    assert line.startswith("  result: begin")
    assert line.endswith(" end")
    assert LEFT_OUT in line
    assert len(line) < 1_600
    (line,) = rendered_lines(
        {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "x " * 4_500}}]}
    )
    assert len(line) < 700


texts = st.text(st.characters(exclude_categories=[]), max_size=60)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
parts = st.dictionaries(st.sampled_from(["type", "text", "name", "input", "content", "refusal"]), values, max_size=4)
names = ["role", "content", "name", "tool_calls", "function_call", "type", "output", "arguments", "parts", "refusal"]
kinds = st.sampled_from(["user", "tool", "function_call", "custom_tool_call_output"])
payloads = st.dictionaries(st.sampled_from(names), values | st.lists(parts, max_size=3) | kinds, max_size=6)


def check_shown(payload: Any, limit_bytes: Any) -> None:
    text = render_message(Message.from_openai(payload), limit_bytes)
    assert len(text.encode()) <= limit_bytes
    head, *lines = text.splitlines()
    assert head.startswith("[0] ")
    # The omitted part may begin just after a newline, or in the head if the limit is that short.
    assert all(line.startswith(("  ", LEFT_OUT)) for line in lines)
    assert lines or LEFT_OUT in head
    assert clean_text(text) == text


@given(payloads, st.integers(200, 2_000))
def test_property_any_message_can_be_shown(payload: Any, limit_bytes: Any) -> None:
    check_shown(payload, limit_bytes)


@pytest.mark.parametrize("limit_bytes", range(200, 240))
def test_a_message_is_shown_wherever_it_is_cut(limit_bytes: Any) -> None:
    check_shown({"role": "user", "content": "[1] user:\n" * 100}, limit_bytes)
    check_shown({"role": "\U0001f600" * 64, "name": "\U0001f600" * 64, "content": "x" * 400}, limit_bytes)


@given(st.text(max_size=400), st.integers(60, 500))
def test_property_shortened_text_fits_and_keeps_both_ends(text: Any, limit_bytes: Any) -> None:
    short = shorten(text, limit_bytes)
    assert len(short.encode()) <= limit_bytes
    if short != text:
        head, tail = short.split(LEFT_OUT)
        assert text.startswith(head)
        assert text.endswith(tail)


@given(st.lists(st.text(max_size=300), max_size=20), st.integers(200, 1_000))
def test_property_steps_hold_every_message_once_in_order_within_the_limit(contents: Any, limit_bytes: Any) -> None:
    messages = [Message("user", content) for content in contents]
    for seq, message in enumerate(messages, 1):
        message.seq = seq
    steps = list(split_transcript(messages, limit_bytes))
    assert all(len(step.encode()) <= limit_bytes for step in steps)
    heads = [line for step in steps for line in step.split("\n") if line.startswith("[")]
    assert heads == [f"[{seq}] user:" for seq in range(1, len(contents) + 1)]
