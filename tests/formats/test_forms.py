"""The table of forms: every kind of the SDKs' unions has a row, and a kind without one loses no word."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

import pytest
from support.agent_loops import FORMS, HOSTED, PAIRS, Loop, Payload, hosted, pair
from text.test_linear import check_growth, no_collections, room  # noqa: F401 (autouse fixtures)

from redismem.cli.terminal import text_of_message
from redismem.formats import reading
from redismem.formats.elements import Element, words_beside
from redismem.formats.forms import FIELDS, ITEMS, MARKS, TYPES, UNKNOWN, find, read_nothing
from redismem.formats.reading import calls, read_message, read_part, results
from redismem.formats.recalled import format_line
from redismem.formats.sections import is_output
from redismem.messages.message import Message
from redismem.text.plain import pieces

# Kinds of the unions without a row: they have a role, and their content is read instead.
MESSAGES = {"message"}
# Fields of a Gemini part that describe it; the part has another field beside them.
DESCRIPTIONS = {
    "video_metadata": "a range of the media",
    "media_processing": "a state of the media",
    "speech_metadata": "a description of the media",
    "document_metadata": "a description of the media",
    "spreadsheet_metadata": "a description of the media",
    "audio_metadata": "a description of the media",
    "text": "a text, found by the type of its value",
}


def kinds_of(union: Any) -> Iterator[str]:
    """The kinds in a union of TypedDicts."""
    for member in get_args(union):
        if get_args(member):
            yield from kinds_of(member)
        else:
            fields = getattr(member, "model_fields", None)  # some unions hold models of output too
            hints = {name: field.annotation for name, field in fields.items()} if fields else get_type_hints(member)
            yield from literals(hints.get("type"))  # what describes the union has none


def literals(hint: Any) -> Iterator[str]:
    for argument in get_args(hint):
        if isinstance(argument, str):
            yield argument
        else:
            yield from literals(argument)


def test_every_item_of_openai_has_a_row() -> None:
    from openai.types.responses.response_input_item_param import ResponseInputItemParam

    kinds = set(kinds_of(ResponseInputItemParam))
    assert len(kinds) > 25
    assert kinds - MESSAGES - ITEMS.keys() == set()


def test_every_block_of_anthropic_has_a_row() -> None:
    from anthropic.types import ContentBlockParam
    from anthropic.types.beta import BetaContentBlockParam

    kinds = {*kinds_of(ContentBlockParam), *kinds_of(BetaContentBlockParam)}
    assert len(kinds) > 20
    assert {kind for kind in kinds if find({"type": kind})[0] is UNKNOWN} == set()


def test_every_part_of_gemini_has_a_row() -> None:
    from google.genai.types import Part

    known = {*FIELDS, *MARKS, *DESCRIPTIONS}
    assert set(Part.model_fields) - known == set()
    assert {as_camel(name) for name in Part.model_fields} - {as_camel(name) for name in known} == set()


def as_camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.title, others))


@pytest.mark.parametrize("kind", PAIRS)
def test_a_result_names_its_call(kind: str) -> None:
    call, result = pair(kind, ("c1", "asked", "found"))
    named = {"local_shell_call": "id", "mcp_approval_request": "approval_request_id"}.get(kind)
    made = calls({"type": kind, "id": "item1", **call})
    answered = results({"type": PAIRS[kind], **result, **({named: "item1"} if named else {})})
    assert [call.key for call in made] == [result.key for result in answered]
    assert made[0].name
    assert "asked" in str(made[0].arguments)


def test_a_local_shells_result_may_name_the_call_id() -> None:
    """OpenAI's Agents SDK writes the call id into the id of the result."""
    (call,) = calls({"type": "local_shell_call", "id": "lsh_1", "call_id": "call_1", "action": {}})
    (result,) = results({"type": "local_shell_call_output", "id": "call_1", "output": "x"})
    assert result.key == call.by_name


@pytest.mark.parametrize("kind", HOSTED)
def test_a_hosted_call_holds_its_result(kind: str) -> None:
    item = hosted(kind, "h1", "asked", "found")
    (element,) = read_message(item)
    assert element.kind == "both"
    assert (calls(item), results(item)) == ([], [])
    assert is_output(item)
    words = " ".join(text for _, text in pieces(Message.from_openai(item)))
    assert all(word in line for word in ("asked", "found") for line in (words, format_line(Message.from_openai(item))))


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ("input-streaming", "call"),
        ("input-available", "call"),
        ("approval-requested", "call"),
        ("output-available", "both"),
        ("output-error", "both"),
        ("output-denied", "both"),
    ],
)
def test_the_state_of_a_ui_part_says_if_it_holds_its_result(state: str, kind: str) -> None:
    part = {"type": "tool-look", "toolCallId": "c1", "state": state, "input": {"q": 1}, "output": "x"}
    (element,) = read_message({"role": "assistant", "parts": [part]})
    assert element.kind == kind
    assert element.call is not None
    assert (element.call.name, element.call.arguments) == ("look", {"q": 1})
    assert element.result is None or element.result.is_error == (state == "output-error")


