"""Metadata of sessions and of the memory: SessionInfo, SessionPage, Queues and Health. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields

QUEUES = ("overdue", "leased", "dead", "evictions")
"""The queues of a namespace, as `Queues` names them."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Rules of one session, stored with it, which every process obeys whatever its settings."""

    keep_whole: bool = False
    """True: no summary ever covers its messages. `max_window_count` still limits the window."""
    idle_timeout_s: float | None = None
    """The longest time without activity. `None` takes it from the settings of the appending process."""
    exempt: bool = False
    """True: the session neither counts for `max_sessions` nor is evicted because of it."""
    zone: str | None = None
    """The time zone of the session's days, an IANA name such as "Europe/Zurich"; `None` means UTC. Recall, periods in
    questions and summaries use it for messages whose own timestamp names no other clock."""


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """Counts, times and queue of a session. Times are milliseconds since 1970 by the server's clock."""

    session_id: str
    epoch: str
    """The id of this life of the session: a clear or an expiry ends it."""
    total_messages: int
    """The number of messages of this epoch, without those that were popped, undone, rewritten or forgotten."""
    first_seq: int
    """The seq of the window's first message."""
    window_count: int
    """Messages in the window, without pinned ones."""
    window_tokens: int
    """The tokens of the messages in the window, without pinned ones."""
    summaries_count: int
    params_keys: tuple[str, ...]
    """The names of the params."""
    waiting_for_param: str | None
    """The name of the param that the agent waits for; None means that it waits for none."""
    active_ms: int
    """The time of last use, to the second."""
    expires_ms: int
    """The time at which Redis removes the session, unless the session is used before."""
    queued: str | None
    """The queue the session is in: overdue, leased or dead; None means no queue."""
    last_seq: int = 0
    """The last seq, equal to the number of seqs used in this epoch: a pop uses one, too."""
    pinned_count: int = 0
    attempts: int = 0
    """Failed attempts at the next summary, plus one if an attempt is running."""
    failure: str | None = None
    """The reason of the last failed attempt; None if none failed."""
    failing_since_ms: int | None = None
    """The time of the first failed attempt."""
    failed_ms: int | None = None
    """The time of the last failed attempt."""
    policy: Policy = Policy()
    owner: str | None = None
    """The person whom the session belongs to; None means that it was begun without an owner."""
    title: str | None = field(default=None, repr=False)
    """The title that was set; None means that none was."""
    turn: str | None = None
    """`running`, or the outcome of the last turn: done, stopped, failed or lost. None means that it had no turn."""
    degraded: bool = False
    """True if Redis was down and these are the numbers that this process knows, possibly stale."""


@dataclass(frozen=True, slots=True)
class Depth:
    """The length of a queue, and the time of its first session in milliseconds since 1970 by the server's clock."""

    count: int
    first_ms: int | None
    """Due since; for `leased` the end of the lease. None means that the queue is empty."""


@dataclass(frozen=True, slots=True)
class Queues:
    """The queues of a namespace at one moment. Times are milliseconds since 1970 by the server's clock."""

    namespace: str
    now_ms: int
    session_count: int
    """The sessions that count for the limit: not exempt ones, but expired ones that the sweep has not removed yet."""
    max_sessions: int
    """The session limit. Sessions above it are evicted."""
    overdue: Depth
    """Sessions that wait for a summary."""
    leased: Depth
    """Sessions that a worker summarises."""
    dead: Depth
    """Sessions whose summary failed for good."""
    evictions: Depth
    """Sessions that are about to be evicted."""
    ticked_ms: int | None
    """The time at which a worker last polled the queues; None means that none did within a day."""
    process_count: int
    """The running processes with workers for this namespace."""
    degraded: bool = False
    """True if a node of the cluster does not answer: its sessions are not counted."""

    def lag_ms(self, queue: str) -> int:
        """Return how long the first session of a queue has been due, in milliseconds; 0 means that none is due.

        Raises:
            ValueError: There is no such queue.
        """
        if queue not in QUEUES:
            raise ValueError(f"the queues are {', '.join(QUEUES)}")
        depth: Depth = getattr(self, queue)
        return 0 if depth.first_ms is None else max(0, self.now_ms - depth.first_ms)

    @property
    def tick_age_ms(self) -> int | None:
        """The time since a worker last polled the queues, in milliseconds; None means that none did within a day."""
        return None if self.ticked_ms is None else max(0, self.now_ms - self.ticked_ms)


@dataclass(frozen=True, slots=True)
class SessionEntry:
    """One session of `Memory.sessions()`."""

    session_id: str
    active_ms: int
    """The time of last use, in milliseconds since 1970, to the second."""
    title: str | None = field(default=None, repr=False)
    """The title of the session, or else the beginning of its first message by a user, at most 80 characters. None
    means that there is neither, or that the list was read without `newest`."""
    last_role: str | None = None
    """The role of the last message."""
    last_text: str = field(default="", repr=False)
    """The beginning of the last message, at most 160 characters."""
    owner: str | None = None
    """The person whom the session belongs to. None means that it has no owner, or that the list was read without
    `newest`."""


@dataclass(frozen=True, slots=True)
class SessionPage:
    """One page of `Memory.sessions()`."""

    sessions: Sequence[SessionEntry]
    """The sessions of this page, most recently active first."""
    cursor: str | None
    """The cursor of the next page; None on the last page."""


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The result of `Session.forget()`. It contains no text."""

    seqs: tuple[int, ...]
    """The seqs of the removed messages, ascending, including those of the same tool calls."""
    rewritten: tuple[tuple[int, int], ...] = ()
    """First and last seq of each summary that was written anew, from the originals that are left."""
    dropped: tuple[tuple[int, int], ...] = ()
    """First and last seq of each summary that was removed, because no originals of its messages are left."""


@dataclass(frozen=True, slots=True, repr=False)
class Health:
    """The health of Redis as this process sees it, without I/O, and the backlog that Redis does not have yet."""

    state: str
    """The state of the circuit breaker. "closed": calls go to Redis. "open": Redis is down, and calls do not wait for
    it. "half_open": Redis is down, and one call probes it."""
    since_ms: int | None
    """The start of the outage, in milliseconds since 1970 by this machine's clock; None while closed."""
    reason: str
    """The error of the last call or probe; "" while closed."""
    fallback: bool = False
    """True if the memory has the fallback."""
    backlog_session_count: int = 0
    """Sessions with appends or state changes to replay."""
    backlog_message_count: int = 0
    """Messages to replay; a state change without messages counts as one."""
    backlog_bytes: int = 0
    away_nodes: tuple[str, ...] = ()
    """The cluster nodes that do not answer, as host and port. Sessions on all other nodes work normally."""
    refused_session_count: int = 0
    """Sessions whose replay Redis refuses so far, for example because the window is full. The replay is retried."""
    holds: tuple[str, ...] = ()
    """The queues that the workers of this process poll for all pods, such as "summaries/openai"."""

    def __repr__(self) -> str:
        """Show `is_away` and all fields that are not empty."""
        shown = {"is_away": self.is_away}
        shown |= {field.name: value for field in fields(self) if (value := getattr(self, field.name))}
        return f"Health({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    @property
    def is_away(self) -> bool:
        """True if Redis counts as down: calls fail at once, or this process serves them if it has the fallback."""
        return self.state != "closed"
