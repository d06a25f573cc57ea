"""The formats by name. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from redismem.errors import InvalidMessage
from redismem.formats.streams.ag_ui import AgUiStream
from redismem.formats.streams.ai_sdk import AiSdkStream
from redismem.formats.streams.own import OwnStream
from redismem.formats.streams.responses import ResponsesStream
from redismem.formats.streams.stream import Stream, StreamTurn

FORMATS: Mapping[str, Callable[[StreamTurn], Stream]] = {
    "events": lambda _: OwnStream(),
    "ai": AiSdkStream,
    "ag-ui": AgUiStream,
    "openai": ResponsesStream,
}


def open_stream(format: str, turn: StreamTurn) -> Stream:
    """Return a converter of a turn's events. `events` may begin behind any event, the others begin with the first.

    Raises:
        InvalidMessage: There is no such format.
    """
    stream = FORMATS.get(format)
    if stream is None:
        raise InvalidMessage(f"a stream's format is one of {', '.join(FORMATS)}")
    return stream(turn)
