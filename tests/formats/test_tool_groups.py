"""Safe cut points: compared with a slow second implementation on random conversations."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.conversations import Conversation, conversations, is_closed

from redismem.formats import tool_groups
from redismem.formats.open_ends import OpenEnds, open_ends
from redismem.formats.tool_groups import cut_after, cut_before, links, newest_within
from redismem.messages.message import Message

places = st.integers(0, 40)


def messages_of(*payloads: dict[str, Any]) -> list[Message]:
    return [Message.from_openai(payload) for payload in payloads]


@given(told=conversations())
def test_a_result_belongs_to_the_nearest_call_before_it_with_its_id(told: Conversation) -> None:
    assert sorted(links(told.messages)) == sorted(told.pairs)


@given(told=conversations(), wanted=places)
def test_a_cut_before_is_the_largest_that_parts_nothing(told: Conversation, wanted: int) -> None:
    wanted = min(wanted, len(told.messages))
    cuts = [cut for cut in range(wanted + 1) if not any(0 <= call < cut <= result for call, result in told.pairs)]
    assert cut_before(told.messages, wanted) == max(cuts)


@given(told=conversations(), wanted=places)
def test_a_cut_after_is_the_smallest_from_where_every_result_has_its_call(told: Conversation, wanted: int) -> None:
    wanted = min(wanted, len(told.messages))
    cuts = [cut for cut in range(wanted, len(told.messages) + 1) if is_closed(told.pairs, cut, len(told.messages))]
    assert cut_after(told.messages, wanted) == min(cuts)


@given(tokens=st.lists(st.integers(0, 50), max_size=30), max_tokens=st.integers(-5, 500))
def test_the_newest_within_a_budget_are_as_many_as_fit(tokens: list[int], max_tokens: int) -> None:
    messages = [Message("user") for _ in tokens]
    for message, count in zip(messages, tokens, strict=True):
        message.tokens = count
    place = newest_within(messages, max_tokens)
    assert sum(tokens[place:]) <= max(max_tokens, 0)
    assert place == 0 or sum(tokens[place - 1 :]) > max_tokens


def function(call_id: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": [{"id": call_id, "function": {"name": "f"}}]}


CALL_AND_RESULT: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "chat": (function("c1"), {"role": "tool", "tool_call_id": "c1", "content": "x"}),
    "old function": (
        {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "x"},
    ),
    "responses": (
        {"type": "function_call", "call_id": "c1", "name": "f"},
        {"type": "function_call_output", "call_id": "c1", "output": "x"},
    ),
    "responses, custom": (
        {"type": "custom_tool_call", "call_id": "c1", "name": "f"},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "x"},
    ),
    "anthropic": (
        {"role": "assistant", "content": [{"type": "text"}, {"type": "tool_use", "id": "c1"}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1"}, {"type": "text"}]},
    ),
    "gemini": (
        {"role": "model", "parts": [{"text": "hm"}, {"functionCall": {"name": "f", "args": {}}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {}}}]},
    ),
    "gemini, with an id": (
        {"role": "model", "parts": [{"function_call": {"id": "c1", "name": "f"}}]},
        {"role": "user", "parts": [{"function_response": {"id": "c1", "name": "f"}}]},
    ),
    "gemini, answered without its id": (
        {"role": "model", "parts": [{"functionCall": {"id": "c1", "name": "f"}}]},
        {"role": "function", "parts": [{"functionResponse": {"name": "f", "response": {}}}]},
    ),
    "an id that is no string": (function(["c", 1]), {"role": "tool", "tool_call_id": ["c", 1]}),
}


@pytest.mark.parametrize("form", CALL_AND_RESULT)
def test_calls_and_results_are_known_in_every_form(form: str) -> None:
    call, result = CALL_AND_RESULT[form]
    user = {"role": "user", "content": "hi"}
    assert links(messages_of(user, call, user, result)) == [(1, 3)]
    assert links(messages_of(result, call)) == [(-1, 0)]


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"role": None, "content": None},
        {"tool_calls": None, "tool_call_id": None},
        {"tool_calls": "c1", "function_call": "f"},
        {"tool_calls": [None, "c1", 5]},
        {"content": [None, "x", {"type": None}, {"text": "no type"}]},
        {"type": "message", "call_id": "c1"},
        {"parts": [None, "x", {"functionCall": None}, {"functionResponse": "c1"}, {"type": "x", "functionCall": {}}]},
    ],
)
def test_odd_messages_are_neither_call_nor_result(payload: dict[str, Any]) -> None:
    assert links(messages_of(payload, payload)) == []
    result = {"role": "tool", "tool_call_id": "c1"}
    assert links(messages_of(payload, result)) == [(-1, 1)]


def test_a_message_that_answers_its_own_call_is_not_linked_to_itself() -> None:
    both = function("c1") | {"tool_call_id": "c1"}
    assert links(messages_of(function("c1"), both, {"role": "tool", "tool_call_id": "c1"})) == [(0, 1), (1, 2)]


def test_messages_without_calls_are_not_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """A window may hold ten thousand messages, and every search for a cut point scans all of them."""
    taken_apart = list[dict[str, Any]]()

    def seen(payload: dict[str, Any]) -> OpenEnds:
        taken_apart.append(payload)
        return open_ends(payload)

    monkeypatch.setattr(tool_groups, "open_ends", seen)
    call = {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f"}}]}
    result = {"role": "tool", "tool_call_id": "c", "content": "found"}
    messages = messages_of(*[{"role": "user", "content": "hello", "name": "Ann"}] * 50, call, result)
    assert links(messages) == [(50, 51)]
    assert (cut_before(messages, 51), cut_after(messages, 51)) == (50, 52)
    assert tool_groups.open_calls(messages[:51], messages[:51]) == [50]
    assert not [payload for payload in taken_apart if payload not in (call, result)]
