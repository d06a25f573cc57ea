"""Quote recalled messages by day, as data that a model does not take for instructions. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Protocol

from redismem.formats.days import name_day, resolve_days
from redismem.formats.forms import Payload
from redismem.formats.quoting import quote_as_data
from redismem.formats.reading import read_message
from redismem.formats.sections import may_hold_calls, name_of, speaker_of
from redismem.formats.tool_calls import element_text
from redismem.messages.encoding import estimate_tokens
from redismem.messages.message import Message
from redismem.messages.values import encode_plain

FRAME_TOKENS = 48
"""The tokens of the quotation around the lines: its heading and tags."""
DAY_TOKENS = 8
"""The tokens of the heading of a day."""
OWNER_FRAME_TOKENS = 52
"""The tokens of the quotation around the lines, if they are of several conversations."""
SESSION_TOKENS = 12
"""The tokens of the heading of a conversation and a day."""
_NAME_CHARS = 64
_DAY = itemgetter(0)


class Recalled(Protocol):
    """Recalled messages in order; messages and lines are created on demand."""

    unsearched_count: int
    """The number of earlier messages that were not searched."""

    def __len__(self) -> int:
        """The number of messages."""

    def messages(self) -> list[Message]:
        """Return new Message objects."""

    def lines(self) -> list[tuple[int, str]]:
        """Return the day of each message, and the message formatted by `format_line`."""


def recalled_payload(
    recalled: Sequence[Message] | Recalled,
    today: int | None = None,
    *,
    with_days: bool = True,
    session_id: str | None = None,
) -> Payload:
    """Return a user message that quotes the recalled messages, below a heading per day.

    Messages of several conversations of one person stand below a heading per conversation and day.

    Args:
        recalled: The messages.
        today: The day to which the quotation refers; None leaves it out.
        with_days: False leaves out all days.
        session_id: The present conversation, among those of a person.
    """
    heading = "Earlier messages of this conversation that may bear on what follows"
    if isinstance(recalled, Sequence):
        if any(message.session_id is not None for message in recalled):
            dated = f" (today is {name_day(today)})" if today is not None and with_days else ""
            heading = f"Earlier messages of conversations with this person that may bear on what follows{dated}"
            lines_of = _under_sessions(recalled, session_id, with_days=with_days)
            return quote_as_data("recalled", heading, "\n".join(lines_of))
        lines = [(message.day, format_line(message, with_days=with_days)) for message in recalled]
    else:
        lines = recalled.lines()
    if not with_days:
        return quote_as_data("recalled", heading, "\n".join(line for _, line in lines))
    if today is not None:
        heading = f"{heading}, by day (today is {name_day(today)})"
    return quote_as_data("recalled", heading, "\n".join(_under_days(lines)))


def _under_days(lines: Sequence[tuple[int, str]]) -> Iterator[str]:
    """Yield the lines, with a heading before the lines of each day."""
    before: int | None = None
    for day, line in sorted(lines, key=_DAY):  # a caller's timestamps need not be in the order of the messages
        if day != before:
            yield f"{name_day(day)}:"
            before = day
        yield line


def _under_sessions(recalled: Sequence[Message], here: str | None, *, with_days: bool) -> Iterator[str]:
    """Yield the lines, with a heading before the lines of each conversation, and of each day in it.

    Conversations have numbers instead of their ids, which a model has no use for.
    """
    sessions: dict[str | None, list[Message]] = {}
    for message in recalled:
        sessions.setdefault(message.session_id, []).append(message)
    numbers = {each: number for number, each in enumerate((each for each in sessions if each != here), 1)}
    for session_id, messages in sessions.items():
        name = "this conversation" if session_id == here else f"conversation {numbers[session_id]}"
        lines = [(message.day, format_line(message, with_days=with_days)) for message in messages]
        if not with_days:
            yield f"{name.capitalize()}:"
            yield from (line for _, line in lines)
            continue
        before: int | None = None
        for day, line in sorted(lines, key=_DAY):
            if day != before:
                yield f"{name_day(day)}, {name}:"
                before = day
            yield line


def format_line(message: Message, *, with_days: bool = True) -> str:
    """Format a message with role, name and text; continuation lines are indented.

    `with_days` adds the date to relative days such as "yesterday".
    """
    payload = message.visible
    content = payload.get("content")
    if type(content) is str and not may_hold_calls(payload):
        text = content
    else:
        text = " ".join(filter(None, _texts(payload)))
    if with_days:
        text = resolve_days(text, message.day)
    text = "\n  ".join(text.splitlines())  # no continuation line can pass for another message
    role, name = speaker_of(payload) or "message", name_of(payload)
    spoken = f" {' '.join(name[:_NAME_CHARS].split())}" if name else ""
    return f"{role}{spoken}: {text}"


def line_tokens(line: str, message: Message) -> int:
    """Return the tokens of a message's line, in the unit in which the message's own tokens were counted."""
    tokens = len(line.encode("utf-8", "surrogatepass")) // 4 + 1
    try:
        usual = estimate_tokens(visible := message.visible, encode_plain(visible))
    except (TypeError, ValueError, OverflowError):  # lone surrogates, or an opaque message
        return tokens
    return tokens if usual == message.tokens else -(-tokens * message.tokens // usual)


def _texts(payload: Payload) -> list[str]:
    """Return the texts of a message: results, then texts, then calls."""
    elements = [element for element in read_message(payload) if not element.is_repeat and element.kind != "note"]
    results = [element_text(element) for element in elements if element.kind == "result"]
    calls = [element_text(element) for element in elements if element.kind in ("call", "both")]
    said = [element_text(element) for element in elements if element.kind not in ("result", "call", "both")]
    return [*results, "\n".join(said), *calls]
