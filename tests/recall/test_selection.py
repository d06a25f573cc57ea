"""The choice of recalled messages: tool calls stay complete, with any number of results."""

from __future__ import annotations

import pytest
from text.test_linear import HISTORIES, call, check_growth, no_collections, room  # noqa: F401 (autouse fixtures)

from redismem.messages.message import Message
from redismem.recall.selection import group_calls, map_calls


def number_messages(messages: list[Message]) -> list[Message]:
    for seq, message in enumerate(messages, 1):
        message.seq = seq
    return messages


def test_calls_and_results_belong_together() -> None:
    assert group_calls(map_calls(number_messages(HISTORIES["one message with all calls"](4)))) == {
        at: {1, 2, 3, 4, 5} for at in range(1, 6)
    }
    pairs = group_calls(map_calls(number_messages(HISTORIES["results late by one"](3))))
    assert pairs == {1: {1, 3}, 3: {1, 3}, 4: {4, 6}, 6: {4, 6}, 7: {7, 9}, 9: {7, 9}}
    assert group_calls(map_calls(number_messages(HISTORIES["results without calls"](3)))) == {}
    both = Message("user", [{"type": "tool_result", "tool_use_id": id, "content": "x"} for id in ("a", "b")])
    alone = Message("user", "x")
    assert group_calls(map_calls(number_messages([call("a"), call("b"), alone, both]))) == {
        at: {1, 2, 4} for at in (1, 2, 4)
    }


@pytest.mark.parametrize("history", HISTORIES)
def test_what_belongs_together_takes_no_longer_than_there_are_messages(history: str) -> None:
    check_growth(
        f"groups, {history}",
        group_calls,
        lambda count: map_calls(number_messages(HISTORIES[history](count))),
        75,
    )
