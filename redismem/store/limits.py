"""The session limit, from the process's own settings or from the namespace's record.

A process with an explicit `max_sessions` records it, unless the recorded limit is larger. A worker without an explicit
limit enforces the recorded one, so that its default removes no session that other processes want to keep. The idle
timeout needs no record, because the expiry of a session's keys contains it.
"""

from __future__ import annotations

from redismem.settings.environment import MOST_SESSIONS
from redismem.settings.settings import Settings


def is_given(settings: Settings, name: str) -> bool:
    """True if the setting was set in code or by the environment."""
    return name in settings.model_fields_set


def session_limit(settings: Settings, recorded: int) -> int:
    """Return the session limit that a process enforces.

    `recorded` is the limit in the namespace's record; 0 means that there is none.
    """
    return settings.max_sessions if is_given(settings, "max_sessions") else max(settings.max_sessions, recorded)


def limit_to_record(settings: Settings, recorded: int) -> int:
    """Return the limit to write into the record; 0 means that no limit is written.

    If the environment variable is invalid, MOST_SESSIONS replaces it, so that no session is removed. MOST_SESSIONS is
    never recorded.
    """
    is_due = is_given(settings, "max_sessions") and recorded < settings.max_sessions < MOST_SESSIONS
    return settings.max_sessions if is_due else 0
