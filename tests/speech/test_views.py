"""A context as Anthropic and Gemini want it written: what becomes of each thing that a message may say."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from support.provider_rules import check_anthropic, check_gemini

from redismem.context import Context, State, Summary
from redismem.messages import Message

Payload = dict[str, Any]
PNG = base64.b64encode(b"\x89PNG-bytes").decode()
URL = "https://example.com/cat.png"


def context(*payloads: Payload, summaries_count: int = 0) -> Context:
    summaries = [
        Summary(f"1-a:{at}", f"summary {at}", at, at, 0, 0, "m", 1, 0, ()) for at in range(1, summaries_count + 1)
    ]
    messages = [Message.from_openai(payload) for payload in payloads]
    return Context("s", summaries, messages, State(), len(messages), 1, len(messages), "1-a", 6)


def anthropic(*payloads: Payload, summaries_count: int = 0) -> Any:
    found = context(*payloads, summaries_count=summaries_count).to_anthropic()
    check_anthropic(found)
    return found


def gemini(*payloads: Payload, summaries_count: int = 0) -> Any:
    found = context(*payloads, summaries_count=summaries_count).to_gemini()
    check_gemini(found)
    return found


def user(content: Any) -> Payload:
    return {"role": "user", "content": content}


def assistant(content: Any, **others: Any) -> Payload:
    return {"role": "assistant", "content": content, **others}


def chat_call(*ids: str, arguments: str = '{"city": "Bern"}', **others: Any) -> Payload:
    function = {"name": "weather", "arguments": arguments}
    return assistant(None, tool_calls=[{"id": id, "type": "function", "function": function, **others} for id in ids])


def chat_result(id: str, content: Any = "sunny") -> Payload:
    return {"role": "tool", "tool_call_id": id, "content": content}


def text(words: str) -> Payload:
    return {"type": "text", "text": words}


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
    told = [
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
    """As pinned messages will."""
    from redismem.speech.anthropic import anthropic_context

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
    """The older form has a name for an id, the same in every call; some servers number from 0 in each answer."""
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
    ({"type": "hologram", "of": "a cat"}, text('["hologram"]'), {"text": '["hologram"]'}),
    ({"executable_code": {"code": "1"}}, text('["executable_code"]'), {"executable_code": {"code": "1"}}),
]


@pytest.mark.parametrize(("part", "for_anthropic", "for_gemini"), IMAGES)
def test_parts(part: Payload, for_anthropic: Payload, for_gemini: Payload) -> None:
    told = user([text("Look:"), part])
    assert anthropic(told)["messages"][0]["content"] == [text("Look:"), for_anthropic]
    if "executable_code" not in part:
        assert gemini(told)["contents"][0]["parts"] == [{"text": "Look:"}, for_gemini]


def test_what_only_anthropic_understands_stays_as_it_is() -> None:
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    cached = {"type": "text", "text": "Long.", "cache_control": {"type": "ephemeral"}}
    call = {"type": "tool_use", "id": "t1", "name": "look", "input": {"a": None}}
    answer = {"type": "tool_result", "tool_use_id": "t1", "is_error": True, "content": "no"}
    told = [user([cached]), assistant([thought, text("Looking."), call]), user([answer, text("Well?")])]
    first, second, third = (message["content"] for message in anthropic(*told)["messages"])
    assert (first, second) == ([cached], [thought, text("Looking."), call])
    assert third == [answer | {"content": [text("no")]}, text("Well?")]
    contents = gemini(*told)["contents"]
    assert contents[2]["parts"] == [{"function_response": {"name": "look", "response": {"error": "no"}}}]
    assert contents[1]["parts"][0] == {"text": '["thinking"]'}


def test_what_only_gemini_understands_stays_as_it_is() -> None:
    signed = {"function_call": {"name": "look", "args": {}}, "thought_signature": "c2ln"}
    answers = [{"function_response": {"name": "look", "response": {"n": n}}} for n in (1, 2)]
    told = [
        {"role": "user", "parts": [{"text": "a"}]},
        {"role": "model", "parts": [{"text": "hm", "thought": True}, signed, {"functionCall": {"name": "look"}}]},
        {"role": "user", "parts": answers},
    ]
    contents = gemini(*told)["contents"]
    assert contents[1]["parts"] == [signed, {"function_call": {"name": "look", "args": {}}}]
    assert contents[2]["parts"] == answers
    blocks = anthropic(*told)["messages"][2]["content"]
    assert [block["content"] for block in blocks] == [[text('{"n": 1}')], [text('{"n": 2}')]]
    lost = gemini(*told[:1], *told[2:])
    assert "function_response" not in str(lost)
    assert "result of an earlier call" in str(lost)


def test_a_signature_of_gemini_comes_back_out_of_openai_calls() -> None:
    call = chat_call("c1", extra_content={"google": {"thought_signature": "c2ln"}})
    assert gemini(user("a"), call)["contents"][1]["parts"][0]["thought_signature"] == "c2ln"


def test_calls_without_an_id_are_quoted_and_no_word_is_lost() -> None:
    call = assistant("", tool_calls=[{"function": {"name": "weather", "arguments": {"city": "Bern"}}}])
    told = [user("a"), call, {"role": "tool", "content": "sunny"}, assistant(None, refusal="I will not.")]
    for found in (str(anthropic(*told)), str(gemini(*told))):
        assert all(word in found for word in ("weather", "Bern", "sunny", "I will not."))


def test_a_result_with_an_image() -> None:
    image = {"type": "image_url", "image_url": {"url": URL}}
    told = [user("a"), chat_call("c1"), chat_result("c1", [text("there"), image]), user("b")]
    content = anthropic(*told)["messages"][2]["content"][0]["content"]
    assert content == [text("there"), {"type": "image", "source": {"type": "url", "url": URL}}]
    assert gemini(*told)["contents"][3]["parts"][0]["file_data"]["file_uri"] == URL
