"""Time zones by their IANA names, and the offsets of their clocks. Reads the system's zone database, once per zone."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache

from redismem.errors import InvalidSettings

log = logging.getLogger("redismem")
_NAME_CHARS = 64


@lru_cache(maxsize=256)
def find_zone(name: str) -> tzinfo | None:
    """Return the time zone with this name, such as "Europe/Zurich"; `None` if this system knows none."""
    from zoneinfo import ZoneInfo  # takes milliseconds of a cold start, and few sessions have a zone

    try:
        return ZoneInfo(name) if 0 < len(name) <= _NAME_CHARS and name.isascii() else None
    except (KeyError, ValueError, OSError):  # not in the database, or no name of a file in it
        return None


def check_zone(name: object) -> str | None:
    """Return the name of a zone, or `None` for `None`.

    Raises:
        InvalidSettings: It is no string, or this system knows no such zone.
    """
    if name is None or (isinstance(name, str) and find_zone(name) is not None):
        return name
    raise InvalidSettings(
        "a zone is an IANA name such as Europe/Zurich from this system's zone database (pip install tzdata adds one)"
    )


def local_zone(name: str, at: datetime) -> tzinfo:
    """Return the zone of a clock as its fixed offset from UTC at a time. An unknown zone is taken for UTC."""
    zone = find_zone(name)
    if zone is None:
        _warn_once(name)
        return UTC
    return timezone(at.astimezone(zone).utcoffset() or timedelta(0))


@lru_cache(maxsize=16)
def _warn_once(name: str) -> None:
    log.warning("the zone %s of a session is not in this system's database: its days are those of UTC", name)
