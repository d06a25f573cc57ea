"""Reading only the keys of calls gives what reading all elements gives, and a quick check changes no view."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from formats.test_odd_properties import asked, jumble, spoken
from formats.test_tool_pairing import context_of
from formats.test_view_properties import message
from hypothesis import given
from hypothesis import strategies as st
from support.agent_loops import FORMS, Loop, Payload

from redismem.formats.elements import ends_of
from redismem.formats.open_ends import open_ends
from redismem.formats.reading import read_message
from redismem.formats.tool_groups import cut_after, cut_before
from redismem.messages.message import Message


def check_ends(payload: Payload) -> None:
    made, answered = ends_of(read_message(payload))
    assert open_ends(payload) == ([result.key for result in answered], {call.key: call.by_name for call in made})


@given(told=st.one_of(spoken, asked, jumble, st.lists(message(), max_size=3)))
def test_the_open_ends_are_those_of_the_elements(told: list[Payload]) -> None:
    for payload in told:
        check_ends(payload)


def talk(form: str, seed: int) -> list[Payload]:
    """A conversation in which every call has its result."""
    loop = Loop(form, seed)
    told = [loop.asks()]
    for _ in range(loop.random.randint(1, 4)):
        told += loop.step(loop.random.randint(1, 4), loop.random.random() < 0.7)
        if loop.random.random() < 0.5:
            told += [*loop.says(loop.random.random() < 0.5), loop.asks()]
    return told


@pytest.mark.parametrize("form", FORMS)
def test_an_ordinary_conversation_has_open_ends(form: str) -> None:
    for seed in range(10):
        for payload in talk(form, seed):
            check_ends(payload)


WINDOW: list[Payload] = [{"role": "user", "content": "What is the weather?"}]
for number in range(3):
    function = {"name": "look", "arguments": '{"q": 1}'}
    WINDOW += [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": f"call_{number}", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": f"call_{number}", "content": "It rains."},
    ]
WINDOW += [{"role": "assistant", "content": "It rains."}, *[{"role": "user", "content": "Thanks."}] * 2]


def count_calls(action: Callable[[], object]) -> int:
    """Count the calls of functions written in Python."""
    count = 0

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(profile)
    try:
        action()
    finally:
        sys.setprofile(None)
    return count


def test_an_ordinary_window_costs_few_calls() -> None:
    """Function calls measure the path of a turn on any machine. Each limit leaves room for a tenth more."""
    messages = [Message.from_openai(payload) for payload in WINDOW]
    assert count_calls(context_of(WINDOW).to_openai) <= 116
    assert count_calls(lambda: cut_before(messages, 5)) <= 108
    assert count_calls(lambda: cut_after(messages, 5)) <= 108


def test_a_window_of_plain_texts_is_not_read() -> None:
    context = context_of([{"role": "user", "content": "a_word"}] * 10)
    assert count_calls(context.to_openai) <= 5
