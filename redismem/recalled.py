"""Recalled messages as one text that a model is given: quoted, with seq and time; they give no orders. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from redismem.messages import Message, moment
from redismem.quoting import quoted_as_data
from redismem.tool_calls import Payload, calls, label, results, text_of

LINE_TOKENS = 8
"""What stands before a message: its seq, its time, who said it."""


def recalled_payload(messages: Sequence[Message]) -> Payload:
    """A message of the user's that quotes these, which are in order."""
    what = "Earlier messages of this conversation that may bear on what follows, with their numbers and times"
    return quoted_as_data("recalled", what, "\n".join(map(_line, messages)))


def _line(message: Message) -> str:
    time = moment(message.time_ms).isoformat(sep=" ", timespec="minutes")[:16]
    return f"[{message.seq}, {time}] {message.role}: {' '.join(filter(None, _texts(message.to_openai())))}"


def _texts(payload: dict[str, Any]) -> Iterator[str]:
    found = list(results(payload))
    if not found:
        yield text_of(payload.get("content") or payload.get("parts"))
    for result in found:
        yield f"(result) {text_of(result.content)}"
    for call in calls(payload):
        yield f"(called {label(call.name)} with {text_of(call.arguments)})"
