"""Descriptions of the queues: session counts, waiting times and failing summaries."""

from __future__ import annotations

from redismem.context.info import Depth, SessionInfo
from redismem.inspection.figures import duration, plural
from redismem.inspection.work_rules import attempts_of
from redismem.store.depths import Depths


def sessions_line(depths: Depths) -> str:
    """Describe the number of sessions and the limit."""
    count = plural(depths.sessions_count, "session")
    if depths.over > 0:
        return f"{count}, {depths.over:,} over the limit of {depths.max_sessions:,}"
    return f"{count}, the limit is {depths.max_sessions:,}"


def wait_of(queue: str, depth: Depth, now_ms: int) -> str:
    """Say how long the first entry of a queue has waited, or must still wait; "" if the queue is empty."""
    if depth.first_ms is None:
        return ""
    ahead_ms = depth.first_ms - now_ms
    ago = duration(ahead_ms)
    if queue == "overdue":
        return f"oldest waits {ago}" if ahead_ms <= 0 else f"next try in {ago}"
    if queue == "leased":
        return f"expired {ago} ago, to be claimed again" if ahead_ms <= 0 else f"next expires in {ago}"
    if queue == "dead":
        return f"oldest died {ago} ago"
    return f"oldest waits {ago}" if ahead_ms <= 0 else f"in progress, for at most {ago}"


def failing_line(info: SessionInfo, now_ms: int) -> str:
    """Say how long the summaries of a queued session have been failing; "" if they are not."""
    if not info.queued or info.failing_since_ms is None:
        return ""
    return f"failing for {duration(now_ms - info.failing_since_ms)}"


def failures_line(info: SessionInfo, now_ms: int) -> str:
    """Return failing_line with the number of failed attempts and the last failure."""
    if not (since := failing_line(info, now_ms)):
        return ""
    count = info.attempts - (info.queued == "leased")  # the attempt in progress has not failed
    return f"{since}: {attempts_of(count, info.failure)}"
