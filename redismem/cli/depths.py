"""The queues in words: how deep they are, and what a session does in one."""

from __future__ import annotations

from redismem.cli.terminal import duration, plural
from redismem.info import SessionInfo
from redismem.inspection.depths import Depth, Depths


def sessions_line(depths: Depths) -> str:
    """How many sessions there are, and how many there may be."""
    count = plural(depths.sessions_count, "session")
    if depths.over > 0:
        return f"{count}, {depths.over:,} over the limit of {depths.max_sessions:,}"
    return f"{count}, the limit is {depths.max_sessions:,}"


def wait_of(queue: str, depth: Depth, now_ms: int) -> str:
    """What the first entry of a queue waits for, in words; "" if there is none."""
    if depth.first_ms is None:
        return ""
    ahead_ms = depth.first_ms - now_ms
    ago = duration(ahead_ms)
    if queue == "overdue":
        return f"oldest waits {ago}" if ahead_ms <= 0 else f"next try in {ago}"
    if queue == "leased":
        return f"ran out {ago} ago: to be taken over" if ahead_ms <= 0 else f"next runs out in {ago}"
    if queue == "dead":
        return f"oldest died {ago} ago"
    return f"oldest waits {ago}" if ahead_ms <= 0 else f"in hand, for {ago} at most"


def failing(info: SessionInfo, now_ms: int) -> str:
    """For how long the summaries of a session that waits for one have been failing; "" if they have not."""
    if not info.queued or info.failing_since_ms is None:
        return ""
    return f"failing for {duration(now_ms - info.failing_since_ms)}"


def failures(info: SessionInfo, now_ms: int) -> str:
    """The same, with how many attempts have failed, and why the last one did."""
    if not (since := failing(info, now_ms)):
        return ""
    count = info.attempts - (info.queued == "leased")  # the one under way has not failed
    return f"{since}: {attempts_of(count, info.failure)}"


def attempts_of(count: int, reason: str | None) -> str:
    """So many attempts that have failed, and why the last did. A session that was put in line again has none yet."""
    why = reason or "the reason is not noted"
    return f"{plural(count, 'failed attempt')}, the last: {why}" if count > 0 else why
