"""Transcripts: a file with one conversation per line, read line by line and cut into turns. Uses no store."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redismem.errors import InvalidSessionId


class BadLine(Exception):
    """A line cannot be replayed. The error's text gives the reason and never quotes the line."""


@dataclass(frozen=True, slots=True)
class Transcript:
    """A conversation: one line of the file."""

    line: int
    session_id: str
    messages: list[dict[str, Any]]
    raw_bytes: int
    """The size of the messages as compact JSON in UTF-8, in bytes."""
    owner: str | None = None
    """The person whom the conversation belongs to, as a line of an archive names this person."""


def lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the number and the bytes of each line that is not blank."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield number, line


def parse(number: int, line: bytes, check_id: Callable[[str], object]) -> Transcript:
    """Parse a line of the file. `check_id` raises InvalidSessionId for an id that no session may have.

    Raises:
        BadLine: if the line cannot be replayed.
    """
    try:
        row = json.loads(line)
    except UnicodeDecodeError:
        raise BadLine("not UTF-8") from None
    except json.JSONDecodeError as cause:
        raise BadLine(f"not JSON: {cause.msg} at column {cause.colno}") from None
    except (ValueError, RecursionError) as cause:
        raise BadLine(f"JSON that Python cannot represent ({type(cause).__name__})") from None
    if not isinstance(row, dict):
        raise BadLine("not a JSON object")
    session_id, messages, owner = row.get("session_id"), row.get("messages"), row.get("owner")
    if not isinstance(session_id, str):
        raise BadLine("no session_id" if session_id is None else "session_id is not a string")
    if owner is not None and not isinstance(owner, str):
        raise BadLine("owner is not a string")
    try:
        check_id(session_id)
    except InvalidSessionId as refused:
        raise BadLine(str(refused)) from None
    messages = _check_messages(messages)
    raw = json.dumps(messages, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    return Transcript(number, session_id, messages, len(raw), owner)


def _check_messages(messages: Any) -> list[dict[str, Any]]:
    if not isinstance(messages, list) or not messages:
        raise BadLine("no messages")
    for place, message in enumerate(messages, 1):
        if not isinstance(message, dict):
            raise BadLine(f"message {place} is not an object")
    return messages


def turns(messages: list[dict[str, Any]], limit: int) -> Iterator[list[dict[str, Any]]]:
    """Cut a conversation into turns, each of which ends with a user message or has `limit` messages.

    The messages after the last user message are the last turn.
    """
    turn: list[dict[str, Any]] = []
    for message in messages:
        turn.append(message)
        if message.get("role") == "user" or len(turn) == limit:
            yield turn
            turn = []
    if turn:
        yield turn


def first_difference(expected: list[dict[str, Any]], stored: list[dict[str, Any]]) -> str | None:
    """Describe the first difference between two lists of messages; `None` if they are identical.

    Compares JSON text: 1, 1.0 and true differ, and so do null and an absent key, and two orders of the keys.
    """
    for place, (left, right) in enumerate(zip(expected, stored, strict=False), 1):
        if json.dumps(left) != json.dumps(right):
            return f"message {place} differs from the file"
    if len(expected) != len(stored):
        return f"{len(stored)} messages came back, not {len(expected)}"
    return None
