"""The format of AG-UI: the events of whole runs, and of runs that end in the middle of something."""

from dataclasses import replace
from typing import Any

import pytest
from support.streams import KEY, QUESTION, TURN, WEATHER, call, check_ag_ui, convert_all, end, parse_data, result, text

RUN = {"threadId": "chat-1", "runId": "turn-1"}


def events_of(*events: dict[str, Any]) -> list[dict[str, Any]]:
    stream = convert_all("ag-ui", events)
    check_ag_ui(stream)
    return parse_data(stream)


def test_a_run_with_a_tool() -> None:
    assert events_of(*WEATHER, end()) == [
        {"type": "RUN_STARTED", **RUN},
        {"type": "REASONING_START", "messageId": f"{KEY}.0"},
        {"type": "REASONING_MESSAGE_START", "messageId": f"{KEY}.0", "role": "reasoning"},
        {"type": "REASONING_MESSAGE_CONTENT", "messageId": f"{KEY}.0", "delta": "They ask "},
        {"type": "REASONING_MESSAGE_CONTENT", "messageId": f"{KEY}.0", "delta": "for rain."},
        {"type": "REASONING_MESSAGE_END", "messageId": f"{KEY}.0"},
        {"type": "REASONING_END", "messageId": f"{KEY}.0"},
        {"type": "TEXT_MESSAGE_START", "messageId": f"{KEY}.1", "role": "assistant"},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": f"{KEY}.1", "delta": "Let me "},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": f"{KEY}.1", "delta": "look."},
        {"type": "TEXT_MESSAGE_END", "messageId": f"{KEY}.1"},
        {
            "type": "TOOL_CALL_START",
            "toolCallId": "c1",
            "toolCallName": "weather",
            "parentMessageId": f"{KEY}.1",
        },
        {"type": "TOOL_CALL_ARGS", "toolCallId": "c1", "delta": '{"city":'},
        {"type": "TOOL_CALL_ARGS", "toolCallId": "c1", "delta": '"Bergen"}'},
        {"type": "TOOL_CALL_END", "toolCallId": "c1"},
        {
            "type": "TOOL_CALL_RESULT",
            "messageId": f"{KEY}.3",
            "toolCallId": "c1",
            "content": '{"rain":true}',
            "role": "tool",
        },
        {"type": "CUSTOM", "name": "place", "value": {"lat": 60.4}},
        {"type": "CUSTOM", "name": "notice", "value": {"code": "slow", "text": "The service is slow."}},
        {"type": "TEXT_MESSAGE_START", "messageId": f"{KEY}.4", "role": "assistant"},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": f"{KEY}.4", "delta": "It rains."},
        {"type": "TEXT_MESSAGE_END", "messageId": f"{KEY}.4"},
        {"type": "RUN_FINISHED", **RUN, "outcome": {"type": "success"}},
    ]


@pytest.mark.parametrize(
    ("outcome", "told"),
    [
        ("stopped", {"type": "RUN_FINISHED", **RUN, "outcome": {"type": "cancelled"}}),
        ("failed", {"type": "RUN_ERROR", "message": "The answer failed.", "code": "failed"}),
        (
            "lost",
            {
                "type": "RUN_ERROR",
                "message": "The answer was lost: the process that wrote it stopped.",
                "code": "lost",
            },
        ),
    ],
)
def test_what_is_open_is_closed_before_the_run_ends(outcome: str, told: dict[str, Any]) -> None:
    assert events_of(text("Hal"), end(outcome))[-2:] == [{"type": "TEXT_MESSAGE_END", "messageId": f"{KEY}.0"}, told]
    assert events_of(call("c1", "{"), end(outcome))[-2:] == [{"type": "TOOL_CALL_END", "toolCallId": "c1"}, told]


def test_calls_of_one_step_share_a_message_and_those_behind_a_result_have_another() -> None:
    told = events_of(QUESTION, call("a"), call("b"), result("a", "1"), result("b", "2"), call("c"), end())
    parents = [event["parentMessageId"] for event in told if "parentMessageId" in event]
    assert parents == [f"{KEY}.0", f"{KEY}.0", f"{KEY}.4"]


def test_an_agent_that_has_a_part_of_the_answer_drops_it_first() -> None:
    kept = [{"id": "m1", "role": "user", "content": "Rain?"}]
    events = parse_data(convert_all("ag-ui", [*WEATHER, end()], replace(TURN, kept=kept)))
    assert events[1] == {"type": "MESSAGES_SNAPSHOT", "messages": kept}
    assert [events[0], *events[2:]] == events_of(*WEATHER, end())
