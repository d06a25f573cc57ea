"""The time that a script is given: the server's, or what a caller's clock says, if that can be a time. No I/O."""

from __future__ import annotations

from collections.abc import Callable

from redismem.errors import InvalidTime
from redismem.protocol import layout

Clock = Callable[[], int]
"""Gives the time in milliseconds since 1970, as an int."""

# Seconds are below, microseconds above.
EARLIEST_MS = 978_307_200_000  # 2001
LATEST_MS = 253_370_764_800_000  # 9999


def clock_ms(clock: Clock) -> int:
    """What the clock says, in milliseconds. Raises InvalidTime for what cannot be a time."""
    now_ms: object = clock()
    if type(now_ms) is not int:
        raise InvalidTime(f"a clock gives milliseconds as an int, this one a {type(now_ms).__name__}")
    if not EARLIEST_MS <= now_ms < LATEST_MS:
        raise InvalidTime(f"a clock gives milliseconds since 1970, from 2001 to 9998; this one gave {now_ms}")
    return now_ms


def time_argument(clock: Clock | None) -> int | str:
    """The argument `now_ms` of a script. Raises InvalidTime."""
    return layout.NONE if clock is None else clock_ms(clock)
