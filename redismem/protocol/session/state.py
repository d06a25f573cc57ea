"""Changes of a conversation's state: fields and encoded values. No I/O."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, TypedDict

from redismem.errors import InvalidState, TooLarge
from redismem.messages.message import UNSET, Unset
from redismem.messages.values import encode_value
from redismem.protocol.appends import NO_CHANGE, StateChange
from redismem.protocol.keys import is_session_id, plain
from redismem.protocol.layout import PARAM, TITLE
from redismem.settings.names import over_limit
from redismem.settings.settings import Settings

_NAME_BYTES = 256
# A longer value would take the state out of its compact encoding in Redis.
_TITLE_BYTES = 64
# Lua's unpack() takes at most 7,999 values.
_CHANGE_COUNT = 1_000


class StateChanges(TypedDict, total=False):
    """State changes of an append. They have the effect of `merge()`, `set_waiting()` and the other setters."""

    merge: Mapping[str, Any] | None
    waiting: str | Unset | None
    last_intent: Any
    last_result: Any
    plan: Any
    instruction: str | Unset | None
    title: str | Unset | None


_READ_OPTIONS = ("limit", "before", "max_tokens")
_SYNONYMS = {"waiting_for_param": "waiting", **dict.fromkeys(("idempotency_key", "message_id", "request_id"), "id")}
_ELSEWHERE = {
    **{name: f"read({name}=...) has it" for name in _READ_OPTIONS},
    **dict.fromkeys(
        ("ttl", "ttl_s", "expire_s", "idle_timeout_s"), "session(id, policy=Policy(idle_timeout_s=...)) has it"
    ),
    **dict.fromkeys(("role", "content"), "pass a message, such as {'role': 'user', 'content': ...}"),
}
"""Options that belong elsewhere, with their place."""


def check_options(called: str, options: Mapping[str, object], known: type) -> None:
    """Check the names of options.

    Raises:
        TypeError: an option is unknown; the text suggests the closest known one.
    """
    names = {name: name for name in known.__annotations__}
    close = names | {synonym: name for synonym, name in _SYNONYMS.items() if name in names}
    for option in options:
        if option not in names:
            matches = difflib.get_close_matches(option, close, 1)
            hint = f"; did you mean {close[matches[0]]}?" if matches else ""
            if option in _ELSEWHERE:
                hint = f": {_ELSEWHERE[option]}"
            raise TypeError(f"{called}() has no option {option!r}{hint}") from None


def change(
    settings: Settings,
    session_id: str,
    *,
    merge: Mapping[str, Any] | None = None,
    waiting: Any = UNSET,
    last_intent: Any = UNSET,
    last_result: Any = UNSET,
    plan: Any = UNSET,
    instruction: str | Unset | None = UNSET,
    title: str | Unset | None = UNSET,
) -> StateChange:
    """Encode a change of the state. `None` drops a field, and `UNSET` as a param's value drops the param.

    Raises:
        InvalidState: a param name, a value, the instruction or the title cannot be stored.
        TooLarge: a value or the number of params exceeds its limit.
    """
    if merge is None and waiting is last_intent is last_result is plan is instruction is title is UNSET:
        return NO_CHANGE
    sets: list[bytes] = []
    drops: list[bytes] = []

    def put(field: bytes, value: Any, label: str) -> None:
        packed = encode_value(value, label)
        if len(packed) > settings.max_value_bytes:
            over = over_limit("max_value_bytes", settings.max_value_bytes)
            raise TooLarge(f"{label} has {len(packed)} bytes, {over}", session_id)
        sets.extend((field, packed))

    for name, value in _check_count({} if merge is None else merge, session_id).items():
        field = PARAM + _encode_name(name)
        if value is UNSET:
            drops.append(field)
        else:
            put(field, value, f"param {name!r}")
    if waiting is not None and waiting is not UNSET:
        _encode_name(waiting)
    others = {"waiting": waiting, "last_intent": last_intent, "last_result": last_result, "plan": plan}
    for label, value in (others | {"instruction": _check_instruction(instruction)}).items():
        if value is None:
            drops.append(label.encode())
        elif value is not UNSET:
            put(label.encode(), value, label)
    more = _change_title(title)
    return StateChange((*sets, *more.sets), (*drops, *more.drops))


def _check_count(params: Mapping[str, Any], session_id: str) -> Mapping[str, Any]:
    if not isinstance(params, Mapping):
        raise InvalidState(f"merge takes a mapping from param names to values, not a {type(params).__name__}")
    if len(params) > _CHANGE_COUNT:
        raise TooLarge(f"{len(params)} params in one change, over {_CHANGE_COUNT}, a fixed limit", session_id)
    return params


def _encode_name(name: Any) -> bytes:
    """Encode the name of a param.

    Raises:
        InvalidState: the name is not a string of 1 to 256 bytes.
    """
    if name == "":
        raise InvalidState("a param name must not be empty; pass None to wait for no param")
    if not isinstance(name, str):
        raise InvalidState(f"a param name is a string, not a {type(name).__name__}")
    encoded = name.encode("utf-8", "surrogatepass")
    if len(encoded) > _NAME_BYTES:
        raise InvalidState(f"a param name has at most {_NAME_BYTES} bytes, this one has {len(encoded)}")
    return encoded


def _check_instruction(instruction: Any) -> Any:
    is_blank = isinstance(instruction, str) and not instruction.strip()  # providers refuse or drop a blank one
    if is_blank or not isinstance(instruction, str | Unset | None):
        raise InvalidState("an instruction is a text that is not blank; pass None to remove it")
    return instruction


def _change_title(title: Any) -> StateChange:
    """Encode a change of the title, which is no JSON value, so that lists show it as it is.

    Raises:
        InvalidState: the title is not one line of 1 to 64 bytes.
    """
    if title is UNSET:
        return NO_CHANGE
    if title is None:
        return StateChange(drops=(TITLE,))
    if not is_session_id(title) or len(encoded := plain(title).encode()) > _TITLE_BYTES:
        raise InvalidState(
            f"a title is a string of 1 to {_TITLE_BYTES} bytes in UTF-8, without control characters or surrounding "
            "whitespace"
        )
    return StateChange((TITLE, encoded))
