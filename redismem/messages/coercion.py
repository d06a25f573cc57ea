"""What has the shape of a message: dicts and TypedDicts, the objects of SDKs, pydantic models, dataclasses. No I/O.

A plain dict is stored as it is, and nothing here is on its way. An object becomes the dict that its SDK would send: in
JSON's values, without what is None. What a reply carries beside the message is kept beside it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, runtime_checkable

from redismem.errors import InvalidMessage

# Of a reply of Anthropic's: what goes back to the model, and what is kept beside it.
_SENT, _BESIDE = ("role", "content"), ("model", "stop_reason", "usage")
# Items of OpenAI Responses, which nobody says.
_ITEMS = ("_call", "_call_output", "reasoning")
_DEPTH_LIMIT = 100
_LEAVES = frozenset([str, int, float, bool, type(None)])


@runtime_checkable
class HasModelDump(Protocol):
    """A pydantic model, such as a message out of an SDK's reply."""

    def model_dump(self, *, mode: str = ..., exclude_none: bool = ...) -> dict[str, Any]:
        """Its fields as a dict."""


class IsDataclass(Protocol):
    """An instance of a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


Shape = Mapping[str, object] | HasModelDump | IsDataclass
"""A dict or TypedDict, or an object with the fields of a message."""


def message_of(shape: object) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """The dict of a message, and what is to be kept beside it. Raises InvalidMessage for what is no message."""
    if isinstance(shape, Mapping):
        return shape if isinstance(shape, dict) else dict(shape), None
    if dataclasses.is_dataclass(shape) and not isinstance(shape, type):
        payload = plain({field.name: _plain_field(getattr(shape, field.name)) for field in dataclasses.fields(shape)})
    elif isinstance(shape, HasModelDump) and not isinstance(shape, type):
        payload = plain(shape)
    else:
        raise InvalidMessage(f"a message is a dict, a Message or an object with its fields, not a {_kind(shape)}")
    if not isinstance(payload, dict):
        raise InvalidMessage(f"a {_kind(shape)} is no message: it has no fields")
    # Without its content a call for tools would lack a key that many servers want to see.
    if getattr(shape, "content", payload) is None and "role" in payload:
        payload["content"] = None
    # What nobody has set. An empty list in an item of Responses is what its SDK wants to see there, in a message it is
    # refused.
    unset: tuple[Any, ...] = (None, []) if "role" in payload else (None,)
    payload = {key: value for key, value in payload.items() if key == "content" or value not in unset}
    is_said = "role" in payload and {"content", "parts", "tool_calls", "refusal"} & payload.keys()
    if not is_said and not str(payload.get("type")).endswith(_ITEMS):
        raise InvalidMessage(f"a {_kind(shape)} is no message: it has no role with content (pass the message in it)")
    if payload.get("type") == "message" and {*_SENT, "stop_reason"} <= payload.keys():
        kept = {key: payload[key] for key in _BESIDE if key in payload}
        return {key: payload[key] for key in _SENT}, {"metadata": kept, "id": payload.get("id")}
    return payload, None


def check_is_said(payload: dict[str, Any]) -> None:
    """Raises InvalidMessage for a dict that no provider takes as a message: with neither a role nor a type."""
    if any(type(payload.get(key)) is str and payload[key] for key in ("role", "type")):
        return
    if "messages" in payload:
        raise InvalidMessage("this dict holds messages and is none: pass them one by one, as in append(*messages)")
    for key in ("role", "type"):
        if payload.get(key) is not None and type(payload[key]) is not str:
            raise InvalidMessage(
                f"the {key} of a message is a plain string, not one of the type {type(payload[key]).__name__}"
            )
    raise InvalidMessage("a message has a role, such as user or assistant, or is an item with a type; this has neither")


def _plain_field(value: Any) -> Any:
    """The field of a dataclass: others within it are dicts as well."""
    if isinstance(value, list):
        return [_plain_field(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return value


def plain(value: Any, depth: int = _DEPTH_LIMIT) -> Any:
    """The value with a dict in place of every model in it; other values are left for who stores them to judge.

    Raises InvalidMessage for a model that cannot be made a dict.
    """
    if depth == 0:
        return value
    if isinstance(value, dict):
        return {key: plain(item, depth - 1) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item, depth - 1) for item in value]
    if isinstance(value, type) or not isinstance(value, HasModelDump):
        return value
    try:
        return value.model_dump(mode="json", exclude_none=True)
    except Exception as cause:  # whatever a serializer of somebody's own raises
        raise InvalidMessage(f"a {_kind(value)} cannot be made a dict ({type(cause).__name__})") from None


def is_plain(value: Any, depth: int = _DEPTH_LIMIT) -> bool | None:
    """Whether `plain` would give an equal value of the same types. None: it is nested too deep to know."""
    kind = type(value)
    if kind is not dict and kind is not list:
        return kind in _LEAVES or not isinstance(value, (dict, list, HasModelDump))
    if depth == 0:
        return None
    for item in value.values() if kind is dict else value:
        if type(item) not in _LEAVES and not (found := is_plain(item, depth - 1)):
            return found
    return True


def _kind(value: object) -> str:
    return type(value).__name__
