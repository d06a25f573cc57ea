"""The title of a conversation, and the beginning of its last message, as lists show them. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from redismem.messages.message import Message
from redismem.text.plain import pieces

_TITLE_CHARS = 80
_PREVIEW_CHARS = 160
_PIECES_COUNT = 20


def title_of(messages: Sequence[Message]) -> str | None:
    """Return the beginning of the first message of a user that has a text; a tool's result is none."""
    for message in messages:
        if message.role == "user" and (text := _text_of(message, ("text",), _TITLE_CHARS)):
            return text
    return None


def last_of(messages: Sequence[Message]) -> tuple[str | None, str]:
    """Return role and beginning of the newest message that says or shows anything."""
    for message in reversed(messages):
        if text := _text_of(message, ("text", "part", "call", "result"), _PREVIEW_CHARS):
            return message.role if isinstance(message.role, str) else None, text
    return None, ""


def _text_of(message: Message, kinds: Sequence[str], limit_chars: int) -> str:
    found = islice(pieces(message, 4 * limit_chars), _PIECES_COUNT)
    text = " ".join(" ".join(text for kind, text in found if kind in kinds).split())
    return text if len(text) <= limit_chars else f"{text[: limit_chars - 1].rstrip()}…"
