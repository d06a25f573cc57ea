"""The events of a turn: check and encode those that a caller writes, and decode the lines of a log. No I/O."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from redismem.errors import InvalidMessage
from redismem.messages.values import DEPTH_LIMIT, is_json_value

Event = dict[str, Any]

_MEMBERS: Mapping[str, frozenset[str]] = {
    "text": frozenset(("delta",)),
    "reasoning": frozenset(("delta",)),
    "tool_call": frozenset(("id", "name", "delta", "done")),
    "tool_result": frozenset(("id", "content")),
    "data": frozenset(("name", "data")),
    "notice": frozenset(("code", "text")),
}
"""The events that a caller writes, with their members. `message` and `end` come from redismem itself."""
END = b'{"type":"end"'
"""The beginning of the line of the last event."""
_TEXTS = frozenset(("delta", "id", "name", "code", "text"))


def check_event(event: object, session_id: str) -> Event:
    """Return an event that a caller writes.

    Raises:
        InvalidMessage: the type is unknown, or a member is missing, unknown, no string or not JSON.
    """
    kind = event.get("type") if isinstance(event, Mapping) else None
    members = _MEMBERS.get(kind) if isinstance(kind, str) else None
    if not isinstance(event, Mapping) or not isinstance(kind, str) or members is None:
        why = f"an event is a string, or a mapping whose type is one of {', '.join(_MEMBERS)}"
        raise InvalidMessage(why, session_id)
    unknown = event.keys() - members - {"type"}
    if unknown:
        raise InvalidMessage(f"an event {kind} has the members {', '.join(sorted(members))} alone", session_id)
    needed = ("id",) if kind.startswith("tool_") else tuple(members)
    for name in needed:
        if name not in event:
            raise InvalidMessage(f"an event {kind} needs its member {name}", session_id)
    for name in _TEXTS & event.keys():
        if not isinstance(event[name], str):
            raise InvalidMessage(f"the member {name} of an event {kind} is a string", session_id)
    checked = dict(event)
    if not is_json_value(checked):
        why = f"an event {kind} has JSON values alone, nested at most {DEPTH_LIMIT} deep"
        raise InvalidMessage(why, session_id)
    return checked


def encode_event(event: Event) -> bytes:
    """Encode an event as one line."""
    text = json.dumps(event, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode() + b"\n"
    except UnicodeEncodeError:  # a lone surrogate, which only an escape can say
        return json.dumps(event, separators=(",", ":")).encode() + b"\n"


def decode_events(log: bytes | bytearray, offset: int) -> Iterator[tuple[int, Event]]:
    """Yield the events whose lines begin at this offset or behind it, each with the offset of the end of its line.

    An unfinished line at the end is left out. So is a line that contains no event.
    """
    while (end := log.find(b"\n", offset)) >= 0:
        line, offset = log[offset:end], end + 1
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and isinstance(event.get("type"), str):
            yield offset, event


def text_to_store(log: bytes | bytearray) -> tuple[str, int]:
    """Return the text that was said since the last append, and the number of appends: what a reply must contain.

    The first `message` event is that of the question.
    """
    said: list[str] = []
    appends_count = 0
    for _, event in decode_events(log, 0):
        if event["type"] == "text" and isinstance(event.get("delta"), str):
            said.append(event["delta"])
        elif event["type"] == "message":
            said.clear()
            appends_count += 1
    return join_text(said), max(0, appends_count - 1)


def join_text(deltas: Iterable[str]) -> str:
    """Return the text of these deltas. A character that two of them split becomes whole, as readers of JSON see it."""
    text = "".join(deltas)
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    return text
