"""Alternating views: chat templates that raise for anything but user and assistant in turn accept any history."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any

import pytest
from formats.test_tool_pairing import FORMS, call, context_of, result
from hypothesis import given
from hypothesis import strategies as st
from support.provider_rules import check_sendable
from support.views import assistant, chat_call, chat_result, context, text, user

from redismem import Message
from redismem.formats.alternation import alternate_roles
from redismem.formats.turns import BEGINNING

Payload = dict[str, Any]


class Refused(Exception):
    """A template's `raise_exception`."""


def _without_system(messages: Sequence[Payload]) -> Sequence[Payload]:
    """Return the messages behind the optional system message, as templates do."""
    if messages and messages[0]["role"] == "system":
        if not isinstance(messages[0]["content"], str):
            raise Refused("the system message is a list")
        return messages[1:]
    return messages


def _check_turns(messages: Sequence[Payload]) -> None:
    for at, message in enumerate(messages):
        if (message["role"] == "user") != (at % 2 == 0):
            raise Refused("Conversation roles must alternate user/assistant/user/assistant/...")


def mistral(messages: Sequence[Payload]) -> None:
    """Mistral 7B Instruct v0.3, Nemo and later: results, and messages with a field of calls, are not counted."""
    turns = _without_system(messages)
    _check_turns([each for each in turns if each["role"] != "tool" and each.get("tool_calls") is None])
    for message in turns:
        if message["role"] not in ("user", "assistant", "tool"):
            raise Refused(
                "Only user and assistant roles are supported, with the exception of an initial system message"
            )
        if message["role"] == "tool" and message["content"] is None:
            raise Refused("a result without content")


def gemma(messages: Sequence[Payload]) -> None:
    """Gemma 3: knows no tools; contents are strings or lists of texts and images."""
    turns = _without_system(messages)
    _check_turns(turns)
    for message in turns:
        if message["role"] not in ("user", "assistant"):
            raise Refused("Conversation roles must alternate user/assistant/user/assistant/...")
        if not isinstance(message["content"], str | list):
            raise Refused("Invalid content type")


def llama(messages: Sequence[Payload]) -> None:
    """Llama 2: strips each content, so lists are flattened by the server first."""
    turns = _without_system(messages)
    _check_turns(turns)
    for message in turns:
        if message["content"] is None:
            raise Refused("None has no attribute strip")


def check_calls(messages: Sequence[Payload]) -> None:
    """Every result follows its call, and only calls at the very end are open."""
    expected: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] in expected
            expected.remove(message["tool_call_id"])
        else:
            assert not expected
            expected = {each["id"] for each in message.get("tool_calls") or ()}


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Payload], list[str]]:
    """Any messages, and the words in them, each once."""
    numbers = itertools.count()
    words: list[str] = []

    def said() -> str:
        words.append(f"w{next(numbers)}.")
        return words[-1]

    told: list[Payload] = []
    kinds = ["user", "assistant", "system", "developer", "model", "blank", "call", "result", "late", "refusal", "named"]
    for kind in draw(st.lists(st.sampled_from(kinds), max_size=12)):
        form = draw(st.sampled_from(["chat", "chat", "chat", *FORMS]))
        if kind == "call":
            told.append(call(form, "a"))
        elif kind == "result":
            told += [call(form, "b"), result(form, "b")]
        elif kind == "late":
            told.append(result(form, "c"))
        elif kind == "blank":
            told.append(
                {
                    "role": draw(st.sampled_from(["user", "assistant"])),
                    "content": draw(st.sampled_from(["", " ", None, []])),
                }
            )
        elif kind == "refusal":
            told.append(assistant(None, refusal=said()))
        elif kind == "named":
            told.append(user(said()) | {"name": draw(st.sampled_from(["anna", "ben"]))})
        elif draw(st.booleans()):
            told.append({"role": kind, "content": said()})
        else:
            told.append({"role": kind, "content": [text(said()), text(said())]})
    return told, words


