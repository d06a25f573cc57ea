"""Views for Anthropic and Gemini: the conversion of every kind of part."""

from __future__ import annotations

from typing import Any

import pytest
from support.views import PNG, URL, Payload, anthropic, assistant, chat_call, chat_result, context, gemini, text, user


def test_an_empty_context_is_empty() -> None:
    assert anthropic() == {"messages": []}
    assert gemini() == {"contents": []}


def test_plain_words() -> None:
    told = [user("Hello"), assistant("Hi  "), user("Bye"), assistant("See you \n")]
    assert anthropic(*told)["messages"] == [
        {"role": "user", "content": [text("Hello")]},
        {"role": "assistant", "content": [text("Hi  ")]},
        {"role": "user", "content": [text("Bye")]},
        {"role": "assistant", "content": [text("See you")]},
    ]
    assert gemini(*told)["contents"][:2] == [
        {"role": "user", "parts": [{"text": "Hello"}]},
        {"role": "model", "parts": [{"text": "Hi  "}]},
    ]


def test_what_the_system_says_first_stands_apart_and_later_is_the_users() -> None:
    told: list[Payload] = [
        {"role": "system", "content": "Be kind."},
        {"role": "developer", "content": [text("Be short."), {"type": "text", "text": " "}]},
        user("Hello"),
        {"role": "system", "content": "Speak French."},
        assistant("Salut"),
    ]
    for count in (0, 2):
        found = anthropic(*told, summaries_count=count)
        assert found["system"] == [text("Be kind."), text("Be short.")]
        (first, second) = found["messages"]
        assert len(first["content"]) == count + 2
        assert "summary 1" in first["content"][0]["text"] or not count
        assert first["content"][-1] == text("<system_message>\nSpeak French.\n</system_message>")
        assert second["role"] == "assistant"
        found = gemini(*told, summaries_count=count)
        assert found["system_instruction"] == {"parts": [{"text": "Be kind."}, {"text": "Be short."}]}
        assert found["contents"][0]["parts"][-1]["text"].startswith("<system_message>\nSpeak French.")


def test_what_stands_before_the_summaries_is_the_systems_too() -> None:
    """A pinned system message precedes the summaries: it goes into `system`, with the ones after the summaries."""
    from redismem.formats.anthropic import anthropic_context

    summary = context(summaries_count=1).to_openai()
    told = [{"role": "system", "content": "A"}, *summary, {"role": "system", "content": "B"}, user("x")]
    found = anthropic_context(told, 1)
    assert found["system"] == [text("A"), text("B")]
    assert len(found["messages"]) == 1


def test_the_assistant_never_speaks_first_and_nobody_twice() -> None:
    told = [assistant("Welcome"), assistant("How are you?"), user("Fine"), user("And you?"), user("")]
    found = anthropic(*told)["messages"]
    assert [len(message["content"]) for message in found] == [1, 2, 2]
    assert "begins with what the assistant said" in found[0]["content"][0]["text"]
    assert [len(content["parts"]) for content in gemini(*told)["contents"]] == [1, 2, 2]


@pytest.mark.parametrize("empty", ["", " \n", None, [], [text("")], [{"type": "reasoning"}][:0]])
def test_what_is_empty_is_left_out(empty: Any) -> None:
    assert len(anthropic(user("a"), assistant(empty), user("b"))["messages"]) == 1
    assert len(gemini(user("a"), assistant(empty), user("b"))["contents"]) == 1


CALLS = [
    user("Weather?"),
    chat_call("c1", "c2"),
    chat_result("c2", '{"sky": "grey"}'),
    chat_result("c1"),
    user("Thanks"),
]


def test_calls_and_results() -> None:
    _, called, answered = anthropic(*CALLS)["messages"]
    assert called["content"][0] == {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Bern"}}
    assert answered["content"] == [
        {"type": "tool_result", "tool_use_id": "c1", "content": [text("sunny")]},
        {"type": "tool_result", "tool_use_id": "c2", "content": [text('{"sky": "grey"}')]},
        text("Thanks"),
    ]
    _, called, answered, thanked = gemini(*CALLS)["contents"]
    assert called["parts"] == [{"function_call": {"name": "weather", "args": {"city": "Bern"}}}] * 2
    assert answered == {
        "role": "user",
        "parts": [
            {"function_response": {"name": "weather", "response": {"output": "sunny"}}},
            {"function_response": {"name": "weather", "response": {"sky": "grey"}}},
        ],
    }
    assert thanked["parts"] == [{"text": "Thanks"}]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("", {}),
        ("  ", {}),
        ("{}", {}),
        ("[1]", {"arguments": [1]}),
        ("not json", {"arguments": "not json"}),
        ('{"n": NaN}', {"arguments": '{"n": NaN}'}),
        ("[" * 100_000, {"arguments": "[" * 100_000}),
        ("9" * 10_000, {"arguments": "9" * 10_000}),
        ('{"a": {"b": null}}', {"a": {"b": None}}),
    ],
)
def test_arguments_become_an_object(arguments: str, expected: Payload) -> None:
    call = chat_call("c1", arguments=arguments)
    assert anthropic(user("a"), call)["messages"][1]["content"][0]["input"] == expected
    assert gemini(user("a"), call)["contents"][1]["parts"][0]["function_call"]["args"] == expected


