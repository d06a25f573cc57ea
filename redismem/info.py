"""What is told of sessions beside their contexts: numbers of one, and lists of them. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields


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


@dataclass(frozen=True, slots=True, repr=False)
class Health:
    """What a memory knows of its Redis, without asking it; and what it has accepted that is not in Redis yet."""

    state: str
    """The state of the circuit breaker. "closed": calls go to Redis. "open": it is away, and nobody waits for it.
    "half_open": it is away, and one call looks for it."""
    since_ms: int | None
    """Since when Redis has not answered, in milliseconds since 1970 by this machine's clock; None while closed."""
    reason: str
    """What happened to the last call or probe; "" while closed."""
    fallback: bool = False
    backlog_session_count: int = 0
    """Sessions with something that is still to be replayed."""
    backlog_message_count: int = 0
    """Messages of theirs; a change of the state alone counts as one."""
    backlog_bytes: int = 0
    away_nodes: tuple[str, ...] = ()
    """Nodes of a cluster that do not answer, by host and port; sessions on others are served all the same."""
    refused_session_count: int = 0
    """Sessions whose replay Redis refuses for now, such as a window that may not grow; tried again and again."""
    holds: tuple[str, ...] = ()
    """What the workers of this process look after for all pods, such as "summaries/openai"."""

    def __repr__(self) -> str:
        """Whether it is away and the state, then what there is of the rest."""
        shown = {"is_away": self.is_away}
        shown |= {each.name: value for each in fields(self) if (value := getattr(self, each.name))}
        return f"Health({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    @property
    def is_away(self) -> bool:
        """Whether Redis counts as away: calls fail at once, or with the fallback are served by this process."""
        return self.state != "closed"