@given(history=histories(), quotes_count=st.integers(0, 2), stored=st.booleans())
def test_templates_accept_any_history_and_no_word_is_lost(
    history: tuple[list[Payload], list[str]], quotes_count: int, stored: bool
) -> None:
    told, words = history
    made = context_of(told, stored=stored)
    if quotes_count:
        made.background = "the background"
        made.recalled = [Message("user", "the recalled")] * (quotes_count - 1)
    before = repr(told)
    view = made.to_openai(alternate=True)
    mistral(view)
    if not any(message["role"] == "tool" or message.get("tool_calls") for message in view):
        gemma(view)
        llama(view)
    check_calls(view)
    check_sendable(view)
    shown = json.dumps(view)
    assert all(shown.count(word) == 1 for word in words)
    assert ("the background" in shown, "the recalled" in shown) == (quotes_count > 0, quotes_count > 1)
    assert alternate_roles(view) == view, "a second pass changes nothing"
    assert repr(told) == before


def test_the_templates_refuse_the_plain_view_after_a_summary() -> None:
    with pytest.raises(Refused):
        gemma([*context_of([user("one"), user("two")]).to_openai()])
    with pytest.raises(Refused):
        mistral(context(user("hello"), summaries_count=1).to_openai())


def test_the_background_joins_the_next_user_message() -> None:
    made = context({"role": "system", "content": "Be kind."}, user("And now?"), summaries_count=2)
    system, turn = made.to_openai(alternate=True)
    assert system == {"role": "system", "content": "Be kind."}
    first, second, last = turn["content"].split("</summary>")
    assert ("summary 1" in first, "summary 2" in second, last) == (True, True, "\n\nAnd now?")


def test_what_alternates_already_is_the_same_dicts() -> None:
    told = [
        {"role": "system", "content": "Be kind."},
        user("the weather?"),
        chat_call("a", "b"),
        chat_result("a"),
        chat_result("b"),
        assistant("Sunny."),
        user([text("and here?"), {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]),
    ]
    made = context_of(told)
    payloads = [message.to_openai() for message in (*made.pinned, *made.messages)]
    view = made.to_openai(alternate=True)
    assert view == told
    assert all(shown is payload for shown, payload in zip(view, payloads, strict=True))


@pytest.mark.parametrize(
    ("told", "view"),
    [
        ([user("a"), user("b")], [user("a\n\nb")]),
        ([user([text("a")]), user("b")], [user([text("a"), text("b")])]),
        ([user("a"), assistant("b"), assistant("c")], [user("a"), assistant("b\n\nc")]),
        ([assistant("a")], [user(BEGINNING), assistant("a")]),
        (
            [user("a"), assistant("Looking."), chat_call("x"), chat_result("x"), assistant("b")],
            [user("a"), chat_call("x") | {"content": "Looking."}, chat_result("x"), assistant("b")],
        ),
        (
            [user("a"), chat_call("x"), chat_result("x"), user("b")],
            [user("a"), chat_call("x"), chat_result("x"), assistant("(The assistant did not answer.)"), user("b")],
        ),
        ([user("a"), assistant("b", tool_calls=[]), user("c")], [user("a"), assistant("b"), user("c")]),
        (
            [user("a") | {"name": "anna"}, user("b") | {"name": "ben"}],
            [user("anna: a\n\nben: b")],
        ),
        (
            [{"role": "developer", "content": "x"}, user("a"), {"role": "system", "content": "y"}, user("b")],
            [{"role": "system", "content": "x\n\ny"}, user("a\n\nb")],
        ),
        (
            [user("a"), assistant(None, audio={"id": "x", "expires_at": 1, "transcript": "Rain."})],
            [user("a"), assistant("Rain.")],
        ),
    ],
)
def test_neighbours_are_joined(told: list[Payload], view: list[Payload]) -> None:
    assert context(*told).to_openai(alternate=True) == view
