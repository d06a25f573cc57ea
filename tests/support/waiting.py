"""Deadlines of waits, and the wait of tests without an event loop. `until` in `checks.py` is the wait of the others."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import redis

PACE = float(os.environ.get("PACE", "1"))
"""The factor of all deadlines: more than 1 for a machine that is slow or busy."""
SOON_S = 10 * PACE
"""The deadline of a wait for something that this process, or a server that runs, does at once."""
START_S = 60 * PACE
"""The deadline of a wait for processes that have to start first."""


def wait_until(condition: Callable[[], object], what: str = "the condition", deadline_s: float = SOON_S) -> None:
    """Poll the condition until it is true; a node that does not answer makes it false.

    Raises:
        AssertionError: It was false until the deadline; `what` names it.
    """
    end_s = time.monotonic() + deadline_s
    while True:
        try:
            if condition():
                return
        except (redis.RedisError, OSError):
            pass
        assert time.monotonic() < end_s, f"not within {deadline_s:g} s: {what}"
        time.sleep(0.005)  # between two polls of a condition that has a deadline