def test_an_older_ui_part_holds_its_call_within() -> None:
    invocation = {"state": "result", "toolCallId": "c1", "toolName": "look", "args": {"q": 1}, "result": "x"}
    parts = [{"type": "text", "text": "a"}, {"type": "tool-invocation", "toolInvocation": invocation}]
    text, tool = read_message({"role": "assistant", "content": "a", "parts": parts})
    assert (text.text, tool.kind) == ("a", "both")


def test_a_call_that_langchain_writes_twice_is_read_in_full_and_once() -> None:
    """Streaming leaves a part without its input in the content."""
    content = [{"type": "text", "text": "a"}, {"type": "tool_use", "id": "c1", "name": "look", "input": {}}]
    calls_made = [{"name": "look", "args": {"q": "Bern"}, "id": "c1", "type": "tool_call"}]
    payload = {"type": "ai", "data": {"type": "ai", "content": content, "tool_calls": calls_made}}
    (call,) = calls(payload)
    assert call.arguments == {"q": "Bern"}
    shown = [text for kind, text in pieces(Message.from_openai(payload)) if kind == "call"]
    assert shown == ['look({"q": "Bern"})']


UNHEARD: Payload = {"type": "weather_card", "city": "Bern", "days": [{"sky": "cloudy", "icon": {"alt": "a cloud"}}]}


def test_a_part_without_a_row_gives_its_texts() -> None:
    message = Message.from_openai({"role": "assistant", "content": [UNHEARD, {"type": "text", "text": "So it is."}]})
    shown = " ".join(text for kind, text in pieces(message) if kind != "part")
    assert all(
        word in text for word in ("Bern", "cloudy", "a cloud", "So it is.") for text in (shown, format_line(message))
    )


def test_a_part_without_a_row_is_warned_of_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_warned", set())
    with caplog.at_level(logging.WARNING, "redismem"):
        for _ in range(3):
            read_part(UNHEARD)
        assert [record.args for record in caplog.records] == [("weather_card",)]
        read_part({"type": "My secret is\n17", "text": "x"})
        read_part({"Alice Smith": {"a": 1}})
        for number in range(2_000):
            read_part({"type": f"kind{number}"})
    assert not any(word in caplog.text for word in ("Bern", "secret", "Alice"))
    assert len(caplog.records) == len(reading._warned) <= 256


def test_the_texts_of_a_deep_and_wide_part_cost_linear_time() -> None:
    deep: Any = "bottom"
    for _ in range(5_000):
        deep = [deep]
    assert list(words_beside(read_part({"type": "unheard of", "deep": deep, "then": "a word"}))) == ["a word"]

    def wide(count: int) -> Element:
        return read_part({"type": "unheard of", "items": [{"text": "a word", "more": ["b"] * 9}] * count})

    assert len(list(words_beside(wide(1_000)))) == 10_000
    check_growth("wide parts", lambda part: list(words_beside(part)), wide, 1_000)


def test_media_give_their_titles_and_no_data() -> None:
    document = {
        "type": "document",
        "title": "Contract",
        "source": {"type": "text", "media_type": "text/plain", "data": "The parties agree."},
    }
    picture = {"type": "file", "file": {"filename": "plan.pdf", "file_data": "data:application/pdf;base64,QUJD"}}
    shown = [text for _, text in pieces(Message.from_openai({"role": "user", "content": [document, picture]}))]
    assert shown == ["[document]", "Contract\nThe parties agree.", "[file]", "plan.pdf"]


def test_data_of_a_tool_are_no_parts() -> None:
    found = [{"type": "dog", "name": "Rex", "age": 7}, {"text": "x", "price": 3}]
    message = Message.from_openai({"role": "tool", "tool_call_id": "c", "content": found})
    for text in (dict(pieces(message))["result"], format_line(message)):
        assert all(word in text for word in ("Rex", "7", "3"))


def test_types_and_fields_are_written_alike() -> None:
    assert {name for name in FIELDS if "_" in name and as_camel(name) not in FIELDS} == set()
    assert not [
        kind for kind, form in TYPES.items() if form.role in ("call", "hosted", "staged") and form.id is read_nothing
    ]


@pytest.mark.parametrize("form", FORMS)
def test_the_command_line_shows_the_words_of_every_form(form: str) -> None:
    loop = Loop(form, 1)
    for payload in loop.step(2, thinks=False):
        words = set(re.findall(r"word\d+x", str(payload)))
        assert words <= set(re.findall(r"word\d+x", text_of_message(payload)))
