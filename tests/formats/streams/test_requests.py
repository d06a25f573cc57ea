"""The bodies of clients that begin a turn: what each means, and what is refused with which words."""

from typing import Any

import pytest
from support.streams import TURN

from redismem.errors import InvalidMessage
from redismem.formats.parts import Media, Text, View, parse_message
from redismem.formats.streams.requests import TurnRequest, parse_ag_ui, parse_ai_sdk, parse_responses
from redismem.formats.streams.responses import response_id
from redismem.messages.message import Message

HELLO = {"id": "m3", "role": "user", "parts": [{"type": "text", "text": "Hello"}]}
OLDER = {"id": "m2", "role": "assistant", "parts": []}
AI = {"id": "chat-1", "messages": [OLDER, HELLO], "trigger": "submit-message", "messageId": None}
AG_UI: dict[str, Any] = {
    "threadId": "chat-1",
    "runId": "run-7",
    "messages": [{"id": "m1", "role": "assistant", "content": "Hi"}, {"id": "m2", "role": "user", "content": "Hello"}],
    "state": {},
    "tools": [],
    "context": [],
    "forwardedProps": {},
}


def ask(content: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": content}]


def test_the_last_message_of_the_ai_sdk_is_the_turn() -> None:
    assert parse_ai_sdk(AI) == TurnRequest("chat-1", "m3", ask("Hello"))


def test_files_of_the_ai_sdk_are_media_for_every_provider() -> None:
    file = {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,aGk=", "filename": "a.png", "x": 1}
    parts = [*HELLO["parts"], file, {"type": "data-page", "data": 3}]
    (message,) = parse_ai_sdk(AI | {"messages": [HELLO | {"parts": parts}]}).messages
    ((_, (text, media)),) = parse_message(message, View())
    assert isinstance(text, Text)
    assert isinstance(media, Media)
    assert text.text == "Hello"
    assert (media.kind, media.mime, media.base64) == ("image", "image/png", "aGk=")
    assert "x" not in message["content"][1]


def test_a_run_of_ag_ui_is_the_turn() -> None:
    assert parse_ag_ui(AG_UI) == TurnRequest("chat-1", "run-7", ask("Hello"))


def test_an_agent_of_ag_ui_that_has_a_part_of_the_answer_keeps_what_is_before_it() -> None:
    """The client appends deltas to the messages that it has, and keeps reasoning that a snapshot lacks."""
    answer = [
        {"id": "7.0", "role": "reasoning", "content": "They gr"},
        {"id": "7.1", "role": "assistant", "content": "Good m"},
    ]
    asked = parse_ag_ui(AG_UI | {"messages": [*AG_UI["messages"], *answer]})
    kept: list[dict[str, Any]] = [*AG_UI["messages"], {"id": "7.0", "role": "reasoning", "content": ""}]
    assert asked == TurnRequest("chat-1", "run-7", ask("Hello"), kept=kept)


@pytest.mark.parametrize(
    ("kind", "source", "media"),
    [
        ("image", {"type": "url", "value": "https://example.org/a.png"}, ("image", "https://example.org/a.png", None)),
        ("image", {"type": "data", "value": "aGk=", "mimeType": "image/png"}, ("image", None, "aGk=")),
        ("document", {"type": "data", "value": "aGk=", "mimeType": "application/pdf"}, ("file", None, "aGk=")),
        ("audio", {"type": "data", "value": "aGk=", "mimeType": "audio/wav"}, ("audio", None, "aGk=")),
        ("document", {"type": "url", "value": "https://example.org/a"}, ("file", "https://example.org/a", None)),
    ],
)
def test_media_of_ag_ui_are_media_for_every_provider(kind: str, source: Any, media: tuple[Any, ...]) -> None:
    content = [{"type": "text", "text": "Look"}, {"type": kind, "source": source}]
    (message,) = parse_ag_ui(AG_UI | {"messages": [{"id": "1", "role": "user", "content": content}]}).messages
    ((_, (_, part)),) = parse_message(message, View())
    assert isinstance(part, Media)
    assert (part.kind, part.url, part.base64) == media


def test_a_create_request_names_its_session_in_one_of_two_ways_or_not() -> None:
    hello = {"model": "m", "input": "Hello"}
    asked = TurnRequest("chat-1", None, ask("Hello"), wants_stream=False, model="m")
    assert parse_responses(hello | {"conversation": "chat-1"}) == asked
    assert parse_responses(hello | {"conversation": {"id": "chat-1"}}) == asked
    assert parse_responses(hello | {"previous_response_id": response_id(TURN)}) == asked
    assert parse_responses(hello).session_id is None
    told = parse_responses(hello | {"stream": True, "background": True})
    assert (told.wants_stream, told.is_background) == (True, True)


def test_items_of_a_create_request_are_messages() -> None:
    items = [
        {"type": "function_call_output", "call_id": "c1", "output": "rain"},
        {"role": "user", "content": [{"type": "input_text", "text": "And tomorrow?"}]},
    ]
    messages = parse_responses({"input": items}).messages
    assert messages == items
    assert [Message.from_openai(item).to_openai() for item in messages] == items


@pytest.mark.parametrize(
    ("parse", "body", "expected"),
    [
        (parse_ai_sdk, [], "an object, not list"),
        (parse_ai_sdk, AI | {"id": ""}, "id must be a string"),
        (parse_ai_sdk, AI | {"trigger": "regenerate-message"}, "cannot be regenerated"),
        (parse_ai_sdk, AI | {"messages": []}, "must have the role user"),
        (parse_ai_sdk, AI | {"messages": [HELLO, OLDER]}, "must have the role user"),
        (parse_ai_sdk, AI | {"messages": ["Hello"]}, "must have the role user"),
        (parse_ai_sdk, AI | {"messages": [HELLO | {"id": 3}]}, "id must be a string"),
        (parse_ai_sdk, AI | {"messages": [HELLO | {"id": "ü" * 129}]}, "at most 256 bytes"),
        (parse_ai_sdk, AI | {"messages": [HELLO | {"parts": "Hello"}]}, "a list of parts"),
        (parse_ai_sdk, AI | {"messages": [HELLO | {"parts": []}]}, "a part of the type text"),
        (parse_ai_sdk, AI | {"messages": [HELLO | {"parts": ["Hello"]}]}, "is an object"),
        (parse_ai_sdk, AI | {"messages": [HELLO | {"parts": [{"type": "text"}]}]}, "needs its text"),
        (parse_ai_sdk, AI | {"messages": [HELLO | {"parts": [{"type": "file"}]}]}, "url must be a string"),
        (parse_ai_sdk, AI | {"messages": [HELLO | {"parts": [{"type": "tool-x"}]}]}, "types text and file"),
        (parse_ag_ui, None, "an object, not NoneType"),
        (parse_ag_ui, AG_UI | {"threadId": 3}, "threadId must be a string"),
        (parse_ag_ui, AG_UI | {"runId": ""}, "runId must be a string"),
        (parse_ag_ui, AG_UI | {"messages": [{"role": "tool", "content": "x"}]}, "must have the role user"),
        (parse_ag_ui, AG_UI | {"messages": [{"role": "user"}]}, "a text or a list of parts"),
        (parse_ag_ui, AG_UI | {"messages": [{"role": "user", "content": [{"type": "x"}]}]}, "have the types text"),
        (parse_responses, {"input": ""} | {"input": 3}, "a text or a list of items"),
        (parse_responses, {"input": []}, "a text or a list of items"),
        (parse_responses, {"input": [{"type": "item_reference", "id": "x"}]}, "not references"),
        (parse_responses, {"input": [{"id": "x"}]}, "not references"),
        (parse_responses, {"input": "x", "previous_response_id": "resp_x"}, "this server gave out"),
        (parse_responses, {"input": "x", "conversation": {}}, "id must be a string"),
        (parse_responses, {"input": "x", "conversation": "a", "previous_response_id": "b"}, "not both"),
    ],
)
def test_another_body_is_refused(parse: Any, body: Any, expected: str) -> None:
    with pytest.raises(InvalidMessage, match=expected):
        parse(body)


def test_results_of_the_clients_tools_go_on_with_the_turn() -> None:
    part = {"type": "tool-find", "toolCallId": "c1", "state": "output-available", "input": {}, "output": {"x": 1}}
    failed = {"type": "dynamic-tool", "toolCallId": "c2", "state": "output-error", "errorText": "no"}
    early = {"type": "tool-find", "toolCallId": "c0", "state": "output-available", "output": "old"}
    step = {"type": "step-start"}
    parts: list[Any] = [step, early, step, {"type": "text", "text": "Let me look."}, part, failed]
    message = {"id": "a1", "role": "assistant", "parts": parts}
    body = {"id": "s", "messages": [{"id": "m1", "role": "user", "parts": []}, message], "tools": [{"x": 1}]}
    results = [
        {"role": "tool", "tool_call_id": "c1", "content": '{"x":1}'},
        {"role": "tool", "tool_call_id": "c2", "content": "no"},
    ]
    assert parse_ai_sdk(body) == TurnRequest("s", "a1:c2", results, tools=[{"x": 1}], message_id="a1")
    parts.append({"type": "tool-find", "toolCallId": "c3", "state": "input-available"})
    with pytest.raises(InvalidMessage):
        parse_ai_sdk(body)

    asked = {"id": "m", "role": "user", "content": "Where?"}
    called = {"id": "a", "role": "assistant", "toolCalls": []}
    result = {"id": "t", "role": "tool", "toolCallId": "c1", "content": "sent"}
    run = {"threadId": "s", "runId": "r2", "tools": [{"name": "find"}], "messages": [asked, called, result]}
    found = parse_ag_ui(run)
    assert found.results == ([{"role": "tool", "tool_call_id": "c1", "content": "sent"}], None)
    assert (found.kept, found.tools) == ([asked], [{"type": "function", "function": {"name": "find"}}])
    part_of_answer = {"id": "b", "role": "assistant", "content": "On"}
    again = parse_ag_ui({**run, "messages": [asked, called, result, part_of_answer]})
    assert again.results is not None
    assert again.results.kept == [asked, called, result]
    assert parse_ag_ui({**run, "messages": [asked, called]}).results is None

    function = {"type": "function", "name": "find", "parameters": {"type": "object"}, "strict": None}
    created = parse_responses({"input": "Where?", "tools": [function, {"type": "web_search"}]})
    assert created.tools == [{"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}]
