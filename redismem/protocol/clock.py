"""The `now_ms` argument of scripts: the server's clock, or a caller's clock within valid bounds. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from time import time

from redismem.errors import InvalidTime
from redismem.messages.message import localize, moment, number_of_day
from redismem.protocol import layout

Clock = Callable[[], int]
"""A function that returns the time as an int of milliseconds since 1970."""

# Rejects clocks in other units: seconds fall below this range, microseconds above.
EARLIEST_MS = 978_307_200_000  # 2001
LATEST_MS = 253_370_764_800_000  # 9999


def clock_ms(clock: Clock) -> int:
    """Read the clock, in milliseconds since 1970.

    Raises:
        InvalidTime: the value is not an int, or not between 2001 and 9998.
    """
    now_ms: object = clock()
    if type(now_ms) is not int:
        raise InvalidTime(f"a clock must return milliseconds as an int, this one returned a {type(now_ms).__name__}")
    if not EARLIEST_MS <= now_ms < LATEST_MS:
        raise InvalidTime(f"a clock must return milliseconds since 1970, from 2001 to 9998; this one returned {now_ms}")
    return now_ms


def time_argument(clock: Clock | None) -> int | str:
    """Return the argument `now_ms` of a script. Without a clock, the script uses the server's clock.

    Raises:
        InvalidTime: the clock returned an invalid time.
    """
    return layout.NONE if clock is None else clock_ms(clock)


def local_day(clock: Clock | None, zone: str | None = None) -> int:
    """Return the number of the present day since 1970 in a time zone."""
    now_ms = int(time() * 1_000) if clock is None else clock_ms(clock)
    return number_of_day(localize(moment(now_ms), zone))
