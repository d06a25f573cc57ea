"""Any events of a turn, cut anywhere: each format closes what it opened, and each server makes the same bytes."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.streams import (
    CHECKS,
    TURN,
    WEATHER,
    call,
    convert_all,
    end,
    parse_data,
    parse_frames,
    result,
    text,
    with_ids,
)

from redismem.formats.streams.opening import FORMATS, open_stream
from redismem.formats.streams.stream import StreamTurn

ODD = st.text(st.characters(), max_size=6) | st.sampled_from(
    ["\ud800", "\u2028", "\r\n\r\n", "\x85", '"}', "data: x\n\n"]
)
IDS = st.sampled_from(["a", "b", "a.1", "a.2", ""])
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | ODD,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ODD, inner, max_size=3),
    max_leaves=5,
)
EVENTS = st.lists(
    st.one_of(
        st.fixed_dictionaries({"type": st.sampled_from(["text", "reasoning"]), "delta": ODD}),
        st.fixed_dictionaries(
            {"type": st.just("tool_call"), "id": IDS},
            optional={"name": ODD, "delta": ODD | st.just("{}"), "done": st.booleans()},
        ),
        st.fixed_dictionaries({"type": st.just("tool_result"), "id": IDS}, optional={"content": JSON}),
        st.fixed_dictionaries({"type": st.just("data"), "name": ODD, "data": JSON}),
        st.fixed_dictionaries({"type": st.just("notice"), "code": ODD, "text": ODD}),
        st.fixed_dictionaries({"type": st.just("message"), "first_seq": st.integers(), "last_seq": st.integers()}),
        st.dictionaries(st.sampled_from(["type", "id", "delta", "name", "content", "outcome"]), JSON, max_size=4),
        st.fixed_dictionaries({"type": st.sampled_from(["text", "tool_call", "tool_result"])}, optional={"id": JSON}),
    ),
    max_size=12,
)
ENDS = st.builds(end, st.sampled_from(["done", "stopped", "failed", "lost", "odd"]), ODD, JSON)


@pytest.mark.parametrize("format", FORMATS)
@given(events=EVENTS, ended=ENDS, data=st.data())
def test_any_prefix_with_an_end_is_a_whole_stream(format: str, events: list[Any], ended: Any, data: Any) -> None:
    at = data.draw(st.integers(0, len(events)))
    whole = [*events[:at], ended]
    stream = convert_all(format, whole)
    CHECKS[format](stream)
    assert stream == convert_all(format, json.loads(json.dumps(whole)))
    running = convert_all(format, events[:at])
    if format == "ai" or "end" not in [event.get("type") for event in events]:
        assert stream.startswith(running.removesuffix(b"data: [DONE]\n\n"))


@pytest.mark.parametrize("format", ["ai", "ag-ui", "openai"])
def test_a_reset_in_the_middle_ends_the_stream_without_an_end(format: str) -> None:
    stream = open_stream(format, TURN)
    assert stream.convert("g.1", text("Hal"))
    assert stream.convert("g.2", {"type": "reset"}) == b""
    assert stream.must_reconnect
    assert stream.convert("g.3", text("Hello")) + stream.convert("g.4", end()) + stream.close() == b""


@pytest.mark.parametrize("format", ["ai", "ag-ui", "openai"])
def test_a_reset_before_all_else_has_nothing_to_take_back(format: str) -> None:
    assert convert_all(format, [{"type": "reset"}, *WEATHER, end()]) == convert_all(format, [*WEATHER, end()])


@pytest.mark.parametrize("format", ["ai", "ag-ui", "openai"])
def test_an_unknown_event_and_an_empty_delta_say_nothing(format: str) -> None:
    extra = [{"type": "unknown"}, text(""), {"type": ["text"]}, {"type": "text", "delta": 5}, {"type": "tool_result"}]
    mixed = [event for known in WEATHER for event in (known, *extra)]
    assert convert_all(format, [*mixed, end()]) == convert_all(format, [*WEATHER, end()])


@pytest.mark.parametrize("format", ["ai", "ag-ui", "openai"])
def test_messages_that_are_stored_in_the_middle_end_the_part_before_them(format: str) -> None:
    stored = {"type": "message", "first_seq": 2, "last_seq": 3}
    kinds = [each["type"] for each in parse_data(convert_all(format, [text("One."), stored, text("Two."), end()]))]
    opened = {"ai": "text-start", "ag-ui": "TEXT_MESSAGE_START", "openai": "response.output_item.added"}
    assert kinds.count(opened[format]) == 2


@pytest.mark.parametrize("format", FORMATS)
def test_numbers_that_json_lacks_are_null(format: str) -> None:
    events = [call("c", "{}"), result("c", [float("nan"), {"x": float("inf")}, 1.5]), end()]
    stream = convert_all(format, events)
    assert b"NaN" not in stream
    told = [each.get("output", each.get("content", each.get("item", {}).get("output"))) for each in parse_data(stream)]
    assert [None, {"x": None}, 1.5] in [json.loads(each) if isinstance(each, str) else each for each in told if each]


@pytest.mark.parametrize("format", FORMATS)
def test_the_stream_of_many_deltas_grows_with_them_alone(format: str) -> None:
    sizes = [len(convert_all(format, [text("word ")] * count + [end()])) for count in (1_000, 2_000, 4_000)]
    assert sizes[2] - sizes[1] < 2.1 * (sizes[1] - sizes[0])


@pytest.mark.parametrize("format", FORMATS)
def test_a_huge_delta_is_one_event(format: str) -> None:
    delta = "ü\ud800" * 500_000
    assert delta in [event.get("delta") for event in parse_data(convert_all(format, [text(delta), end()]))]


def test_a_turn_whose_generation_is_unknown_has_stable_ids_of_its_own() -> None:
    (start, *_) = parse_data(convert_all("ai", [end()], StreamTurn("chat-1", "turn-1")))
    (other, *_) = parse_data(convert_all("ai", [end()], StreamTurn("chat-1", "turn-2")))
    assert len(start["messageId"]) == 14
    assert start["messageId"] != other["messageId"]


def test_events_are_told_one_by_one() -> None:
    for format in FORMATS:
        stream = open_stream(format, TURN)
        told = [stream.convert(id, event) for id, event in with_ids(WEATHER)]
        assert all(b'"delta"' in told[at] or b'"inputTextDelta"' in told[at] for at in (1, 2, 3, 4, 5, 6, 11))
        assert all(parse_frames(each) for each in told if each)
