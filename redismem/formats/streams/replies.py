"""A stored reply as the events of its turn, for a turn whose log is gone. No I/O."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from redismem.formats.elements import NO_KEY, Element, kind_of
from redismem.formats.reading import read_message, read_part
from redismem.formats.streams.encoding import to_json
from redismem.messages.message import Message


def reply_events(message: Message) -> list[dict[str, Any]]:
    """Return the events of a reply in any message form, without the end of its turn. Thoughts are left out."""
    return [event for element in read_message(message.visible) for event in _events_of(element)]


def _events_of(element: Element) -> Iterator[dict[str, Any]]:
    call, result = element.call, element.result
    if element.kind == "nested":
        for part in element.inner:
            yield from _events_of(read_part(part))
    elif element.kind in ("text", "strings") and element.text:
        yield {"type": "text", "delta": element.text}
    elif element.kind in ("media", "strings") and isinstance(element.part, dict):
        yield {"type": "data", "name": kind_of(element.part), "data": element.part}
    if call is not None and call.key != NO_KEY and not element.is_repeat:
        name = call.name if isinstance(call.name, str) else ""
        given = call.arguments
        arguments = given if isinstance(given, str) else "" if given is None else to_json(given)
        yield {"type": "tool_call", "id": call.key[1], "name": name, "delta": arguments, "done": True}
    if result is not None and result.key != NO_KEY:
        yield {"type": "tool_result", "id": result.key[1], "content": result.content}
