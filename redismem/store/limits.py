"""Which sessions have to go, by a process's own settings or by what others of the namespace were given.

A default removes nothing that others were told to keep. A process that is given a limit, in code or by the environment,
puts it into the namespace's record, unless a larger one stands there. A worker that is given none keeps to that one.
"""

from __future__ import annotations

from dataclasses import dataclass

from redismem.environment import LONGEST_S, MOST_SESSIONS
from redismem.protocol.namespace_calls import Recorded
from redismem.settings import Settings

_NONE = Recorded(0, 0)


@dataclass(frozen=True, slots=True)
class Limits:
    """How many sessions a namespace may hold, and how long one may be without activity."""

    max_sessions: int
    idle_timeout_ms: int

    @classmethod
    def of(cls, settings: Settings, recorded: Recorded | None) -> Limits:
        """What a process enforces: each limit that it was given, else the larger of the default and the record's."""
        most, longest_ms = recorded or _NONE
        if "max_sessions" in settings.model_fields_set:
            most = 0
        if "idle_timeout_s" in settings.model_fields_set:
            longest_ms = 0
        return cls(max(settings.max_sessions, most), max(settings.idle_timeout_ms, longest_ms))


def to_record(settings: Settings, recorded: Recorded | None) -> dict[str, int]:
    """The fields of `Recorded` that these settings raise, with their values.

    What stands for a variable that cannot be used, so that nothing is removed meanwhile, was given by nobody.
    """
    most, longest_ms = recorded or _NONE
    limits = {}
    if "max_sessions" in settings.model_fields_set and most < settings.max_sessions < MOST_SESSIONS:
        limits["max_sessions"] = settings.max_sessions
    if "idle_timeout_s" in settings.model_fields_set and longest_ms < settings.idle_timeout_ms < LONGEST_S * 1_000:
        limits["idle_timeout_ms"] = settings.idle_timeout_ms
    return limits
