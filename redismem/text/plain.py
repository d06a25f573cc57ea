"""Messages as plain text: texts, tool calls and results. Media appear as their kind. No I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from redismem.formats.days import date_of
from redismem.formats.elements import Element, Key, kind_of, words_beside
from redismem.formats.quoting import tag_pattern
from redismem.formats.reading import is_repeat, listed_keys, read_part, read_value
from redismem.formats.sections import name_of, sections, speaker_of, whole_result
from redismem.formats.tool_calls import is_parts
from redismem.messages.message import Message
from redismem.text.data_runs import replace_data
from redismem.text.normal_forms import REGION_FLAG, normalize

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
# The length of text that is searched for data: this multiple of its limit, but at most the second number.
_DATA_FACTOR = 16
_DATA_BYTES = 262_144
_NAME_CHARS = 64

# C0, C1, and the characters that reverse the order of letters or stay invisible: they hide text from a human reader.
_CONTROL = re.compile(f"({REGION_FLAG})|[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]")
_OWN_TAG = tag_pattern("transcript", "previous_summary", "summary", "known_items")


def clean_text(text: str) -> str:
    """Make text safe to send and store: valid UTF-8 in NFC, newlines as line ends, no control characters."""
    if text.replace("\n", "").isprintable():  # most texts are, and none of these has a character to remove
        return text if text.isascii() else normalize("NFC", text)
    text = text.encode("utf-8", "replace").decode().replace("\r\n", "\n").replace("\r", "\n")
    return normalize("NFC", _CONTROL.sub(r"\1", text))


def escape_tags(text: str) -> str:
    """Escape the tags of the prompt, so that the text can neither close nor open one."""
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
    """Return the items, or only the first and last ones if there are more than `limit`."""
    if len(items) <= limit:
        return items
    last = limit // 3
    return [*items[: limit - last], *items[len(items) - last :]]


def pieces(message: Message, limit_bytes: int | None = None) -> Iterator[Piece]:
    """Yield the texts of a message in any format, in order; media appear as their kind.

    With `limit_bytes`, data URLs and long runs of base64 or hex become `[data]`, and longer texts are shortened. Of
    very many parts or calls, only the first and last ones are read.
    """
    payload = message.visible
    whole = whole_result(payload)
    if whole is not None:
        yield "result", _flat(whole.content, limit_bytes)
    found = sections(payload, whole is not None)
    listed = listed_keys(found)
    numbers: dict[Key, int] = {}
    for section in found:
        values, share = _bounded(section.values, limit_bytes, _PARTS_COUNT)
        for value in values:
            element = read_value(value, section, numbers=numbers)
            if not is_repeat(element, listed):
                yield from _pieces(element, share, _PARTS_COUNT)


def _bounded(values: Sequence[Any], limit_bytes: int | None, most: int) -> tuple[Sequence[Any], int | None]:
    """Return the values to show, and the limit of each in bytes."""
    if limit_bytes is None:
        return values, None
    values = keep_ends(values, most)
    return values, max(limit_bytes // max(len(values) // 2, 1), 200)


def _pieces(element: Element, limit_bytes: int | None, most: int) -> Iterator[Piece]:
    """Yield the texts of an element."""
    if element.call is not None:
        yield _call(element.call.name, element.call.arguments)
    if element.result is not None:
        yield "result", _flat(element.result.content, limit_bytes, most // 20)
    if element.kind == "text":
        yield "text", _cleaned_to(element.text, limit_bytes)
    elif element.kind == "nested":
        yield from (("text", text) for text in _texts(element.inner, limit_bytes, most // 20))
    elif element.call is None and element.result is None:
        yield "part", f"[{one_line(kind_of(element.part))}]"
        words = _words(element, limit_bytes)
        if words:
            yield "text", words


def _texts(parts: Sequence[Any], limit_bytes: int | None, most: int) -> Iterator[str]:
    """Yield the texts of the parts within a part. From the third level of nesting on, parts become JSON."""
    if most <= 0 and limit_bytes is not None:
        yield _cleaned_to(_json_of(parts, limit_bytes), limit_bytes)
        return
    values, share = _bounded(parts, limit_bytes, most)
    for value in values:
        yield from (text for _, text in _pieces(read_part(value), share, most))


def _words(element: Element, limit_bytes: int | None) -> str:
    """Return the texts of a part without a form, or of a media part, such as a title."""
    words, chars = [], 0
    for text in words_beside(element):
        words.append(_cleaned_to(text, limit_bytes))
        chars += len(words[-1])
        if limit_bytes is not None and chars > limit_bytes:
            break
    text = "\n".join(words)
    return text if limit_bytes is None else shorten(text, limit_bytes)


def _call(name: Any, arguments: Any) -> Piece:
    text = "" if arguments is None else _flat(arguments, 2 * CALL_BYTES)
    return "call", f"{one_line(name) or 'a tool'}({shorten(text, CALL_BYTES)})"


def _flat(value: Any, limit_bytes: int | None, most: int = _PARTS_COUNT) -> str:
    """Return a tool's value as text.

    A list of parts becomes the texts of the parts; more deeply nested parts become JSON.
    """
    if value is None:
        return ""
    is_open = most > 0 or limit_bytes is None
    if is_open and (is_parts(value) or is_parts([value])):
        return "\n".join(_texts(value if isinstance(value, list) else [value], limit_bytes, most))
    return _cleaned_to(value if isinstance(value, str) else _json_of(value, limit_bytes), limit_bytes)


def _json_of(value: Any, limit_bytes: int | None) -> str:
    """Return a value as JSON. With a limit, only the beginning of a very large value is converted."""
    if limit_bytes is None:
        return json.dumps(value, ensure_ascii=False)
    chunks, chars = [], 0
    for encoded in json.JSONEncoder(ensure_ascii=False).iterencode(value):
        chunk = replace_data(shorten(encoded, _JSON_CHARS))
        chunks.append(chunk)
        chars += len(chunk)
        if chars > _JSON_CHARS:
            return "".join(chunks) + LEFT_OUT
    return "".join(chunks)


def _cleaned_to(text: str, limit_bytes: int | None) -> str:
    if limit_bytes is not None:
        # Data goes before the text is cut to its limit, so that the words around it get the space.
        most_bytes = max(limit_bytes, min(_DATA_FACTOR * limit_bytes, _DATA_BYTES))
        text = shorten(replace_data(shorten(text, most_bytes)), limit_bytes)
    return clean_text(text)


def one_line(value: Any) -> str:
    """Return a name or role as one short line; "" if the value is not a text."""
    return " ".join(clean_text(value[: 4 * _NAME_CHARS]).split())[:_NAME_CHARS] if isinstance(value, str) else ""


def day_of(message: Message) -> str:
    """Return the day of a message in the format of summaries, or "" if the message is not stored yet."""
    day = date_of(message.day)
    return f"{day.day} {MONTHS[day.month - 1]} {day.year}" if message.time_ms else ""


def speaker(message: Message) -> str:
    payload = message.visible
    role, name = one_line(speaker_of(payload)) or "message", one_line(name_of(payload) or payload.get("name"))
    return f"{role} {name}" if name else role


def render_message(message: Message, limit_bytes: int) -> str:
    """Render a message as a line with its seq and speaker, then its indented pieces.

    Because of the indent, no text can look like another message.
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

    A generator, so that a long transcript never blocks the event loop for long.
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
