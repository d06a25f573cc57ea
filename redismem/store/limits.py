"""The session limit, from the process's own settings or from the namespace's record.

A process with an explicit `max_sessions` records it, unless the record holds a larger limit. A worker without an
explicit limit enforces the recorded one, so that its default removes no session that others want to keep. The idle
timeout needs no record: each session carries its own, as the expiry of its keys.
"""

from __future__ import annotations

from redismem.settings.environment import MOST_SESSIONS
from redismem.settings.settings import Settings


def is_given(settings: Settings, name: str) -> bool:
    """True if the setting was set in code or by the environment."""
    return name in settings.model_fields_set


def session_limit(settings: Settings, recorded: int) -> int:
    """Return the session limit that a process enforces. `recorded` is the limit in the namespace's record; 0 means
    none."""
    return settings.max_sessions if is_given(settings, "max_sessions") else max(settings.max_sessions, recorded)


def limit_to_record(settings: Settings, recorded: int) -> int:
    """Return the limit to write into the record; 0 means none.

    MOST_SESSIONS replaces an unusable variable, so that no session is removed meanwhile. It is never recorded.
    """
    is_due = is_given(settings, "max_sessions") and recorded < settings.max_sessions < MOST_SESSIONS
    return settings.max_sessions if is_due else 0
