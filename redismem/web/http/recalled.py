"""Convert recalled messages to JSON values: whole, or their numbers and ids alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redismem.context.results import RecalledMessages
from redismem.formats.days import date_of
from redismem.formats.recalled import format_line, line_tokens
from redismem.messages.message import Message
from redismem.web.http.json import message_document


def recalled_document(messages: RecalledMessages, session_id: str) -> dict[str, Any]:
    """Return messages that were recalled in this session, each with its day and the session that it is from."""
    documents = [
        {"session_id": message.session_id or session_id, "day": _day_of(message), **message_document(message)}
        for message in messages
    ]
    return {"messages": documents, "tokens": _tokens_of(messages), "unsearched": messages.unsearched_count}


def recalled_numbers(messages: RecalledMessages, session_id: str) -> dict[str, Any]:
    """Return the seq, day and session of each message, the tokens of all as quoted, and the unsearched messages."""
    return {
        "seqs": [message.seq for message in messages],
        "days": [_day_of(message) for message in messages],
        "sessions": [message.session_id or session_id for message in messages],
        "tokens": _tokens_of(messages),
        "unsearched": messages.unsearched_count,
    }


def kept_numbers(numbers: dict[str, Any], session_id: str) -> dict[str, Any]:
    """Return the numbers of `recalled_numbers` as a reply keeps them: without sessions, if all are of this one."""
    left_out = {"unsearched"} if numbers["unsearched"] == 0 else set[str]()
    if set(numbers["sessions"]) == {session_id}:
        left_out.add("sessions")
    return {name: value for name, value in numbers.items() if name not in left_out}


def _day_of(message: Message) -> str:
    return date_of(message.day).isoformat()


def _tokens_of(messages: Sequence[Message]) -> int:
    return sum(line_tokens(format_line(message), message) for message in messages)
