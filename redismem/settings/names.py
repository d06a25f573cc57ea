"""The names of settings in error texts."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

PREFIX = "REDISMEM_"
# Names that other libraries use for the setting.
SYNONYMS = {"ttl": "idle_timeout_s", "ttl_s": "idle_timeout_s", "expire_s": "idle_timeout_s"}


def name_setting(name: str) -> str:
    """Return the name of a setting with its environment variable."""
    return f"{name} ({PREFIX}{name.upper()})"


def over_limit(name: str, limit: object) -> str:
    """Return the part of an error text that says which setting, with which value, is exceeded."""
    return f"over {limit}, the limit {name_setting(name)}"


def suggest_setting(name: str, known: Iterable[str]) -> str | None:
    """Return the known setting that an unknown name may have meant, or `None`."""
    return SYNONYMS.get(name) or next(iter(difflib.get_close_matches(name, known, 1)), None)
