"""Messages as plain text: texts, tool calls and tool results; attachments by name only. No I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from redismem.formats.tool_calls import GEMINI_CALLS, GEMINI_RESULTS, gemini_field
from redismem.messages.message import Message, moment

T = TypeVar("T")

Piece = tuple[str, str]
"""A kind (`text`, `call`, `result` or `part`) and a text."""

MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
CALL_BYTES = 600
RESULT_BYTES = 1_500
LEFT_OUT = " [... part left out ...] "
_PARTS_COUNT = 300
_JSON_CHARS = 8_000
_NAME_CHARS = 64

# C0, C1, and the characters that reverse the order of letters or stay invisible: they hide text from a human reader.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]")
# Possessive, so a long run of spaces is scanned only once.
_OWN_TAG = re.compile(r"<(?=\s*+/?+\s*+(?:transcript|previous_summary|summary|known_items)\b)", re.IGNORECASE)
_TEXT_PARTS = (None, "text", "input_text", "output_text", "refusal")


def clean_text(text: str) -> str:
    """Make text safe to send and store: encodable, with newlines between lines, without control characters."""
    text = text.encode("utf-8", "replace").decode().replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROL.sub("", text)


def escape_tags(text: str) -> str:
    """Escape the prompt's own tags, so that the text can neither close nor open one."""
    return _OWN_TAG.sub(r"<\\", text)


def shorten(text: str, limit_bytes: int) -> str:
    """Cut a text over the limit to its beginning and its end, with a note between them.

    The cost depends on the limit, not on the length of the text.
    """
    if len(text) <= limit_bytes and len(text.encode("utf-8", "replace")) <= limit_bytes:
        return text
    kept = max(limit_bytes - len(LEFT_OUT), 0)
    tail_bytes = kept // 3
    head = text[: kept - tail_bytes].encode("utf-8", "replace")[: kept - tail_bytes]
    tail = text[max(len(text) - tail_bytes, 0) :].encode("utf-8", "replace")
    tail = tail[max(len(tail) - tail_bytes, 0) :]
    return head.decode("utf-8", "ignore") + LEFT_OUT + tail.decode("utf-8", "ignore")


def keep_ends(items: Sequence[T], limit: int) -> Sequence[T]:
    """Return the items, or the first and the last ones if there are more than `limit`."""
    if len(items) <= limit:
        return items
    last = limit // 3
    return [*items[: limit - last], *items[len(items) - last :]]


def pieces(message: Message, limit_bytes: int | None = None) -> Iterator[Piece]:
    """Yield the pieces of a message in order: parts of OpenAI, Anthropic and Gemini, and other parts by name.

    With `limit_bytes`, longer texts are shortened first, and only the first and the last of very many parts or calls
    are read.
    """
    payload = message.to_openai()
    kind = payload.get("type")
    if kind in ("function_call", "custom_tool_call"):
        yield _call(payload.get("name"), payload.get("arguments", payload.get("input")))
    elif kind in ("function_call_output", "custom_tool_call_output"):
        yield "result", _flat(payload.get("output"), limit_bytes)
    elif payload.get("role") in ("tool", "function") and "parts" not in payload:
        yield "result", _flat(payload.get("content"), limit_bytes)
    else:
        parts = _listed(payload.get("content")) + _listed(payload.get("parts")) + _listed(payload.get("refusal"))
        yield from _pieces(parts, limit_bytes)
    calls = _listed(payload.get("tool_calls")) + _listed(payload.get("function_call"))
    for call in calls if limit_bytes is None else keep_ends(calls, _PARTS_COUNT):
        function = call.get("function", call) if isinstance(call, dict) else None
        function = function if isinstance(function, dict) else {}
        yield _call(function.get("name"), function.get("arguments", function.get("input")))


