"""The environment as settings take it: without the values that cannot be used. `settings` says what stands for them.

`look` says the same as a list, without a log.
"""

from __future__ import annotations

import difflib
import logging
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from pydantic import TypeAdapter, ValidationError
from pydantic_settings import BaseSettings, EnvSettingsSource

from redismem.events import facts

log = logging.getLogger("redismem")

_SILENT = logging.Logger("redismem", logging.CRITICAL + 1)
PREFIX = "REDISMEM_"
# Read by the benchmarks, and by the options of `redismem serve`.
_NOT_SETTINGS = frozenset(["bench_url", "server_keys", "server_keys_file", "server_rate", "server_burst"])
MOST_SESSIONS = 1_000_000_000
LONGEST_S = 10 * 365 * 86_400
_DAY_S = 86_400
# Hardly any session is kept for longer; a day in milliseconds, taken for seconds, is.
_LONG_IDLE_S = 400 * _DAY_S
# Hardly any ends so soon; a day in hours, taken for seconds, does.
_SHORT_IDLE_S = 60
# A week in hours, a day and a week in minutes.
_OTHER_UNITS = (168, 1_440, 10_080)
_LONG_TICK_S = 60
# What an unreadable value must not do is remove what it may have been meant to keep.
_KEEPING: dict[str, Any] = {
    "max_sessions": MOST_SESSIONS,
    "idle_timeout_s": LONGEST_S,
    "keep_originals": True,
    "strategy": "none",
}

# With the strategy trim, these decide what leaves the context, and without keep_originals what is gone for good.
_TRIMMING = frozenset(["threshold", "recent_limit", "threshold_tokens"])
_LONGEST_WINDOW = 10_000
# So many messages at least should be worth a summary, unless it is said otherwise.
_SUMMARISED_COUNT = 4


@dataclass(frozen=True, slots=True)
class Complaint:
    """A variable that is not obeyed: `near` is the setting it may have been meant for.

    `case`: unknown: no setting has it; default: the default counts; kept: nothing is removed until it can be used.
    `why`: which settings do not fit together, with their numbers; "" if the value cannot be used by itself.
    """

    variable: str
    case: Literal["unknown", "default", "kept"]
    near: str | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Look:
    """What the environment says: names of the settings that it gives, and what is not obeyed."""

    given: frozenset[str]
    complaints: list[Complaint] = field(default_factory=list)


def look(settings_cls: type[BaseSettings]) -> Look:
    """What settings made now would take, and warn of; nothing is logged. Of values it has limits that do not fit."""
    source = Environment(settings_cls, log=_SILENT)
    source()
    fields = settings_cls.model_fields
    return Look(frozenset(name for name in fields if PREFIX.lower() + name in source.env_vars), source.complaints)


def unit(name: str) -> str:
    """What is added to a refusal of a value that has a unit."""
    return ", in seconds" if name.endswith("_s") else ""


def doubts(idle_timeout_s: float, tick_s: float, extractive_after_s: float) -> dict[str, str]:
    """What seconds mean that can be used, but are rather a time in another unit: by the name of the setting."""
    found = {}
    if _LONG_IDLE_S < idle_timeout_s < LONGEST_S:
        found["idle_timeout_s"] = f"sessions stay for {idle_timeout_s / _DAY_S:.0f} days after their last activity"
    elif idle_timeout_s < _SHORT_IDLE_S or idle_timeout_s in _OTHER_UNITS:
        found["idle_timeout_s"] = f"sessions stay for {idle_timeout_s:g} s after their last activity"
    if tick_s > _LONG_TICK_S:
        found["tick_s"] = f"workers look at the queues every {tick_s:g} s, and a summary may be as late"
    if _DAY_S < extractive_after_s < LONGEST_S:
        waited = f"{extractive_after_s / _DAY_S:.1f} days"
        found["extractive_after_s"] = f"a session that no model summarises waits {waited} for a summary"
    return found


