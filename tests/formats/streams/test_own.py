"""The format of redismem's own clients: each event with its id."""

import pytest
from support.streams import TURN, WEATHER, convert_all, end, parse_frames, text, with_ids

from redismem.errors import InvalidMessage
from redismem.formats.streams.opening import open_stream


def test_each_event_has_its_id_and_type() -> None:
    stream = open_stream("events", TURN)
    assert stream.convert("7-ab12cd34.52", text("Hi")) == (
        b'id: 7-ab12cd34.52\nevent: text\ndata: {"type":"text","delta":"Hi"}\n\n'
    )


def test_a_reset_is_an_event_and_the_stream_goes_on() -> None:
    stream = open_stream("events", TURN)
    assert b"event: reset" in stream.convert("7-ab12cd34.0", {"type": "reset"})
    assert not stream.must_reconnect
    assert b"event: text" in stream.convert("7-ab12cd34.9", text("Hi"))


def test_a_client_that_resumes_gets_the_same_bytes() -> None:
    events = [*WEATHER, end()]
    whole = convert_all("events", events)
    for at in range(len(events)):
        stream = open_stream("events", TURN)
        rest = b"".join(stream.convert(id, event) for id, event in with_ids(events)[at:])
        assert whole.endswith(rest)
        assert len(parse_frames(rest)) == len(events) - at


def test_a_type_that_would_break_the_frame_is_left_out() -> None:
    stream = open_stream("events", TURN)
    for kind in ("a\nid: 3", "", None, 5, "ü"):
        assert stream.convert("7-ab12cd34.9", {"type": kind}) == b""


def test_nothing_follows_the_end() -> None:
    stream = open_stream("events", TURN)
    assert stream.convert("7-ab12cd34.9", end())
    assert stream.convert("7-ab12cd34.19", text("Hi")) + stream.close() == b""


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(InvalidMessage, match="events, ai, ag-ui, openai"):
        open_stream("sse", TURN)
