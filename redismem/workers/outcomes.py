"""What can become of a session that a worker was to summarise."""

from __future__ import annotations

from enum import StrEnum


class SummaryOutcome(StrEnum):
    """What became of one session: the outcomes of a claim, a commit, a release, and what comes before and between."""

    OK = "ok"
    """A summary was committed, or the messages were dropped, as the strategy says."""
    WAITING = "waiting"
    """A tool call has no result yet: the session was given back, and is looked at again soon."""
    FAILED = "failed"
    """The strategy gave no usable summary: the session is due again after a pause."""
    PAUSED = "paused"
    """The provider answers nobody: the session is as it was, and no attempt was counted."""
    STALE = "stale"
    """The window was pruned or cleared meanwhile: nothing was committed, the session was given back."""
    FENCED = "fenced"
    """The lease ran out and another worker has the session: nothing was committed."""
    DEAD = "dead"
    """Too many attempts failed, or one whose failure lasts: the session is on the dead list."""
    GONE = "gone"
    """There is no such session, or not any more."""
    NONE = "none"
    """The session is in no queue."""
    NOTDUE = "notdue"
    """The session is due later."""
    LEASED = "leased"
    """Another worker has the session in hand."""
    NOOP = "noop"
    """The session is not overdue any more, and left the queue."""
    BUSY = "busy"
    """This worker has the session in hand already."""
    STOPPING = "stopping"
    """The worker was told to stop before it came to this session."""
    UNAVAILABLE = "unavailable"
    """Redis did not answer, or the answer could not be read. If the session was claimed, its lease runs out."""


WORKED_OFF = frozenset((SummaryOutcome.OK, SummaryOutcome.NOOP, SummaryOutcome.GONE))
"""Outcomes after which a session has made room in the queue for others that are due."""
