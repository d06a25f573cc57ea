"""The session limit, by a process's own settings or by what others of the namespace were given.

A default removes nothing that others were told to keep. A process that is given a limit, in code or by the environment,
puts it into the namespace's record, unless a larger one stands there. A worker that is given none keeps to that one.
The timeout needs no record: each session has its own, in the expiry of its keys.
"""

from __future__ import annotations

from redismem.settings.environment import MOST_SESSIONS
from redismem.settings.settings import Settings


def is_given(settings: Settings, name: str) -> bool:
    """Whether a setting was given, in code or by the environment."""
    return name in settings.model_fields_set


def session_limit(settings: Settings, recorded: int) -> int:
    """How many sessions a process enforces; `recorded`: the largest limit that one of the namespace was given, or 0."""
    return settings.max_sessions if is_given(settings, "max_sessions") else max(settings.max_sessions, recorded)


def to_record(settings: Settings, recorded: int) -> int:
    """The limit that these settings put into the record; 0: none.

    What stands for a variable that cannot be used, so that nothing is removed meanwhile, was given by nobody.
    """
    is_wanted = is_given(settings, "max_sessions") and recorded < settings.max_sessions < MOST_SESSIONS
    return settings.max_sessions if is_wanted else 0
