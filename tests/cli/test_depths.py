"""Lines about queues and failing summaries."""

from __future__ import annotations

import pytest

from redismem.cli.depths import failures_line
from redismem.context.info import SessionInfo


@pytest.mark.parametrize(
    ("queued", "attempts", "line"),
    [
        ("overdue", 2, "failing for 1.0 s: 2 failed attempts, last: ValueError"),
        ("leased", 3, "failing for 1.0 s: 2 failed attempts, last: ValueError"),
        ("leased", 1, "failing for 1.0 s: ValueError"),
        (None, 2, ""),
    ],
)
def test_an_attempt_in_progress_has_not_failed(queued: str | None, attempts: int, line: str) -> None:
    info = SessionInfo(
        *("s", "1-ab", 12, 1, 12, 100, 0, (), None, 0, 0, queued),
        attempts=attempts,
        failure="ValueError",
        failing_since_ms=5_000,
    )
    assert failures_line(info, 6_000) == line
