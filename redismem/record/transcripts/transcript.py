"""A conversation that a framework keeps in a record: what a list shows of it, and its messages. No I/O."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple

from redismem.messages.message import Message
from redismem.protocol.call import Call

Kind = Literal["claude-agent-sdk", "google-adk", "langgraph", "pydantic-ai", "strands"]
"""The framework, as its extra is called."""
TOO_LARGE = "too large: a list does not read it, so open it"
DAMAGED = "damaged: or written by another release; `redismem doctor --deep` says more"
_EPOCH = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True)
class Transcript:
    """A conversation of a framework. Times are milliseconds since 1970, by the framework's clock; `None` if unknown."""

    kind: Kind | None
    """The framework; `None` if the record is damaged, so that nobody can tell."""
    id: str
    """The id of the record, as `Memory.record` takes it."""
    name: str
    """The framework's own name: a thread, a conversation, or the parts of a session's name joined by `/`."""
    owner: str | None = None
    """The person whom the record belongs to; `None` without one."""
    title: str | None = None
    """The beginning of the first message of a user, if the list could read it at little cost."""
    messages_count: int | None = None
    """The messages, or events, that the framework stores; `None` if they were not counted."""
    created_ms: int | None = None
    updated_ms: int | None = None
    last_role: str | None = None
    last_text: str = ""
    """The beginning of the last message."""
    fault: str | None = None
    """The reason that messages are missing here: damaged, encrypted, or too large for a list. `None` if none are."""
    messages: Sequence[Message] = ()
    """The messages, oldest first: only from `Memory.transcript`. The seq counts what is shown, from 1."""
    is_whole: bool = True
    """False if earlier messages were left out because of a limit."""


@dataclass(slots=True)
class TranscriptPage:
    """A page of transcripts, by the ids of their records. A page may be short or empty before the last one."""

    transcripts: list[Transcript]
    cursor: str | None
    """The cursor of the next page; `None` at the end."""


class Turned(NamedTuple):
    """A message as the framework wrote it, in a form of `redismem.formats`, and its time."""

    payload: dict[str, Any]
    time_ms: int | None = None


@dataclass(slots=True)
class Reading:
    """The part of a conversation that a reader has read."""

    messages: list[Turned] = field(default_factory=list)
    """The newest messages, oldest first."""
    first: list[Turned] = field(default_factory=list)
    """The first messages, if `messages` does not begin with them."""
    count: int | None = None
    created_ms: int | None = None
    updated_ms: int | None = None
    fault: str | None = None
    is_whole: bool = True
    size: int = 0
    """The bytes that were read."""


class Wanted(NamedTuple):
    """The part of a conversation to read, and how."""

    sizes: Callable[[Sequence[bytes]], Awaitable[dict[bytes, int]]]
    """Returns the bytes of fields of the record, without those that it lacks."""
    decode: Callable[[Callable[[], Any], int], Awaitable[Any]]
    """Returns what a function returns that decodes so many bytes: in a thread if they are many."""
    run: Callable[[Call[Any]], Awaitable[Any]]
    """Sends a call."""
    limit: int | None = None
    """The newest messages; `None` means all."""
    most_bytes: int | None = None
    """For a list: a field of more bytes is not read, and of a long conversation only both ends. `None` for no list.

    0 means that the list has read enough: no message is read.
    """

    @property
    def is_list(self) -> bool:
        """True if only a title and the last message are needed."""
        return self.most_bytes is not None


def moment_ms(text: object) -> int | None:
    """Return the milliseconds since 1970 of a time in ISO 8601, which is UTC if it names no zone; `None` if invalid."""
    if not isinstance(text, str):
        return None
    try:
        at = datetime.fromisoformat(text)
        return ((at if at.tzinfo else at.replace(tzinfo=UTC)) - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, OverflowError):
        return None
