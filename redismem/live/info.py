"""A turn of a session, by its id. No I/O."""

from __future__ import annotations

from dataclasses import dataclass

from redismem.messages.message import Message


@dataclass(frozen=True, slots=True)
class TurnInfo:
    """A running or ended turn, as its session knows it."""

    how: str
    """`running` or `ended`."""
    outcome: str
    """The outcome of an ended turn: done, stopped, failed or lost; "" while it runs."""
    generation: str
    """The name of the running turn, as in the ids of its events; "" of an ended one whose events are gone."""
    first_seq: int
    """The seq of the first message of the question."""
    last_seq: int
    """The seq of the last message of the turn; 0 while it runs."""
    reply_seq: int
    """The seq of the reply; 0 without a reply."""
    reply: Message | None = None
    """The reply; `None` without one, or if the session does not keep it any more."""
