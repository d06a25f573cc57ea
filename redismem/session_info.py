"""What is told of sessions beside their contexts: numbers of one, and lists of them. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """Numbers of a session. Times are milliseconds of the server's clock.

    The window's count and tokens are those of the messages that are not pinned.
    """

    session_id: str
    epoch: str
    total_messages: int
    first_seq: int
    window_count: int
    window_tokens: int
    summaries_count: int
    params_keys: tuple[str, ...]
    waiting_for_param: str | None
    active_ms: int
    expires_ms: int
    queued: str | None
    """The queue the session is in: overdue, leased, dead, or None."""
    pinned_count: int = 0
    attempts: int = 0
    """Failed attempts at its next summary, with one that is under way."""
    failure: str | None = None
    """Why the last of them failed; `failing_since_ms` is the first failure, `failed_ms` the last."""
    failing_since_ms: int | None = None
    failed_ms: int | None = None
    degraded: bool = False
    """Whether this is only what this process knows, because Redis was away."""


@dataclass(frozen=True, slots=True)
class SessionEntry:
    """A line of `Memory.sessions()`."""

    session_id: str
    active_ms: int


@dataclass(frozen=True, slots=True)
class SessionPage:
    """Sessions, the last active first, and the cursor of the next page (None: there is none)."""

    sessions: Sequence[SessionEntry]
    cursor: str | None
