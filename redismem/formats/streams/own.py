"""The format `events`: the events as they are, each with its id, so that a client resumes behind any. No I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping

from redismem.formats.streams.encoding import SSE_HEADERS, frame
from redismem.formats.streams.stream import Event

_KIND = re.compile("[a-z_]{1,40}", re.ASCII)


class OwnStream:
    """Writes each event with its id and type. A reset is an event, so the client never needs to reconnect."""

    content_headers: Mapping[str, str] = SSE_HEADERS

    def __init__(self) -> None:
        self.must_reconnect = False
        self._has_ended = False

    def convert(self, event_id: str, event: Event) -> bytes:
        """Return the event, or `b""` behind the end and for an event without a type."""
        kind = event.get("type")
        if self._has_ended or not isinstance(kind, str) or not _KIND.fullmatch(kind):
            return b""
        self._has_ended = kind == "end"
        return frame(event, kind, event_id)

    def close(self) -> bytes:
        """Return `b""`: the event `end` ends the stream."""
        return b""
