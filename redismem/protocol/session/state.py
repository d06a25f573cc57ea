"""Changes of a conversation's state, as fields and encoded values. No I/O."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

from redismem.errors import InvalidState, TooLarge
from redismem.messages.message import UNSET, Unset
from redismem.messages.values import encode_value
from redismem.protocol.layout import PARAM
from redismem.settings.settings import Settings

_NAME_BYTES = 256
# Lua takes at most 7,999 values at once.
_CHANGE_COUNT = 1_000


class StateChanges(TypedDict, total=False):
    """What an append can change beside the messages: as `merge()`, `set_waiting()` and the other setters do."""

    merge: Mapping[str, Any] | None
    waiting: str | Unset | None
    last_intent: Any
    last_result: Any
    plan: Any


_OF_READ = ("limit", "before", "max_tokens")


def check_options(called: str, options: Mapping[str, object], known: type) -> None:
    """Raises TypeError for an option that is not known, with the nearest that is."""
    names = {name: name for name in known.__annotations__} | {"waiting_for_param": "waiting"}
    for option in options:
        if option not in names or names[option] != option:
            near = [names[each] for each in difflib.get_close_matches(option, names, 1)]
            hint = f"; did you mean {near[0]}?" if near else ""
            if option in _OF_READ:
                hint = f": read({option}=...) has it"
            raise TypeError(f"{called}() has no option {option!r}{hint}") from None


@dataclass(frozen=True, slots=True)
class Change:
    """What to set and drop in the state: fields and encoded values."""

    sets: tuple[bytes, ...] = ()
    """field, value, field, value …"""
    drops: tuple[bytes, ...] = ()


def change(
    settings: Settings,
    session_id: str,
    *,
    merge: Mapping[str, Any] | None = None,
    waiting: Any = UNSET,
    last_intent: Any = UNSET,
    last_result: Any = UNSET,
    plan: Any = UNSET,
) -> Change:
    """A change of the state. None (UNSET as a param's value) drops. Raises InvalidState, TooLarge."""
    if merge is None and waiting is last_intent is last_result is plan is UNSET:
        return NO_CHANGE
    sets: list[bytes] = []
    drops: list[bytes] = []

    def put(field: bytes, value: Any, label: str) -> None:
        packed = encode_value(value, label)
        if len(packed) > settings.max_value_bytes:
            raise TooLarge(f"{label} has {len(packed)} bytes, over {settings.max_value_bytes}", session_id)
        sets.extend((field, packed))

    for name, value in _few({} if merge is None else merge, session_id).items():
        field = PARAM + _name(name)
        if value is UNSET:
            drops.append(field)
        else:
            put(field, value, f"param {name!r}")
    if waiting is not None and waiting is not UNSET:
        _name(waiting)
    others = {"waiting": waiting, "last_intent": last_intent, "last_result": last_result, "plan": plan}
    for label, value in others.items():
        if value is None:
            drops.append(label.encode())
        elif value is not UNSET:
            put(label.encode(), value, label)
    return Change(tuple(sets), tuple(drops))


def _few(params: Mapping[str, Any], session_id: str) -> Mapping[str, Any]:
    if not isinstance(params, Mapping):
        raise InvalidState(f"merge takes a mapping of params by their names, not a {type(params).__name__}")
    if len(params) > _CHANGE_COUNT:
        raise TooLarge(f"{len(params)} params in one change, over {_CHANGE_COUNT}", session_id)
    return params


def _name(name: Any) -> bytes:
    """A param's name as bytes. Raises InvalidState."""
    if name == "":
        raise InvalidState("a param name is not empty; to wait for none, set None")
    if not isinstance(name, str):
        raise InvalidState(f"a param name is a string, not a {type(name).__name__}")
    encoded = name.encode("utf-8", "surrogatepass")
    if len(encoded) > _NAME_BYTES:
        raise InvalidState(f"a param name has at most {_NAME_BYTES} bytes, this one {len(encoded)}")
    return encoded


NO_CHANGE = Change()
