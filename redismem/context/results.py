"""The results of appends, reads and recall beside the context: Receipt, State, Summary, RecalledMessages. No I/O."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any

from redismem.formats.quoting import quote_as_data
from redismem.messages.message import Message, localize, moment
from redismem.messages.values import decode_value, encode_value


class RecalledMessages(list[Message]):
    """The messages that a search has found, oldest first: a list that also says if the search was not complete."""

    def __init__(self, messages: Iterable[Message] = (), unsearched_count: int = 0) -> None:
        super().__init__(messages)
        self.unsearched_count = unsearched_count
        """The number of earlier messages that were not searched, at most; 0 means that all were.

        The first searches of a process in a session of more than 16,384 messages cover its newest ones. Each further
        search covers more. An index that takes too much memory never covers the oldest messages.
        """


@dataclass(slots=True, repr=False)
class Receipt:
    """The result of an append."""

    first_seq: int
    """The seq of the first appended message."""
    last_seq: int
    """The seq of the last appended message."""
    total: int
    """The number of seqs used so far, equal to `last_seq`."""
    created: bool
    """True if the append created the session."""
    duplicate: bool
    """True if the session already had an append with this id: nothing was written, and this is the first receipt."""
    window_count: int = field(default=-1, compare=False, repr=False)
    """Messages in the window after the append; -1 for a duplicate."""
    degraded: bool = field(default=False, repr=False)
    """True if Redis was down and this process accepted the append: seqs are provisional, and `created` is False."""
    replicas: int | None = field(default=None, compare=False, repr=False)
    """The number of replicas that acknowledged the append; None if no confirmation was requested."""
    epoch: str = field(default="", compare=False, repr=False)
    """The life of the session that has the messages, as `Context.epoch`; if `degraded`, the last known life."""
    newest_append: bytes = field(default=b"", compare=False, repr=False)
    """The random name of the append, as `Context.newest_append`; b"" if it is not known."""

    def __repr__(self) -> str:
        shown = (f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)
        return f"Receipt({', '.join(shown)}{', degraded' * self.degraded})"


@dataclass(slots=True, repr=False)
class State:
    """The state of a conversation, separate from its messages. Its `repr` shows names but no values."""

    params: dict[str, Any] = field(default_factory=dict)
    """Named JSON values."""
    waiting_for_param: str | None = None
    """The name of the param that the agent waits for; None means that it waits for none."""
    last_intent: Any = None
    last_result: Any = None
    plan: Any = None
    instruction: str | None = None
    """The instruction of this conversation, for its model; None means that the application's own holds."""
    degraded: bool = False
    """True if Redis was down and this is the state that this process knows, possibly stale."""

    def __repr__(self) -> str:
        degraded = " degraded" * self.degraded
        return f"<State params={sorted(self.params)} waiting_for_param={self.waiting_for_param!r}{degraded}>"


@dataclass(frozen=True, slots=True, repr=False)
class Summary:
    """A text that replaces the messages `first_seq` to `last_seq` in the context."""

    id: str
    text: str
    first_seq: int
    last_seq: int
    start_ms: int
    """The time of the first covered message, in milliseconds since 1970."""
    end_ms: int
    """The time of the last covered message, in milliseconds since 1970."""
    model: str
    """The provider and model, or the strategy, that wrote the text."""
    tokens: int
    created_ms: int
    """The time at which the summary was written, in milliseconds since 1970."""
    message_ids: tuple[str, ...]
    """The ids of the covered messages. A summary that merged other summaries has the ids of the merged summaries."""

    def __repr__(self) -> str:
        return f"<Summary {self.id} of {self.first_seq} to {self.last_seq} tokens={self.tokens}>"

    def encode(self) -> bytes:
        """Return the bytes of this summary for the state hash."""
        return encode_value([*(getattr(self, field.name) for field in fields(self)[:-1]), list(self.message_ids)])

    @classmethod
    def decode(cls, packed: bytes) -> Summary:
        """Return the summary from its bytes. Raises Undecodable, ValueError or TypeError for other bytes."""
        stored: Any = dict(zip((field.name for field in fields(cls)), decode_value(packed), strict=True))
        return cls(**stored | {"message_ids": tuple(stored["message_ids"])})

    def to_openai(self, zone: str | None = None) -> dict[str, str]:
        """Return a user message that quotes the summary as data, so instructions inside its text do not count.

        Its times are those of the time zone; `None` means UTC.
        """
        start, end = (localize(moment(ms), zone).isoformat(timespec="seconds") for ms in (self.start_ms, self.end_ms))
        what = f"Summary of the earlier messages {self.first_seq} to {self.last_seq} of this conversation"
        return quote_as_data("summary", f"{what} ({start} to {end})", self.text)
