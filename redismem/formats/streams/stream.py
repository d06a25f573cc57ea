"""The interface that all formats of a turn's stream share. No I/O."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Event = Mapping[str, Any]
"""One event of a turn: a JSON object with a `type`."""


@dataclass(frozen=True, slots=True)
class StreamTurn:
    """The turn whose events are converted. Servers that give equal values make equal streams."""

    session_id: str
    turn_id: str
    """The caller's id of the turn."""
    generation: str = ""
    """The generation of the turn; "" if only its stored reply is left."""
    model: str = "redismem"
    """The name of the model in a Responses stream."""
    created_s: int = 0
    """The time of the turn's question in a Responses stream, in seconds since 1970."""
    starting_after: int = -1
    """The sequence number behind which a Responses stream begins; -1 means from the beginning."""
    kept: Sequence[Mapping[str, Any]] | None = None
    """The messages that a client of AG-UI keeps, because it has a part of the answer; None means all that it has."""

    message_id: str = ""
    """The id of the message that a client of the AI SDK goes on; "" for a new one, whose id is the key."""

    @property
    def key(self) -> str:
        """The start of every id in the stream: the generation, or a hash of the turn's id."""
        if self.generation:
            return self.generation
        return hashlib.blake2b(self.turn_id.encode("utf-8", "surrogatepass"), digest_size=7, person=b"turn").hexdigest()


class Stream(Protocol):
    """Converts the events of one turn, in order and from the first, to the bytes of a stream."""

    content_headers: Mapping[str, str]
    """The headers of the HTTP response."""
    must_reconnect: bool
    """True after a reset that the format cannot tell. Abort the connection, so that the client connects again.

    A clean end of the body looks like the end of the turn to some clients.
    """

    def convert(self, event_id: str, event: Event) -> bytes:
        """Return the bytes that tell the client of an event; `b""` if the format has nothing to say."""

    def close(self) -> bytes:
        """Return the bytes that follow the event `end`; `b""` if the turn has not ended."""
