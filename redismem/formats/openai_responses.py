"""Write a context as the input of OpenAI's Responses API. No I/O.

Items and messages that OpenAI accepts are the same dicts as the stored ones. The others are written anew from their
parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redismem.formats.forms import Payload
from redismem.formats.identifiers import OPENAI_RESPONSES, sound_id, tool_name
from redismem.formats.openai_parts import (
    Writer,
    file_data,
    image_url,
    is_arguments,
    is_tool_name,
    join_texts,
    json_arguments,
)
from redismem.formats.parts import ASSISTANT, SYSTEM, USER, Call, Media, Part, View
from redismem.formats.reading import is_thought
from redismem.formats.sections import item_form
from redismem.formats.sendable import replace_unsendable
from redismem.formats.tool_calls import text_of
from redismem.formats.tool_pairing import pair_items
from redismem.messages.message import Opaque

_ROLES = ("user", "assistant", "system", "developer")
_FIELDS = frozenset(["role", "content", "type", "id", "status", "phase"])


def responses_input(
    payloads: Sequence[Payload],
    pinned_count: int = 0,
    cut_at: int | None = None,
    *,
    ids: bool = True,
    thoughts: bool = True,
    tools: bool = True,
) -> list[Payload]:
    """Write messages as items, with the dicts of opaque messages in their places. For the counts see `pair_items`."""
    writer = _Writer(View(thoughts=thoughts, tools=tools))
    places = writer.write(payloads)
    cut = None if cut_at is None else places[cut_at]
    paired = pair_items(writer.written, places[pinned_count], cut, ids=ids and thoughts)
    return [each.payload if type(each) is Opaque else replace_unsendable(each) for each in paired]


class _Writer(Writer):
    """Writes items."""

    def __init__(self, view: View) -> None:
        super().__init__(view, OPENAI_RESPONSES)
        self._custom_ids: set[str] = set()

    def keep(self, payload: Payload) -> Payload | None:
        form = item_form(payload)
        if form is None:
            return payload if _is_message(payload) else None
        if not isinstance(payload.get("id"), str | None):
            payload = {name: value for name, value in payload.items() if name != "id"}
        if is_thought(payload):
            return payload if self._view.thoughts else None
        is_tools = form.role in ("call", "result", "hosted")
        return _sound_item(payload) if self._view.tools or not is_tools else None

    def media(self, media: Media) -> Payload | None:
        if media.part is not None and _is_part(media.part, USER):
            return {"detail": "auto", **media.part} if media.kind == "image" else media.part
        url, file = image_url(media), file_data(media)
        if url is not None:
            return {"type": "input_image", "image_url": url, "detail": "auto"}
        if media.kind == "file" and media.url is not None and media.url.startswith("http"):
            return {"type": "input_file", "file_url": media.url}
        return None if file is None else {"type": "input_file", **file}

    def say(self, role: str, said: Sequence[Payload], payload: Payload) -> None:
        own = payload.get("role")
        role = own if role == SYSTEM and own in _ROLES else role
        self.written.append({"role": role, "content": _content(said)})

    def call(self, part: Call, call_id: str) -> None:
        call, stored = part
        made = {"call_id": call_id, "name": tool_name(call.name)}
        if stored.get("type") == "custom" and isinstance(call.arguments, str):
            self._custom_ids.add(call_id)
            self.written.append({"type": "custom_tool_call", **made, "input": call.arguments})
        else:
            self.written.append({"type": "function_call", **made, "arguments": json_arguments(call.arguments)})

    def answer(self, parts: Sequence[Part], call_id: str) -> None:
        kind = "custom_tool_call_output" if call_id in self._custom_ids else "function_call_output"
        self.written.append({"type": kind, "call_id": call_id, "output": _content([*map(self.part, parts)], "\n")})


def _content(parts: Sequence[Payload], between: str = "\n\n") -> str | list[Payload]:
    joined = join_texts(parts, between)
    return [part | {"type": "input_text"} if "text" in part else part for part in parts] if joined is None else joined


def _sound_item(item: Payload) -> Payload:
    """Return the item with a call id, a name, arguments and an output that OpenAI accepts."""
    changes: Payload = {}
    kind, call_id = item["type"], item.get("call_id")
    if isinstance(call_id, str) and not OPENAI_RESPONSES.fullmatch(call_id):
        changes["call_id"] = sound_id(call_id, OPENAI_RESPONSES)
    if kind == "function_call" and not is_arguments(item.get("arguments")):
        changes["arguments"] = json_arguments(item.get("arguments"))
    if kind in ("function_call", "custom_tool_call") and not is_tool_name(item.get("name")):
        changes["name"] = tool_name(item.get("name"))
    if kind in ("function_call_output", "custom_tool_call_output") and not _is_output(item.get("output")):
        changes["output"] = text_of(item.get("output"))
    return item | changes if changes else item


def _is_output(output: Any) -> bool:
    return isinstance(output, str) or (isinstance(output, list) and all(_is_part(part, USER) for part in output))


def _is_message(payload: Payload) -> bool:
    """True for a message that OpenAI accepts unchanged."""
    role, content = payload.get("role"), payload.get("content")
    if role not in _ROLES or not payload.keys() <= _FIELDS or payload.get("type", "message") != "message":
        return False
    if isinstance(content, str):
        return "id" not in payload
    return isinstance(content, list) and bool(content) and all(_is_part(part, role) for part in content)


def _is_part(part: Any, role: str) -> bool:
    """True for a part of a content that OpenAI accepts from this role."""
    match part:
        case {"type": "input_text", "text": str()}:
            return role != ASSISTANT
        case {"type": "input_image", "image_url": str()} | {"type": "input_image", "file_id": str()}:
            return role == USER
        case {"type": "input_file", "file_data": str(), "filename": str()}:
            return role == USER
        case {"type": "input_file", "file_id": str()} | {"type": "input_file", "file_url": str()}:
            return role == USER
        case {"type": "output_text", "text": str()} | {"type": "refusal", "refusal": str()}:
            return role == ASSISTANT
    return False
