"""Deadlines of waits, and the wait of tests without an event loop. `until` in `checks.py` is the wait of the others."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

import redis

PACE = float(os.environ.get("PACE", "1"))
"""The factor of all deadlines: more than 1 for a machine that is slow or busy."""
SOON_S = 10 * PACE
"""The deadline of a wait for something that this process, or a server that runs, does at once."""
START_S = 60 * PACE
"""The deadline of a wait for processes that have to start first."""


def pauses_s() -> Iterator[float]:
    """Yield the pauses between the polls of a condition: what takes long is asked less often, as each poll costs."""
    pause_s = 0.002
    while True:
        yield pause_s
        pause_s = min(1.5 * pause_s, 0.025)


def wait_until(condition: Callable[[], object], what: str = "the condition", deadline_s: float = SOON_S) -> None:
    """Poll the condition until it is true; a node that does not answer makes it false.

    Raises:
        AssertionError: It was false until the deadline; `what` names it.
    """
    end_s = time.monotonic() + deadline_s
    for pause_s in pauses_s():
        try:
            if condition():
                return
        except (redis.RedisError, OSError):
            pass
        assert time.monotonic() < end_s, f"not within {deadline_s:g} s: {what}"
        time.sleep(pause_s)  # between two polls of a condition that has a deadline
