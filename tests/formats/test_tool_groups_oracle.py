"""Safe cut points: equal to the results of slow, plain loops."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from support.conversations import Conversation, conversations

from redismem.formats.tool_groups import cut_after, cut_before, links, open_calls
from redismem.messages.message import Message

places = st.integers(-2, 25)


def slow_cut_before(messages: Sequence[Message], wanted: int) -> int:
    pairs = [pair for pair in links(messages) if pair[0] >= 0]
    place = wanted
    while parted := [call for call, result in pairs if call < place <= result]:
        place = min(parted)
    return place


def slow_cut_after(messages: Sequence[Message], wanted: int, keeps_orphans: bool = False) -> int:
    pairs = [pair for pair in links(messages) if pair[0] >= 0 or not keeps_orphans]
    place = wanted
    while parted := [result for call, result in pairs if call < place <= result]:
        place = max(parted) + 1
    return place


@given(told=conversations(max_size=20), wanted=places)
def test_cut_before_is_where_the_plain_loop_ends(told: Conversation, wanted: int) -> None:
    assert cut_before(told.messages, wanted) == slow_cut_before(told.messages, wanted)


@given(told=conversations(max_size=20), wanted=places.filter(lambda place: place >= 0), keeps_orphans=st.booleans())
def test_cut_after_is_where_the_plain_loop_ends(told: Conversation, wanted: int, keeps_orphans: bool) -> None:
    found = cut_after(told.messages, wanted, keeps_orphans=keeps_orphans)
    assert found == slow_cut_after(told.messages, wanted, keeps_orphans)


@given(told=conversations(max_size=20), stop=places)
def test_an_open_call_is_one_whose_own_id_no_result_has(told: Conversation, stop: int) -> None:
    messages = told.messages
    part = messages[: max(stop, 0)]
    made: dict[str, int] = {}
    answered = set()
    for at, message in enumerate(messages):
        if message.tool_call_id in made:
            answered.add((made[message.tool_call_id], message.tool_call_id))
        made.update({call["id"]: at for call in message.tool_calls or []})
    expected = [
        at
        for at, message in enumerate(part)
        if any((at, call["id"]) not in answered for call in message.tool_calls or [])
    ]
    assert open_calls(part, messages) == expected


def test_two_results_with_one_id_do_not_stand_for_two_calls() -> None:
    calls = [{"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}} for id in "ab"]
    result = Message("tool", "x", tool_call_id="a")
    messages = [Message("assistant", None, tool_calls=calls), result, result]
    assert open_calls(messages, messages) == [0]
    assert open_calls(messages, [*messages, Message("tool", "x", tool_call_id="b")]) == []
