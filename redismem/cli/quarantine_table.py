"""The table of `redismem quarantine list`, and the words in which a session or a record in quarantine is described."""

from __future__ import annotations

from collections.abc import Sequence

from redismem.cli.terminal import print_rows
from redismem.inspection.figures import duration, plural, printable
from redismem.inspection.quarantine import QuarantinedSession
from redismem.inspection.record_quarantine import QuarantinedRecord

_WORDS = {"messages": "message", "state": "field", "originals": "original", "record": "field", "order": "member"}

Quarantined = QuarantinedSession | QuarantinedRecord


def print_table(kind: str, entries: Sequence[tuple[str, Quarantined]], now_ms: int) -> None:
    """Print a table of sessions or records in quarantine, each with its id."""
    rows = [
        [
            printable(name),
            each.log_id,
            f"{duration(now_ms - each.put_ms)} ago",
            f"{each.put_ms}",
            describe_sizes(each),
            describe_end(each, now_ms),
        ]
        for name, each in entries
    ]
    print_rows((kind, "log", "since", "--at", "holds", ""), rows)


def describe_sizes(each: Quarantined) -> str:
    """Return what its keys hold."""
    return ", ".join(
        f"{key.name} is a {key.type}" if key.entry_count < 0 else plural(key.entry_count, _WORDS[key.name])
        for key in each.keys
    )


def describe_end(each: Quarantined, now_ms: int) -> str:
    """Return when the first of its keys expires."""
    ends = [key.expires_ms for key in each.keys if key.expires_ms >= 0]
    return f"expires in {duration(min(ends) - now_ms)}" if ends else "never expires"
