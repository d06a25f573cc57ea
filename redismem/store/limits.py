"""The settings that decide what may be removed: a process's own, or those in the namespace's record if they keep more.

The first process of a namespace records its `idle_timeout_s` and `keep_originals`, and each process an explicit
`max_sessions` that is larger than the recorded one. A process that would remove more than is recorded warns, and its
workers use the recorded values, unless it overrides the record with its explicit values. A process whose own settings
keep more uses its own settings.
"""

from __future__ import annotations

from collections.abc import Iterator

from redismem.protocol.namespace.calls import Recorded
from redismem.settings.settings import Settings

NEAR_LIMIT = 0.8
"""The part of its session limit from which on a namespace counts as near it."""
_REMOVALS = ("max_sessions", "idle_timeout_s", "keep_originals")
_WAY_OUT = "workers of this process use the recorded value; to record this one, run: redismem worker --override"


def is_given(settings: Settings, name: str) -> bool:
    """True if the setting was set in code or by the environment."""
    return name in settings.model_fields_set


def session_limit(settings: Settings, recorded: Recorded) -> int:
    """Return the session limit that a process enforces."""
    return max(settings.max_sessions, recorded.max_sessions)


def keeps_originals(settings: Settings, recorded: Recorded) -> bool:
    """True if the workers of a process keep the messages that they summarise."""
    return settings.keep_originals or recorded.keep_originals is True


def limit_to_record(settings: Settings, recorded: int) -> int:
    """Return the limit to write into the record; 0 means that no limit is written."""
    is_due = is_given(settings, "max_sessions") and recorded < settings.max_sessions
    return settings.max_sessions if is_due else 0


def given_removals(settings: Settings) -> list[str]:
    """Return the settings that decide what may be removed, as far as they were set explicitly."""
    return [name for name in _REMOVALS if is_given(settings, name)]


def find_removals(settings: Settings, recorded: Recorded) -> Iterator[tuple[str, str]]:
    """Yield each setting, with a warning, by which this process would remove more than is recorded.

    A default is nobody's wish: only an explicit value is warned of.
    """
    limit, timeout_ms = recorded.max_sessions, recorded.idle_timeout_ms
    if is_given(settings, "max_sessions") and settings.max_sessions < limit:
        yield "max_sessions", f"max_sessions is {settings.max_sessions} here, the namespace records {limit}: {_WAY_OUT}"
    if is_given(settings, "keep_originals") and keeps_originals(settings, recorded) != settings.keep_originals:
        yield "keep_originals", f"keep_originals is false here, the namespace records true: {_WAY_OUT}"
    if is_given(settings, "idle_timeout_s") and settings.idle_timeout_ms < timeout_ms:
        here, there = settings.idle_timeout_s, timeout_ms / 1000
        text = (
            f"idle_timeout_s is {here:.15g} here, the namespace records {there:.15g}: sessions that this process uses"
        )
        yield "idle_timeout_s", f"{text} expire sooner; to record this one, run: redismem worker --override"
