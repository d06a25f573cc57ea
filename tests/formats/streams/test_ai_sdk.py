"""The format of the Vercel AI SDK: the chunks of whole turns, and of turns that end in the middle of something."""

from typing import Any

import pytest
from support.streams import (
    KEY,
    QUESTION,
    TURN,
    WEATHER,
    call,
    check_ai,
    convert_all,
    done,
    end,
    parse_data,
    reasoning,
    result,
    text,
)

from redismem.formats.streams.opening import open_stream


def chunks(*events: dict[str, Any]) -> list[dict[str, Any]]:
    stream = convert_all("ai", events)
    check_ai(stream)
    return parse_data(stream)


def test_a_turn_with_a_tool_has_two_steps() -> None:
    assert chunks(*WEATHER, end()) == [
        {"type": "start", "messageId": KEY},
        {"type": "start-step"},
        {"type": "reasoning-start", "id": f"{KEY}.0"},
        {"type": "reasoning-delta", "id": f"{KEY}.0", "delta": "They ask "},
        {"type": "reasoning-delta", "id": f"{KEY}.0", "delta": "for rain."},
        {"type": "reasoning-end", "id": f"{KEY}.0"},
        {"type": "text-start", "id": f"{KEY}.1"},
        {"type": "text-delta", "id": f"{KEY}.1", "delta": "Let me "},
        {"type": "text-delta", "id": f"{KEY}.1", "delta": "look."},
        {"type": "text-end", "id": f"{KEY}.1"},
        {"type": "tool-input-start", "toolCallId": "c1", "toolName": "weather"},
        {"type": "tool-input-delta", "toolCallId": "c1", "inputTextDelta": '{"city":'},
        {"type": "tool-input-delta", "toolCallId": "c1", "inputTextDelta": '"Bergen"}'},
        {"type": "tool-input-available", "toolCallId": "c1", "toolName": "weather", "input": {"city": "Bergen"}},
        {"type": "tool-output-available", "toolCallId": "c1", "output": {"rain": True}},
        {"type": "data-place", "data": {"lat": 60.4}},
        {"type": "data-notice", "data": {"code": "slow", "text": "The service is slow."}},
        {"type": "finish-step"},
        {"type": "start-step"},
        {"type": "text-start", "id": f"{KEY}.4"},
        {"type": "text-delta", "id": f"{KEY}.4", "delta": "It rains."},
        {"type": "text-end", "id": f"{KEY}.4"},
        {"type": "finish-step"},
        {"type": "finish", "finishReason": "stop"},
    ]


def test_the_start_is_told_before_the_first_word_and_the_end_is_marked() -> None:
    stream = open_stream("ai", TURN)
    assert stream.content_headers["x-vercel-ai-ui-message-stream"] == "v1"
    assert b'"start"' in stream.convert(f"{KEY}.10", QUESTION)
    assert stream.close() == b""  # the turn runs: the mark would tell a client that the answer is complete
    stream.convert(f"{KEY}.20", end())
    assert stream.close() == b"data: [DONE]\n\n"


@pytest.mark.parametrize(
    ("outcome", "told"),
    [
        ("stopped", [{"type": "abort", "reason": "user"}, "other"]),
        ("failed", [{"type": "error", "errorText": "The answer failed: user"}, "error"]),
        ("lost", [{"type": "error", "errorText": "The answer was lost: the process that wrote it stopped."}, "error"]),
    ],
)
def test_what_is_open_is_closed_before_the_client_learns_of_the_end(outcome: str, told: list[Any]) -> None:
    chunk, reason = told
    tail = [chunk, {"type": "finish-step"}, {"type": "finish", "finishReason": reason}]
    assert chunks(text("Hal"), end(outcome, "user"))[-4:] == [{"type": "text-end", "id": f"{KEY}.0"}, *tail]
    cut = chunks(call("c1", '{"city":'), end(outcome, "user"))
    assert cut[-4:] == [
        {
            "type": "tool-input-error",
            "toolCallId": "c1",
            "toolName": "weather",
            "input": '{"city":',
            "errorText": "The turn ended before the input was complete.",
        },
        *tail,
    ]


def test_arguments_that_are_no_json_are_an_error_of_the_input_and_none_are_an_empty_object() -> None:
    told = chunks(call("c1", "{city}"), done("c1"), call("c2"), done("c2"), end())
    assert told[4] | {"errorText": ""} == {
        "type": "tool-input-error",
        "toolCallId": "c1",
        "toolName": "weather",
        "input": "{city}",
        "errorText": "",
    }
    assert told[6] == {"type": "tool-input-available", "toolCallId": "c2", "toolName": "weather", "input": {}}


def test_parallel_calls_stay_in_one_step_until_all_have_results() -> None:
    told = chunks(call("a", "{}"), call("b", "{"), result("a", 1), text("One."), call("b", "}"), result("b", 2), end())
    kinds = [chunk["type"] for chunk in told]
    assert kinds.count("start-step") == 1
    assert kinds.index("text-start") < kinds.index("tool-output-available", kinds.index("text-start"))


def test_an_id_that_a_model_uses_again_is_another_call() -> None:
    told = chunks(call("0", "{}"), result("0", "one"), call("0", "{}"), result("0", "two"), end())
    assert [(chunk["toolCallId"], chunk["output"]) for chunk in told if "output" in chunk] == [
        ("0", "one"),
        ("0.2", "two"),
    ]


def test_a_result_without_a_call_is_left_out() -> None:
    assert "tool-output-available" not in {chunk["type"] for chunk in chunks(result("x", 1), end())}


def test_each_round_of_tools_begins_one_step() -> None:
    rounds = [
        call("a", "{}"),
        result("a", 1),
        reasoning("So"),
        text("one."),
        call("b", "{}"),
        result("b", 2),
        text("Two."),
    ]
    kinds = [chunk["type"] for chunk in chunks(*rounds, end())]
    assert [kind for kind in kinds if kind.endswith(("-start", "start-step"))] == [
        *("start-step", "tool-input-start"),
        *("start-step", "reasoning-start", "text-start", "tool-input-start"),
        *("start-step", "text-start"),
    ]
