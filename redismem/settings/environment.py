"""Read settings from the environment, and replace invalid values as `settings` describes.

`look` reports the invalid values as a list instead of logging them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import BaseModel, TypeAdapter, ValidationError

from redismem.events import facts
from redismem.settings.names import PREFIX, suggest_setting

log = logging.getLogger("redismem")

_SILENT = logging.Logger("redismem", logging.CRITICAL + 1)
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
# An invalid value must not remove anything that a valid one may have been meant to keep.
_KEEPING: dict[str, Any] = {
    "max_sessions": MOST_SESSIONS,
    "idle_timeout_s": LONGEST_S,
    "keep_originals": True,
    "strategy": "none",
}

# With the strategy trim, these settings decide which messages leave the context. Without keep_originals, the messages
# are then gone for good.
_TRIMMING = frozenset(["threshold", "recent_limit", "threshold_tokens"])
_LONGEST_WINDOW = 10_000
# The default threshold exceeds recent_limit by at least this number, so that a summary covers as many messages.
_SUMMARISED_COUNT = 4


@dataclass(frozen=True, slots=True)
class Complaint:
    """An environment variable whose value is not used. `near` is the setting that its name may have meant.

    `case` "unknown" means that no setting has this name, "default" that the default replaces the value, and "kept" that
    nothing is removed until the value is corrected. `why` names the settings that contradict each other, with their
    numbers; "" means that the value alone is invalid.
    """

    variable: str
    case: Literal["unknown", "default", "kept"]
    near: str | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Look:
    """The names of the settings that the environment gives, and the complaints about its variables."""

    given: frozenset[str]
    complaints: list[Complaint] = field(default_factory=list)


def look(settings_cls: type[BaseModel]) -> Look:
    """Return the settings that the environment gives now, and the complaints about its variables. Logs nothing."""
    source = Environment(settings_cls, log=_SILENT)
    source.usable()
    return Look(frozenset(settings_cls.model_fields.keys() & source.variables.keys()), source.complaints)


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


class Environment:
    """The environment without its invalid values. `given` are the values given in code, which win over it."""

    def __init__(
        self,
        settings_cls: type[BaseModel],
        given: Mapping[str, Any] = MappingProxyType({}),
        log: logging.Logger = log,
    ) -> None:
        self._fields = settings_cls.model_fields
        self._given = given
        self._log = log
        self.complaints: list[Complaint] = []
        variables = {name.lower(): value for name, value in os.environ.items()}
        start = PREFIX.lower()
        self.variables = {
            name.removeprefix(start): value for name, value in variables.items() if name.startswith(start)
        }

    def usable(self) -> dict[str, Any]:
        """Return the values to use, by setting. Logs the invalid variables, and lists them as `complaints`."""
        usable: dict[str, Any] = {}
        unusable: set[str] = set()
        self.complaints = []
        for name in filter(self.variables.__contains__, self._fields):
            info = self._fields[name]
            kind: Any = Annotated[info.annotation, *info.metadata] if info.metadata else info.annotation
            adapter: TypeAdapter[Any] = TypeAdapter(kind)
            try:
                usable[name] = adapter.validate_python(self.variables[name])
            except ValidationError as refused:
                usable |= self._fall_back(name, refused.errors()[0]["msg"] + unit(name))
                unusable.add(name)
        self._warn_of_unknown()
        unusable |= self._fit_recent_limit(usable, unusable)
        unusable |= self._fit_threshold(usable)
        if {**usable, **self._given}.get("strategy") == "trim" and unusable & _TRIMMING:
            variables = [PREFIX + name.upper() for name in sorted(unusable & _TRIMMING)]
            listed = ", ".join(variables)
            self.complaints = [
                replace(complaint, case="kept") if complaint.variable in variables else complaint
                for complaint in self.complaints
            ]
            extra = facts(op="settings", setting=listed)
            self._log.error("nothing is trimmed until these variables are valid: %s", listed, extra=extra)
            window_limit = self._in_force("max_window_count", usable)
            most = min(_LONGEST_WINDOW, window_limit) if isinstance(window_limit, int) else _LONGEST_WINDOW
            threshold = self._given.get("threshold", most)
            usable |= {"threshold": threshold, "recent_limit": threshold, "threshold_tokens": 0}
        return usable

    def _in_force(self, name: str, usable: dict[str, Any]) -> Any:
        """Return the value given in code, else the valid value of the environment, else the default."""
        return self._given.get(name, usable.get(name, self._fields[name].default))

    def _fit_recent_limit(self, usable: dict[str, Any], unusable: set[str]) -> set[str]:
        """If recent_limit is given without a threshold, raise the default threshold above it.

        If recent_limit exceeds a given threshold, or else max_window_count, rejects both settings. Returns the names of
        the rejected settings.
        """
        recent_limit = usable.get("recent_limit", 0)
        limits = {name: self._in_force(name, usable) for name in ("threshold", "max_window_count")}
        if "recent_limit" in self._given or not all(isinstance(limit, int) for limit in limits.values()):
            return set()
        is_free = "threshold" not in {*self._given, *usable, *unusable}
        over = "max_window_count" if is_free else "threshold"
        if recent_limit > limits[over]:
            why = f"recent_limit {recent_limit} is over {over} {limits[over]}"
            return self._unfit(usable, (over, "recent_limit"), why)
        if is_free and recent_limit:
            raised = max(limits["threshold"], recent_limit + _SUMMARISED_COUNT)
            usable["threshold"] = min(_LONGEST_WINDOW, limits["max_window_count"], raised)
        return set()

    def _fit_threshold(self, usable: dict[str, Any]) -> set[str]:
        """Reject a threshold over max_window_count, and return the names of the rejected settings."""
        threshold, window_limit = (self._in_force(name, usable) for name in ("threshold", "max_window_count"))
        if not (isinstance(threshold, int) and isinstance(window_limit, int)) or threshold <= window_limit:
            return set()
        why = f"threshold {threshold} is over max_window_count {window_limit}"
        return self._unfit(usable, ("threshold", "recent_limit", "max_window_count"), why)

    def _unfit(self, usable: dict[str, Any], names: tuple[str, ...], why: str) -> set[str]:
        """Reject variables that are valid alone but contradict each other, and return their names."""
        given = [name for name in names if usable.pop(name, None) is not None]
        for name in given:
            self._fall_back(name, why)
            self.complaints[-1] = replace(self.complaints[-1], why=why)
        return set(given)

    def _fall_back(self, name: str, why: str) -> dict[str, Any]:
        """Log an invalid value and return its replacement, which removes nothing; {} means that the default applies."""
        variable = PREFIX + name.upper()
        extra = facts(op="settings", setting=variable)
        if name in _KEEPING:
            safe_value = _KEEPING[name]
            text = "%s is invalid (%s); nothing is removed until it is corrected; using %r"
            self._log.error(text, variable, why, safe_value, extra=extra)
            self.complaints.append(Complaint(variable, "kept"))
            return {name: safe_value}
        default = self._fields[name].default
        self.complaints.append(Complaint(variable, "default"))
        self._log.warning("%s is invalid (%s); using the default, %r", variable, why, default, extra=extra)
        return {}

    def _warn_of_unknown(self) -> None:
        for name in sorted(self.variables.keys() - self._fields.keys() - _NOT_SETTINGS):
            variable = PREFIX + name.upper()
            near = suggest_setting(name, self._fields)
            hint = f"; did you mean {PREFIX}{near.upper()}?" if near else ""
            extra = facts(op="settings", setting=variable)
            self._log.warning("%s is not a setting%s", variable, hint, extra=extra)
            self.complaints.append(Complaint(variable, "unknown", near))
