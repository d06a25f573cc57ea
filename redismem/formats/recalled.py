"""Recalled messages as one text that a model is given: quoted, with seq and time; they give no orders. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Protocol

from redismem.formats.quoting import quoted_as_data
from redismem.formats.tool_calls import (
    Payload,
    calls,
    label,
    may_hold_calls,
    parts_text,
    results,
    text_of,
    tools_in,
    whole_result,
)
from redismem.messages.message import Message, moment

LINE_TOKENS = 8
"""What stands before a message: its seq, its time, who said it."""


class Recalled(Protocol):
    """Messages that were found, in order. They, and the lines that quote them, are made when they are asked for."""

    def __len__(self) -> int:
        """How many there are."""

    def messages(self) -> list[Message]:
        """New ones each time."""

    def lines(self) -> list[str]:
        """What `line` makes of them."""


def recalled_payload(recalled: Sequence[Message] | Recalled) -> Payload:
    """A message of the user's that quotes these, which are in order."""
    what = "Earlier messages of this conversation that may bear on what follows, with their numbers and times"
    lines = map(line, recalled) if isinstance(recalled, Sequence) else recalled.lines()
    return quoted_as_data("recalled", what, "\n".join(lines))


def line(message: Message) -> str:
    """The message: its seq, its time, who said it and what. What has more than one line goes on indented."""
    payload = message.to_openai()
    content = payload.get("content")
    if type(content) is str and not may_hold_calls(payload):
        text = content
    else:
        text = " ".join(filter(None, _texts(payload)))
    text = "\n  ".join(text.splitlines())  # no line of it begins as another message's does
    return f"[{message.seq}, {_minute(message.time_ms // 60_000)}] {message.role}: {text}"


@lru_cache(maxsize=4_096)
def _minute(minutes: int) -> str:
    return moment(minutes * 60_000).isoformat(sep=" ", timespec="minutes")[:16]


def _texts(payload: dict[str, Any]) -> Iterator[str]:
    for result in results(payload):
        yield f"(result) {text_of(result.content)}"
    if whole_result(payload) is None:
        content = payload.get("content") or payload.get("parts")
        parts = (part for part, tool in tools_in(payload) if tool is None)
        yield parts_text(parts) if isinstance(content, list) else text_of(content)
    for call in calls(payload):
        yield f"(called {label(call.name)} with {text_of(call.arguments)})"