def test_ids_and_names_that_would_be_refused_are_written_anew() -> None:
    """The older format uses the function name as id, equal for all calls; some servers restart at 0 in each answer."""
    older = [
        assistant(None, function_call={"name": "to look/up", "arguments": "{}"}),
        {"role": "function", "name": "to look/up", "content": "1"},
    ]
    again = [chat_call("call:0"), chat_result("call:0"), chat_call("call:0"), chat_result("call:0")]
    found = anthropic(user("a"), *older, *older, *again)["messages"]
    calls = [block for message in found for block in message["content"] if block["type"] == "tool_use"]
    assert len({call["id"] for call in calls}) == 4
    assert [call["name"] for call in calls] == ["to_look_up"] * 2 + ["weather"] * 2
    names = [
        part["function_call"]["name"]
        for each in gemini(user("a"), *older)["contents"]
        for part in each["parts"]
        if "function_call" in part
    ]
    assert names == ["to_look_up"]
    twice = assistant(None, tool_calls=[*chat_call("c")["tool_calls"], *chat_call("c")["tool_calls"]])
    anthropic(user("a"), twice, chat_result("c"), user("b"))
    gemini(user("a"), twice, chat_result("c"), user("b"))


@pytest.mark.parametrize(
    ("apart", "is_kept"),
    [([], True), ([user("meanwhile")], True), ([assistant("hm")], True), ([user("meanwhile"), assistant("hm")], False)],
)
def test_calls_of_responses_may_stand_apart_and_are_brought_together_or_quoted(
    apart: list[Payload], is_kept: bool
) -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c1", "output": "sunny"}
    told = [user("a"), {"type": "reasoning", "summary": []}, call, *apart, result, user("b")]
    for found in (str(anthropic(*told)), str(gemini(*told))):
        assert ("'tool_use'" in found or "'function_call'" in found) == is_kept
        assert "sunny" in found
        assert [part["content"] in found for part in apart] == [True] * len(apart)


IMAGES: list[tuple[Payload, Payload, Payload]] = [
    (
        {"type": "image_url", "image_url": {"url": URL, "detail": "low"}},
        {"type": "image", "source": {"type": "url", "url": URL}},
        {"file_data": {"mime_type": "image/png", "file_uri": URL}},
    ),
    (
        {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
        {"inline_data": {"mime_type": "image/png", "data": PNG}},
    ),
    (
        {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": PNG}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": PNG}},
        {"inline_data": {"mime_type": "image/jpeg", "data": PNG}},
    ),
    (
        {"inline_data": {"mime_type": "image/webp", "data": PNG}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/webp", "data": PNG}},
        {"inline_data": {"mime_type": "image/webp", "data": PNG}},
    ),
    (
        {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PNG}"}},
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": PNG}},
        {"inline_data": {"mime_type": "application/pdf", "data": PNG}},
    ),
    (
        {"type": "input_audio", "input_audio": {"data": PNG, "format": "wav"}},
        text("[audio]"),
        {"inline_data": {"mime_type": "audio/wav", "data": PNG}},
    ),
    ({"type": "image_url", "image_url": {"url": "data:image/png;base64,%%%"}}, text("[image]"), {"text": "[image]"}),
    ({"type": "file", "file": {"file_id": "file-1"}}, text("[file]"), {"text": "[file]"}),
    (
        {"type": "image_url", "image_url": {"url": "http://example.com/a.png"}},
        text("[image: http://example.com/a.png]"),
        {"file_data": {"mime_type": "image/png", "file_uri": "http://example.com/a.png"}},
    ),
    ({"type": "hologram", "of": "a cat"}, text('["hologram"] a cat'), {"text": '["hologram"] a cat'}),
    (
        {"file_data": {"file_uri": "https://youtu.be/x"}},
        text("[file: https://youtu.be/x]"),
        {"file_data": {"file_uri": "https://youtu.be/x"}},
    ),
    (
        {"type": "input_file", "file_url": "https://example.com/report"},
        text("[file: https://example.com/report]"),
        {"text": "[file: https://example.com/report]"},
    ),
    (
        {"type": "file", "file": {"filename": "a.pdf", "file_data": PNG}},
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": PNG}},
        {"inline_data": {"mime_type": "application/pdf", "data": PNG}},
    ),
]


@pytest.mark.parametrize(("part", "for_anthropic", "for_gemini"), IMAGES)
def test_parts(part: Payload, for_anthropic: Payload, for_gemini: Payload) -> None:
    told = user([text("Look:"), part])
    assert anthropic(told)["messages"][0]["content"] == [text("Look:"), for_anthropic]
    assert gemini(told)["contents"][0]["parts"] == [{"text": "Look:"}, for_gemini]
