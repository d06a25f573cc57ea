"""Transcripts: a file with one conversation per line, read line by line and cut into requests. Uses no store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from redismem.cli.terminal import Stop, progress
from redismem.errors import InvalidSessionId
from redismem.formats.sections import speaker_of

_PAUSE_LINES = 1_000
_MODEL_ROLES = ("assistant", "model", "ai", "chatbot")


Read = TypeVar("Read")


class BadLine(Exception):
    """A line cannot be read. The error's text gives the reason and never quotes the line."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question about a conversation, asked after its last message, and the answer that it needs."""

    text: str
    answer: str


@dataclass(frozen=True, slots=True)
class Transcript:
    """A conversation: one line of the file."""

    line: int
    session_id: str
    messages: list[dict[str, Any]]
    owner: str | None = None
    """The person whom the conversation belongs to, as a line of an archive names this person."""
    questions: Any = None
    """The field of that name, see `questions_of`."""


def lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the number and the bytes of each line that is not blank."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield number, line


async def sample(file: Path, most: int, read: Callable[[Transcript], Read]) -> tuple[list[Read], int]:
    """Read at most this many lines, spread evenly over the file, and count all of them. Shows progress.

    `read` raises BadLine for a transcript that is of no use.

    Raises:
        Stop: if the file or one of these lines cannot be read, or if there are none.
    """
    count = 0
    async for _ in _lines(file, "lines counted"):
        count += 1
    if not count:
        raise Stop(f"{file} has no conversations", 2)
    places = {number * count // min(most, count) for number in range(min(most, count))}
    found, place = list[Read](), 0
    async for number, line in _lines(file, "lines read"):
        if place in places:
            try:
                found.append(read(parse(number, line)))
            except BadLine as bad:
                hint = '; each line is one conversation: {"messages": [{…}, …]}' if number == 1 else ""
                raise Stop(f"{file}, line {number}: {bad}{hint}", 2) from None
        place += 1
    return found, count


async def _lines(file: Path, unit: str) -> AsyncIterator[tuple[int, bytes]]:
    """Yield the lines. Shows progress; Ctrl-C ends it between two lines."""
    with progress(unit) as advance:
        try:
            for number, line in lines(file):
                if number % _PAUSE_LINES == 0:
                    advance(number)
                    await asyncio.sleep(0)
                yield number, line
        except OSError as error:
            raise Stop(f"{file}: {error.strerror}", 2) from None


def parse(number: int, line: bytes, check_id: Callable[[str], object] | None = None) -> Transcript:
    """Parse a line of the file. `check_id` raises InvalidSessionId for an id that no session may have.

    Without it, the line needs no id, and one that it has is left alone.

    Raises:
        BadLine: if the line is no conversation.
    """
    try:
        row = json.loads(line)
    except UnicodeDecodeError:
        raise BadLine("not UTF-8") from None
    except json.JSONDecodeError as cause:
        raise BadLine(f"not JSON: {cause.msg.removesuffix(' at')} at column {cause.colno}") from None
    except (ValueError, RecursionError) as cause:
        raise BadLine(f"JSON that Python cannot represent ({type(cause).__name__})") from None
    if not isinstance(row, dict):
        raise BadLine("not a JSON object")
    session_id = "" if check_id is None else _check_session_id(row.get("session_id"), check_id)
    owner = row.get("owner")
    if owner is not None and not isinstance(owner, str):
        raise BadLine("owner is not a string")
    return Transcript(number, session_id, _check_messages(row.get("messages")), owner, row.get("questions"))


def _check_session_id(session_id: Any, check_id: Callable[[str], object]) -> str:
    if not isinstance(session_id, str):
        raise BadLine("no session_id" if session_id is None else "session_id is not a string")
    try:
        check_id(session_id)
    except InvalidSessionId as refused:
        raise BadLine(str(refused)) from None
    return session_id


def _check_messages(messages: Any) -> list[dict[str, Any]]:
    if not isinstance(messages, list) or not messages:
        raise BadLine("no messages")
    for place, message in enumerate(messages, 1):
        if not isinstance(message, dict):
            raise BadLine(f"message {place} is not an object")
    return messages


def questions_of(transcript: Transcript) -> list[Question]:
    """Return the marked answers of a line: `"questions": [{"text": …, "answer": …}]`.

    Raises:
        BadLine: if the field has another form.
    """
    given = [] if transcript.questions is None else transcript.questions
    questions = []
    for place, each in enumerate(given if isinstance(given, list) else [given], 1):
        text, answer = (each.get("text"), each.get("answer")) if isinstance(each, dict) else (None, None)
        if not isinstance(text, str) or not isinstance(answer, str) or not (text.strip() and answer.strip()):
            raise BadLine(f"question {place} has no text and answer")
        questions.append(Question(text, answer))
    return questions


def is_of_model(message: dict[str, Any]) -> bool:
    """True if a model wrote the message, in any provider's format."""
    role, kind = speaker_of(message), message.get("type")
    if role:
        return role.lower() in _MODEL_ROLES
    return isinstance(kind, str) and (kind == "reasoning" or kind.endswith("_call"))


def exchanges(messages: Sequence[dict[str, Any]], limit: int) -> Iterator[tuple[int, int, int]]:
    """Cut a conversation into requests to the model, each with its reply.

    Yields the places of the first message of the request, of the first one of the reply, and of the end. Each part has
    at most `limit` messages. A reply without a request before it begins a conversation; the last request may have no
    reply.
    """
    at = 0
    while at < len(messages):
        reply = at
        while reply < len(messages) and reply - at < limit and not is_of_model(messages[reply]):
            reply += 1
        end = reply
        while end < len(messages) and end - reply < limit and is_of_model(messages[end]):
            end += 1
        yield at, reply, end
        at = end
