"""The format of OpenAI's Responses API: events, numbers, resuming behind a number, and ids that name a turn."""

import base64
from dataclasses import replace
from typing import Any

import pytest
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter
from support.streams import (
    KEY,
    TURN,
    WEATHER,
    call,
    check_openai,
    convert_all,
    end,
    parse_data,
    parse_frames,
    text,
    with_ids,
)

from redismem.errors import InvalidMessage
from redismem.formats.streams.responses import ResponsesStream, parse_response_id, response_id
from redismem.formats.streams.stream import StreamTurn

SDK_EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


def events_of(*events: dict[str, Any]) -> list[dict[str, Any]]:
    stream = convert_all("openai", events)
    check_openai(stream)
    told = parse_data(stream)
    for event in told:
        SDK_EVENT.validate_python(event)
    return told


def test_a_response_with_a_tool() -> None:
    told = events_of(*WEATHER, end(usage={"prompt_tokens": 5, "completion_tokens": 7}))
    assert [event["type"].removeprefix("response.") for event in told] == [
        *("created", "in_progress"),
        *("output_item.added", "reasoning_summary_part.added"),
        *("reasoning_summary_text.delta", "reasoning_summary_text.delta"),
        *("reasoning_summary_text.done", "reasoning_summary_part.done", "output_item.done"),
        *("output_item.added", "content_part.added", "output_text.delta", "output_text.delta"),
        *("output_text.done", "content_part.done", "output_item.done"),
        *("output_item.added", "function_call_arguments.delta", "function_call_arguments.delta"),
        *("function_call_arguments.done", "output_item.done"),
        *("output_item.added", "output_item.done"),
        *("output_item.added", "content_part.added", "output_text.delta"),
        *("output_text.done", "content_part.done", "output_item.done"),
        "completed",
    ]
    usage = told[-1]["response"]["usage"]
    assert (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) == (5, 7, 12)


def test_the_response_at_the_end_has_every_item() -> None:
    response = events_of(*WEATHER, end())[-1]["response"]
    call_item = {"type": "function_call", "name": "weather", "arguments": '{"city":"Bergen"}'}
    assert response["output"] == [
        item(f"rs_{KEY}.0")
        | {"type": "reasoning", "summary": [{"type": "summary_text", "text": "They ask for rain."}]},
        message(1, "Let me look."),
        item(f"fc_{KEY}.2") | {"call_id": "c1"} | call_item,
        item(f"fco_{KEY}.3") | {"type": "function_call_output", "call_id": "c1", "output": '{"rain":true}'},
        message(4, "It rains."),
    ]
    assert (response["created_at"], response["conversation"]) == (1_700_000_000, {"id": "chat-1"})


def item(id: str, status: str = "completed") -> dict[str, Any]:
    return {"id": id, "status": status}


def message(number: int, text: str, status: str = "completed") -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return item(f"msg_{KEY}.{number}", status) | {"type": "message", "role": "assistant", "content": [part]}


@pytest.mark.parametrize(
    ("outcome", "status", "details", "error"),
    [
        ("stopped", "incomplete", {}, None),
        ("failed", "failed", None, {"code": "server_error", "message": "The answer failed: user"}),
        (
            "lost",
            "failed",
            None,
            {"code": "server_error", "message": "The answer was lost: the process that wrote it stopped."},
        ),
    ],
)
def test_a_turn_that_ends_in_the_middle_has_incomplete_items(
    outcome: str, status: str, details: object, error: object
) -> None:
    told = events_of(call("c1", "{"), text("Hal"), end(outcome, "user"))[-1]
    assert told["type"] == f"response.{status}"
    response = told["response"]
    assert response["metadata"] == ({"reason": "user"} if outcome == "stopped" else {})
    assert (response["incomplete_details"], response["error"]) == (details, error)
    assert [item["status"] for item in response["output"]] == ["incomplete", "incomplete"]
    assert response["output"][1] == message(1, "Hal", "incomplete")


def test_a_client_that_resumes_gets_the_rest_whatever_number_it_has_seen() -> None:
    events = [*WEATHER, end()]
    frames = parse_frames(convert_all("openai", events))
    for seen in range(-1, len(frames) + 1):
        rest = convert_all("openai", events, replace(TURN, starting_after=seen))
        assert parse_frames(rest) == frames[seen + 1 :]


def test_the_response_so_far_has_the_items_that_are_complete() -> None:
    stream = ResponsesStream(TURN)
    for id, event in with_ids([*WEATHER[:6]]):
        stream.convert(id, event)
    response = stream.response()
    assert (response["status"], len(response["output"])) == ("in_progress", 2)


@pytest.mark.parametrize("turn_id", ["t", "two\nlines", "\ud800", "ü" * 128, ""])
def test_the_id_of_a_response_names_its_turn(turn_id: str) -> None:
    turn = StreamTurn("chät/1", turn_id, "7-ab12cd34")
    assert parse_response_id(response_id(turn)) == ("chät/1", turn_id, "7-ab12cd34")


@pytest.mark.parametrize(
    "id", ["", "resp_", "resp_!", "resp_abc", "ü", "resp_" + base64.urlsafe_b64encode(b"one\ntwo").decode()]
)
def test_another_id_is_refused(id: str) -> None:
    with pytest.raises(InvalidMessage, match="this server gave out"):
        parse_response_id(id)


def test_a_reason_that_the_api_knows_is_in_its_place() -> None:
    told = events_of(text("Hal"), end("stopped", "max_output_tokens"))[-1]["response"]
    assert told["incomplete_details"] == {"reason": "max_output_tokens"}


def test_usage_without_counts_is_left_out() -> None:
    for usage in (None, 3, {}, {"input_tokens": 1}, {"input_tokens": "1", "output_tokens": True}):
        assert events_of(end(usage=usage))[-1]["response"]["usage"] is None


def test_a_client_that_has_seen_more_than_there_is_gets_the_end() -> None:
    """The log is gone, and the stored reply has fewer events."""
    stream = ResponsesStream(replace(TURN, starting_after=40))
    told = [stream.convert("", event) for event in (text("It rains."), end())]
    (event,) = parse_data(b"".join(told))
    assert (event["type"], event["sequence_number"]) == ("response.completed", 41)
    assert event["response"]["output"] == [message(0, "It rains.")]