class Environment(EnvSettingsSource):
    """The environment without the values that cannot be used."""

    def __init__(self, settings_cls: type[BaseSettings], log: logging.Logger = log) -> None:
        super().__init__(settings_cls)
        self._log = log
        self.complaints: list[Complaint] = []

    def __call__(self) -> dict[str, Any]:
        usable: dict[str, Any] = {}
        unusable: set[str] = set()
        self.complaints = []
        for name, value in super().__call__().items():
            field = self.settings_cls.model_fields[name]
            kind: Any = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
            adapter: TypeAdapter[Any] = TypeAdapter(kind)
            try:
                usable[name] = adapter.validate_python(value)
            except ValidationError as refused:
                usable |= self._fall_back(name, refused.errors()[0]["msg"] + unit(name))
                unusable.add(name)
        self._warn_of_unknown()
        unusable |= self._fit_recent_limit(usable, unusable)
        unusable |= self._fit_threshold(usable)
        if {**usable, **self.current_state}.get("strategy") == "trim" and unusable & _TRIMMING:
            variables = [PREFIX + name.upper() for name in sorted(unusable & _TRIMMING)]
            said = ", ".join(variables)
            known = facts(op="settings", setting=said)
            self.complaints = [
                replace(each, case="kept") if each.variable in variables else each for each in self.complaints
            ]
            self._log.error("nothing is trimmed until all of them can be used: %s", said, extra=known)
            window_limit = self._in_force("max_window_count", usable)
            most = min(_LONGEST_WINDOW, window_limit) if isinstance(window_limit, int) else _LONGEST_WINDOW
            threshold = self.current_state.get("threshold", most)
            usable |= {"threshold": threshold, "recent_limit": threshold, "threshold_tokens": 0}
        return usable

    def _in_force(self, name: str, usable: dict[str, Any]) -> Any:
        """What is given in code, else what is usable here, else the default."""
        return self.current_state.get(name, usable.get(name, self.settings_cls.model_fields[name].default))

    def _fit_recent_limit(self, usable: dict[str, Any], unusable: set[str]) -> set[str]:
        """A recent_limit alone raises the threshold over it; over a limit that is given, both are unusable."""
        recent_limit = usable.get("recent_limit", 0)
        limits = {name: self._in_force(name, usable) for name in ("threshold", "max_window_count")}
        if "recent_limit" in self.current_state or not all(isinstance(limit, int) for limit in limits.values()):
            return set()
        is_free = "threshold" not in {*self.current_state, *usable, *unusable}
        over = "max_window_count" if is_free else "threshold"
        if recent_limit > limits[over]:
            why = f"recent_limit {recent_limit} is over {over} {limits[over]}"
            return self._unfit(usable, (over, "recent_limit"), why)
        if is_free and recent_limit:
            wanted = max(limits["threshold"], recent_limit + _SUMMARISED_COUNT)
            usable["threshold"] = min(_LONGEST_WINDOW, limits["max_window_count"], wanted)
        return set()

    def _fit_threshold(self, usable: dict[str, Any]) -> set[str]:
        """A threshold over max_window_count: those of both that are given here are unusable."""
        threshold, window_limit = (self._in_force(name, usable) for name in ("threshold", "max_window_count"))
        if not (isinstance(threshold, int) and isinstance(window_limit, int)) or threshold <= window_limit:
            return set()
        why = f"threshold {threshold} is over max_window_count {window_limit}"
        return self._unfit(usable, ("threshold", "recent_limit", "max_window_count"), why)

    def _unfit(self, usable: dict[str, Any], names: tuple[str, ...], why: str) -> set[str]:
        """Which of these are given here: each can be used, but not together."""
        given = [name for name in names if usable.pop(name, None) is not None]
        for name in given:
            self._fall_back(name, why)
            self.complaints[-1] = replace(self.complaints[-1], why=why)
        return set(given)

    def _fall_back(self, name: str, why: str) -> dict[str, Any]:
        """What stands for an unusable value: nothing, which is the default, or what removes nothing."""
        variable = PREFIX + name.upper()
        known = facts(op="settings", setting=variable)
        if name in _KEEPING:
            kept = _KEEPING[name]
            text = "%s is not usable (%s); until it is, nothing is removed: %r"
            self._log.error(text, variable, why, kept, extra=known)
            self.complaints.append(Complaint(variable, "kept"))
            return {name: kept}
        default = self.settings_cls.model_fields[name].default
        self.complaints.append(Complaint(variable, "default"))
        self._log.warning("%s is not usable (%s); using the default, %r", variable, why, default, extra=known)
        return {}

    def _warn_of_unknown(self) -> None:
        known = self.settings_cls.model_fields
        for variable in sorted(name.lower() for name in self.env_vars):
            name = variable.removeprefix(PREFIX.lower())
            if name == variable or name in known or name in _NOT_SETTINGS:
                continue
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {PREFIX}{near[0].upper()}?" if near else ""
            said = facts(op="settings", setting=variable.upper())
            self._log.warning("%s is no setting%s", variable.upper(), hint, extra=said)
            self.complaints.append(Complaint(variable.upper(), "unknown", near[0] if near else None))
