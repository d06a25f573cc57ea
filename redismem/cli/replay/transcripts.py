"""Transcripts: a file of conversations, one a line, read line by line and cut into turns. No store here."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redismem.errors import InvalidSessionId


class BadLine(Exception):
    """Why a line cannot be replayed. Never quotes it."""


@dataclass(frozen=True, slots=True)
class Transcript:
    """One line of the file."""

    line: int
    session_id: str
    messages: list[dict[str, Any]]
    raw_bytes: int
    """The messages as compact JSON in UTF-8."""


def lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Number and bytes of each line that is not blank."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield number, line


def parse(number: int, line: bytes, check_id: Callable[[str], object]) -> Transcript:
    """A line of the file. `check_id` raises InvalidSessionId for what cannot be one. Raises BadLine."""
    try:
        found = json.loads(line)
    except UnicodeDecodeError:
        raise BadLine("not UTF-8") from None
    except json.JSONDecodeError as cause:
        raise BadLine(f"not JSON: {cause.msg} at column {cause.colno}") from None
    except (ValueError, RecursionError) as cause:
        raise BadLine(f"JSON that cannot be held ({type(cause).__name__})") from None
    if not isinstance(found, dict):
        raise BadLine("not a JSON object")
    session_id, messages = found.get("session_id"), found.get("messages")
    if not isinstance(session_id, str):
        raise BadLine("no session_id" if session_id is None else "session_id is not a string")
    try:
        check_id(session_id)
    except InvalidSessionId as refused:
        raise BadLine(str(refused)) from None
    if not isinstance(messages, list) or not messages:
        raise BadLine("no messages")
    for place, message in enumerate(messages, 1):
        if not isinstance(message, dict):
            raise BadLine(f"message {place} is not an object")
    raw = json.dumps(messages, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    return Transcript(number, session_id, messages, len(raw))


def turns(messages: list[dict[str, Any]], most: int) -> Iterator[list[dict[str, Any]]]:
    """Consecutive messages up to and with the next user message, `most` at a time; at last what follows the last one.

    So a turn stores what was said since the user spoke last and what they say now, and asks for the context.
    """
    turn: list[dict[str, Any]] = []
    for message in messages:
        turn.append(message)
        if message.get("role") == "user" or len(turn) == most:
            yield turn
            turn = []
    if turn:
        yield turn


def first_difference(wanted: list[dict[str, Any]], found: list[dict[str, Any]]) -> str | None:
    """Where two lists of messages are not the same; None if they are, to the type of every number.

    As JSON text: there 1, 1.0 and true differ, and so do null and absent, and the order of keys.
    """
    for place, (left, right) in enumerate(zip(wanted, found, strict=False), 1):
        if json.dumps(left) != json.dumps(right):
            return f"message {place} is not what the file says"
    if len(wanted) != len(found):
        return f"{len(found)} messages came back, not {len(wanted)}"
    return None
