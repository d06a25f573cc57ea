"""Read settings from the environment, and warn of values that were probably meant in another unit."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection
from functools import lru_cache

from redismem.events import facts
from redismem.settings.names import PREFIX, suggest_setting

log = logging.getLogger("redismem")

# The benchmarks and the options of `redismem serve` read these.
_NOT_SETTINGS = frozenset(["bench_url", "server_keys", "server_keys_file", "server_rate", "server_burst"])
MOST_SESSIONS = 1_000_000_000
LONGEST_S = 10 * 365 * 86_400
_DAY_S = 86_400
# An idle timeout over this is more likely a day in milliseconds.
_LONG_IDLE_S = 400 * _DAY_S
# An idle timeout under this is more likely a day in hours.
_SHORT_IDLE_S = 60
# A week in hours, a day and a week in minutes.
_OTHER_UNITS = (168, 1_440, 10_080)
_LONG_TICK_S = 60


def _variables() -> dict[str, str]:
    """Return the values of all `REDISMEM_*` variables, by name in lower case without the prefix."""
    start = PREFIX.lower()
    variables = {name.lower(): value for name, value in os.environ.items()}
    return {name.removeprefix(start): value for name, value in variables.items() if name.startswith(start)}


def values_from_environment(known: Collection[str]) -> dict[str, str]:
    """Return the values that the environment gives to the known settings, as text."""
    return {name: value for name, value in _variables().items() if name in known}


def unknown_variables(known: Collection[str]) -> dict[str, str]:
    """Return a warning for each `REDISMEM_*` variable that is no setting, with the nearest name.

    They are no errors: Kubernetes gives the pods beside a Service called redismem variables such as
    REDISMEM_SERVICE_HOST, and an older release does not know the settings of a newer one.
    """
    warnings = {}
    for name in sorted(_variables().keys() - set(known) - _NOT_SETTINGS):
        near = suggest_setting(name, known)
        hint = f" (did you mean {PREFIX}{near.upper()}?)" if near else ""
        warnings[PREFIX + name.upper()] = f"{PREFIX}{name.upper()} is not a setting{hint}"
    return warnings


def unit(name: str) -> str:
    """Return the suffix that names a setting's unit in an error; "" if it has none."""
    return ", in seconds" if name.endswith("_s") else ""


def doubt_timeout(idle_timeout_s: float) -> str:
    """Return a warning if the timeout was probably meant in a unit other than seconds, else ""."""
    if _LONG_IDLE_S < idle_timeout_s < LONGEST_S:
        return f"sessions stay for {idle_timeout_s / _DAY_S:.0f} days after their last activity"
    if idle_timeout_s < _SHORT_IDLE_S or idle_timeout_s in _OTHER_UNITS:
        return f"sessions stay for {idle_timeout_s:.15g} s after their last activity"
    return ""


@lru_cache(maxsize=256)
def warn_of_timeout(idle_timeout_s: float | None) -> None:
    """Log a warning, once per value, if the timeout of a policy was probably meant in a unit other than seconds."""
    if idle_timeout_s is not None and (warning := doubt_timeout(idle_timeout_s)):
        log.warning("idle_timeout_s of a policy is in seconds: %s", warning, extra=facts(op="settings"))


def doubts(idle_timeout_s: float, tick_s: float, extractive_after_s: float) -> dict[str, str]:
    """Return warnings by setting: the value is valid, but was probably meant in a unit other than seconds."""
    warnings = {}
    if warning := doubt_timeout(idle_timeout_s):
        warnings["idle_timeout_s"] = warning
    if tick_s > _LONG_TICK_S:
        warnings["tick_s"] = f"workers poll the queues every {tick_s:g} s, and a summary may be as late"
    if _DAY_S < extractive_after_s < LONGEST_S:
        days = f"{extractive_after_s / _DAY_S:.1f} days"
        warnings["extractive_after_s"] = f"a session that no model summarises waits {days} for a summary"
    return warnings