def _pieces(parts: Sequence[Any], limit_bytes: int | None, most: int = _PARTS_COUNT) -> Iterator[Piece]:
    if limit_bytes is not None:
        parts = keep_ends(parts, most)
        limit_bytes = max(limit_bytes // max(len(parts) // 2, 1), 200)
    for part in parts:
        yield _piece(part, limit_bytes, most)


def _listed(value: Any) -> list[Any]:
    if value is None or value == "":
        return []
    return value if isinstance(value, list) else [value]


def _piece(part: Any, limit_bytes: int | None, most: int) -> Piece:
    if isinstance(part, str):
        return "text", _cleaned_to(part, limit_bytes)
    if not isinstance(part, dict):
        return "text", _flat(part, limit_bytes)
    kind = part.get("type")
    if kind == "tool_use":
        return _call(part.get("name"), part.get("input"))
    if kind == "tool_result":
        return "result", _flat(part.get("content"), limit_bytes, most // 20)
    if kind is None and (called := gemini_field(part, GEMINI_CALLS)) is not None:
        return _call(called.get("name"), called.get("args"))
    if kind is None and (answered := gemini_field(part, GEMINI_RESULTS)) is not None:
        return "result", _flat(answered.get("response"), limit_bytes, most // 20)
    text = part.get("refusal" if kind == "refusal" else "text")
    if isinstance(text, str) and kind in _TEXT_PARTS:
        return "text", _cleaned_to(text, limit_bytes)
    name = kind if isinstance(kind, str) else next(iter(part), "part")
    return "part", f"[{one_line(name)}]"


def _call(name: Any, arguments: Any) -> Piece:
    text = "" if arguments is None else _flat(arguments, 2 * CALL_BYTES)
    return "call", f"{one_line(name) or 'a tool'}({shorten(text, CALL_BYTES)})"


def _flat(value: Any, limit_bytes: int | None, most: int = _PARTS_COUNT) -> str:
    """Return a tool's value as text. A list of parts becomes their texts; parts nested more deeply become JSON."""
    is_open = most > 0 or limit_bytes is None
    if is_open and isinstance(value, list) and value and all(_has_type(part) for part in value):
        return "\n".join(text for _, text in _pieces(value, limit_bytes, most))
    return _cleaned_to(value if isinstance(value, str) else _json_of(value, limit_bytes), limit_bytes)


def _has_type(part: Any) -> bool:
    return isinstance(part, dict) and "type" in part


def _json_of(value: Any, limit_bytes: int | None) -> str:
    """Return a value as JSON; with a limit, only the beginning of a very large value."""
    if limit_bytes is None:
        return json.dumps(value, ensure_ascii=False)
    chunks, chars = [], 0
    for chunk in json.JSONEncoder(ensure_ascii=False).iterencode(value):
        chunks.append(chunk)
        chars += len(chunk)
        if chars > _JSON_CHARS:
            return "".join(chunks) + LEFT_OUT
    return "".join(chunks)


def _cleaned_to(text: str, limit_bytes: int | None) -> str:
    return clean_text(text if limit_bytes is None else shorten(text, limit_bytes))


def one_line(value: Any) -> str:
    """Return a name or role as one short line; "" if the value is not a text."""
    return " ".join(clean_text(value[: 4 * _NAME_CHARS]).split())[:_NAME_CHARS] if isinstance(value, str) else ""


def day_of(message: Message) -> str:
    """Return the day of a message as summaries write it; "" if the message is not stored yet."""
    at = moment(message.time_ms)
    return f"{at.day} {MONTHS[at.month - 1]} {at.year}" if message.time_ms else ""


def speaker(message: Message) -> str:
    payload = message.to_openai()
    return " ".join(filter(None, (one_line(payload.get("role")) or "message", one_line(payload.get("name")))))


def render_message(message: Message, limit_bytes: int) -> str:
    """Render a message as a line with its place and speaker, then its indented pieces.

    The indent keeps a text from passing for another message.
    """
    lines = []
    for kind, text in pieces(message, limit_bytes):
        if kind == "result":
            text = "result: " + shorten(text, RESULT_BYTES)
        elif kind == "call":
            text = "calls " + text
        lines += [f"  {line}" for line in text.splitlines() if line.strip()]
    day = f", {day_of(message)}" if message.time_ms else ""
    head = f"[{message.seq}{day}] {speaker(message)}:"
    return shorten(escape_tags("\n".join([head, *(lines or ["  (no text)"])])), limit_bytes)


def split_transcript(messages: Iterable[Message], limit_bytes: int) -> Iterator[str]:
    """Split the transcript between messages, in order, into as few texts of at most `limit_bytes` as possible.

    A generator, so a long transcript never blocks for long.
    """
    part: list[str] = []
    room = 0
    for message in messages:
        text = render_message(message, limit_bytes)
        size = len(text.encode()) + 1
        if part and size > room:
            yield "\n".join(part)
            part = []
        if not part:
            room = limit_bytes + 1
        part.append(text)
        room -= size
    if part:
        yield "\n".join(part)
