"""Outcomes of a worker's attempt to summarise one session."""

from __future__ import annotations

from enum import StrEnum


class SummaryOutcome(StrEnum):
    """Outcome of one attempt to summarise a session.

    Covers the outcomes of a claim, a commit and a release, and the worker's own decisions between them.
    """

    OK = "ok"
    """A summary was committed, or the strategy dropped the messages."""
    WAITING = "waiting"
    """A tool call has no result yet: the session was released and is retried soon."""
    FAILED = "failed"
    """The strategy returned no usable summary: the session is due again after a backoff."""
    PAUSED = "paused"
    """The provider is down: the session is unchanged, and no attempt was counted."""
    STALE = "stale"
    """The window was pruned or cleared in the meantime: nothing was committed, the session was released."""
    FENCED = "fenced"
    """The lease expired and another worker claimed the session: nothing was committed."""
    DEAD = "dead"
    """Too many attempts failed, or one failed permanently: the session is on the dead list."""
    GONE = "gone"
    """The session does not exist, or no longer does."""
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
    """Redis did not answer, or its reply could not be decoded. If the session was claimed, its lease expires."""


WORKED_OFF = frozenset((SummaryOutcome.OK, SummaryOutcome.NOOP, SummaryOutcome.GONE))
"""Outcomes that free a place in the queue for other due sessions."""
