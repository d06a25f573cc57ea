"""The outcomes of a worker's attempt to summarise one session."""

from __future__ import annotations

from enum import StrEnum


class SummaryOutcome(StrEnum):
    """The outcome of one attempt to summarise a session.

    Covers the outcomes of a claim, a commit and a release, and the worker's own decisions between them.
    """

    OK = "ok"
    """A summary was committed, or the strategy dropped the messages."""
    WAITING = "waiting"
    """A tool call has no result yet: the worker released the session, and retries it soon."""
    FAILED = "failed"
    """The strategy failed or returned no usable summary: the session is due again after a backoff."""
    PAUSED = "paused"
    """The provider is down: the session is unchanged, and no attempt was counted."""
    STALE = "stale"
    """The window was pruned or cleared in the meantime: nothing was committed, and the worker released the session."""
    FENCED = "fenced"
    """The lease expired and another worker claimed the session: nothing was committed."""
    DEAD = "dead"
    """Too many attempts failed, or one failed permanently: the session is on the dead list."""
    GONE = "gone"
    """The session does not exist."""
    NONE = "none"
    """The session is in no queue."""
    NOTDUE = "notdue"
    """The session is due later."""
    LEASED = "leased"
    """Another worker holds the session's lease."""
    NOOP = "noop"
    """The session was no longer overdue and left the queue."""
    BUSY = "busy"
    """This worker is already working on the session."""
    STOPPING = "stopping"
    """The worker was stopped before it reached this session."""
    UNAVAILABLE = "unavailable"
    """Redis did not answer, or sent an invalid reply. A claimed session is due again once its lease expires."""


WORKED_OFF = frozenset((SummaryOutcome.OK, SummaryOutcome.NOOP, SummaryOutcome.GONE))
"""The outcomes after which the session is no longer due, so that the next poll finds other sessions."""
