"""Shorten a message: a note takes the place of each long text, picture or file in it. No I/O.

The result is an ordinary message of the same format, so every reader and every conversion takes it as it is. Calls keep
their ids and names, results the ids of their calls, and thoughts stay whole, because providers sign them.
"""

from __future__ import annotations

import json
from typing import Any

from redismem.formats.elements import is_data, kind_of
from redismem.formats.forms import MARKS, MEDIA, THOUGHT, UNKNOWN, Payload, find

LONG_CHARS = 2_048
"""Longer texts are shortened."""
_BEGINNING_CHARS = 1_000
_DEPTH_LIMIT = 64
_PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII="
_PICTURES = {
    "computer_screenshot": ("image_url", f"data:image/png;base64,{_PIXEL}"),
    "image_generation_call": ("result", _PIXEL),
}
"""Parts in which OpenAI takes nothing but a picture: by kind, the field of the picture, and an empty one."""
_TEXT_PARTS = (
    ("part_kind", {"part_kind": "text"}, "content"),
    ("block_type", {"block_type": "text"}, "text"),
    ("type", {"type": "text"}, "text"),
)
"""The text part of each format: the field that its parts have, the part without its text, the field of the text."""
_JSON_FIELDS = frozenset(["arguments", "args"])
"""Fields whose text is JSON."""
_VALUE_FIELDS = frozenset(["args", "input", "response", "json", "tool_kwargs", "result", "output"])
"""Fields of calls and results that may hold any dict."""
_KEPT_FIELDS = MARKS | {"id", "call_id", "tool_call_id", "signature", "encrypted_content", "redactedContent"}


def shorten(payload: Payload, *, is_opaque: bool = False) -> Payload | None:
    """Return a shorter copy of a message; `None` if it has nothing that may be shortened.

    Of an opaque message, only parts of a known form are shortened: nobody else knows what the rest means.
    """
    if find(payload)[0] is THOUGHT:
        return None
    shorter = _shorten_fields(payload, is_known=not is_opaque, depth=0)
    return None if shorter == payload else shorter


def _shorten_fields(fields: Payload, *, is_known: bool, depth: int) -> Payload:
    picture = _PICTURES.get(fields.get("type", "")) if type(fields.get("type")) is str else None
    if picture is not None and len(str(fields.get(picture[0]))) > LONG_CHARS:
        return {**fields, picture[0]: picture[1]}
    return {
        name: value if name in _KEPT_FIELDS else _shorten(value, name, is_known=is_known, depth=depth + 1)
        for name, value in fields.items()
    }


def _shorten(value: Any, name: str, *, is_known: bool, depth: int) -> Any:
    if depth > _DEPTH_LIMIT:
        return value
    if type(value) is str:
        return _note_text(value, name) if is_known and len(value) > LONG_CHARS else value
    if type(value) is list:
        return [_shorten(each, "", is_known=is_known, depth=depth + 1) for each in value]
    if type(value) is not dict:
        return value
    form, kind, _ = find(value)
    if form is THOUGHT:
        return value
    if form is MEDIA and kind not in _PICTURES:
        size = _size_of(value)
        return _note_media(value, size) if size > LONG_CHARS else value
    shorter = _shorten_fields(value, is_known=is_known or form is not UNKNOWN, depth=depth)
    if is_known and name in _VALUE_FIELDS and (size := _size_of(shorter)) > LONG_CHARS:
        return {"note": _note(f"{size:,} characters")}
    return shorter


def _note(size: str) -> str:
    return f"[{size} have left the context, which had become too large]"


def _note_text(text: str, name: str) -> str:
    beginning = "" if is_data(text) else f"{text[:_BEGINNING_CHARS]} … "
    note = beginning + _note(f"{len(text) - len(beginning):,} more characters" if beginning else f"{len(text):,} bytes")
    return json.dumps({"note": note}) if name in _JSON_FIELDS else note


def _note_media(part: Payload, size: int) -> Payload | str:
    """Return the text part that takes the place of a picture or file, in the format of the parts beside it."""
    note = _note(f"{kind_of(part)}: {size:,} bytes")
    if part.get("type") in ("input_image", "input_file"):
        return {"type": "input_text", "text": note}
    if "kind" in part and not {"type", "part_kind"} & part.keys():  # Pydantic AI: a prompt's parts may be strings
        return note
    for field, text_part, text_field in _TEXT_PARTS:
        if field in part:
            return {**text_part, text_field: note}
    return {"text": note}


def _size_of(value: Any) -> int:
    """Return about the length of a value as text, in linear time."""
    size, waiting = 0, [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str | bytes):
            size += len(each)
        elif isinstance(each, dict):
            size += sum(map(len, map(str, each)))
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each
        else:
            size += 8
    return size
