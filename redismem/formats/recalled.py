"""Quote recalled messages with seq and time, as data that a model does not take for instructions. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

from redismem.formats.forms import Payload
from redismem.formats.quoting import quote_as_data
from redismem.formats.reading import read_message
from redismem.formats.sections import may_hold_calls
from redismem.formats.tool_calls import element_text
from redismem.messages.message import Message, moment

LINE_TOKENS = 8
"""The tokens of a line's prefix: seq, time and role."""


class Recalled(Protocol):
    """Recalled messages in order; messages and lines are created on demand."""

    def __len__(self) -> int:
        """The number of messages."""

    def messages(self) -> list[Message]:
        """Return new Message objects."""

    def lines(self) -> list[str]:
        """Return the messages formatted by `format_line`."""


def recalled_payload(recalled: Sequence[Message] | Recalled) -> Payload:
    """Return a user message that quotes the recalled messages."""
    heading = "Earlier messages of this conversation that may bear on what follows, with their numbers and times"
    lines = map(format_line, recalled) if isinstance(recalled, Sequence) else recalled.lines()
    return quote_as_data("recalled", heading, "\n".join(lines))


def format_line(message: Message) -> str:
    """Format a message with seq, time, role and text; continuation lines are indented."""
    payload = message.visible
    content = payload.get("content")
    if type(content) is str and not may_hold_calls(payload):
        text = content
    else:
        text = " ".join(filter(None, _texts(payload)))
    text = "\n  ".join(text.splitlines())  # no continuation line can pass for another message
    return f"[{message.seq}, {_minute(message.time_ms // 60_000)}] {message.role}: {text}"


@lru_cache(maxsize=4_096)
def _minute(minutes: int) -> str:
    return moment(minutes * 60_000).isoformat(sep=" ", timespec="minutes")[:16]


def _texts(payload: Payload) -> list[str]:
    """Return the texts of a message: results, then texts, then calls."""
    elements = [element for element in read_message(payload) if not element.is_repeat and element.kind != "note"]
    results = [element_text(element) for element in elements if element.kind == "result"]
    calls = [element_text(element) for element in elements if element.kind in ("call", "both")]
    said = [element_text(element) for element in elements if element.kind not in ("result", "call", "both")]
    return [*results, "\n".join(said), *calls]
