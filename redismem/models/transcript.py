"""Messages as plain text: what was said, called and answered; attachments by name only. No I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from redismem.messages import Message

Piece = tuple[str, str]
"""What it is (`text`, `call`, `result`, `part`), and the text."""

CALL_BYTES = 600
RESULT_BYTES = 1_500
LEFT_OUT = " [... part left out ...] "

# Besides C0 and C1: what reverses the order of letters or is never seen, and so hides text from who reads a summary.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]")
_OWN_TAG = re.compile(r"<(?=\s*/?\s*(?:transcript|previous_summary|summary)\b)", re.IGNORECASE)
_TEXT_PARTS = (None, "text", "input_text", "output_text", "refusal")


def cleaned(text: str) -> str:
    """Text that can be sent and stored: encodable, lines parted by newlines, without control characters."""
    text = text.encode("utf-8", "replace").decode().replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROL.sub("", text)


def quoted(text: str) -> str:
    """Text that cannot close the tags around it, nor open such tags itself."""
    return _OWN_TAG.sub(r"<\\", text)


def shortened(text: str, limit_bytes: int) -> str:
    """The text; or, within the limit, its beginning and its end, and between them a note that something is missing."""
    encoded = text.encode()
    if len(encoded) <= limit_bytes:
        return text
    kept = max(limit_bytes - len(LEFT_OUT), 0)
    head, tail = encoded[: kept - kept // 3], encoded[len(encoded) - kept // 3 :]
    return head.decode("utf-8", "ignore") + LEFT_OUT + tail.decode("utf-8", "ignore")


def pieces(message: Message) -> Iterator[Piece]:
    """What a message holds, in order: OpenAI chat and Responses, Anthropic and Gemini parts, and names of the rest."""
    payload = message.to_openai()
    kind = payload.get("type")
    if kind in ("function_call", "custom_tool_call"):
        yield _call(payload.get("name"), payload.get("arguments", payload.get("input")))
    elif kind in ("function_call_output", "custom_tool_call_output"):
        yield "result", _flat(payload.get("output"))
    elif payload.get("role") in ("tool", "function"):
        yield "result", _flat(payload.get("content"))
    else:
        for part in _listed(payload.get("content")) + _listed(payload.get("parts")) + _listed(payload.get("refusal")):
            yield _piece(part)
    for call in _listed(payload.get("tool_calls")) + _listed(payload.get("function_call")):
        function = call.get("function", call) if isinstance(call, dict) else None
        function = function if isinstance(function, dict) else {}
        yield _call(function.get("name"), function.get("arguments", function.get("input")))


def _listed(value: Any) -> list[Any]:
    if value is None or value == "":
        return []
    return value if isinstance(value, list) else [value]


def _piece(part: Any) -> Piece:
    if isinstance(part, str):
        return "text", cleaned(part)
    if not isinstance(part, dict):
        return "text", _flat(part)
    kind = part.get("type")
    if kind == "tool_use":
        return _call(part.get("name"), part.get("input"))
    if kind == "tool_result":
        return "result", _flat(part.get("content"))
    text = part.get("refusal" if kind == "refusal" else "text")
    if isinstance(text, str) and kind in _TEXT_PARTS:
        return "text", cleaned(text)
    name = kind if isinstance(kind, str) else next(iter(part), "part")
    return "part", f"[{one_line(name)}]"


def _call(name: Any, arguments: Any) -> Piece:
    text = "" if arguments is None else _flat(arguments)
    return "call", f"{one_line(name) or 'a tool'}({shortened(text, CALL_BYTES)})"


def _flat(value: Any) -> str:
    """A value of a tool as text; of a list of parts, their texts."""
    if isinstance(value, list) and value and all(isinstance(part, dict) and "type" in part for part in value):
        return "\n".join(_piece(part)[1] for part in value)
    return cleaned(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def one_line(value: Any) -> str:
    """A name or role, of whatever a message holds in its place."""
    return " ".join(cleaned(value).split())[:64] if isinstance(value, str) else ""


def speaker(message: Message) -> str:
    payload = message.to_openai()
    return " ".join(filter(None, (one_line(payload.get("role")) or "message", one_line(payload.get("name")))))


def rendered(message: Message, limit_bytes: int) -> str:
    """A line with the place and the speaker, then what it holds, indented: no text can pass for another message."""
    lines = []
    for kind, text in pieces(message):
        if kind == "result":
            text = "result: " + shortened(text, RESULT_BYTES)
        elif kind == "call":
            text = "calls " + text
        lines += [f"  {line}" for line in text.splitlines() if line.strip()]
    head = f"[{message.seq}] {speaker(message)}:"
    return shortened(quoted("\n".join([head, *(lines or ["  (no text)"])])), limit_bytes)


def steps(messages: Sequence[Message], limit_bytes: int) -> list[str]:
    """The transcript, parted between messages into as few texts of at most `limit_bytes` as keep the order."""
    parts: list[list[str]] = []
    room = 0
    for message in messages:
        text = rendered(message, limit_bytes)
        size = len(text.encode()) + 1
        if size > room:
            parts.append([])
            room = limit_bytes + 1
        parts[-1].append(text)
        room -= size
    return ["\n".join(part) for part in parts]
