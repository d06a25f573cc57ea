"""Convert mappings, SDK objects, pydantic models and dataclasses to message dicts. No I/O.

A plain dict is stored unchanged and never passes through this module. An object becomes the dict that its SDK would
send: JSON values only, without None fields. The fields of an SDK reply that are not sent back, such as its id, are
stored beside the message.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Protocol, runtime_checkable

from redismem.errors import InvalidMessage

# Fields of an Anthropic reply: the first two go back to the model, the others are stored beside the message.
_SENT, _BESIDE = ("role", "content"), ("model", "stop_reason", "usage")
# Items of OpenAI Responses that have no role.
_ITEMS = ("_call", "_call_output", "reasoning")
ROLES = frozenset(
    [
        *("user", "assistant", "system", "developer", "tool", "function"),  # OpenAI
        *("critic", "discriminator", "unknown"),  # OpenAI's conversations
        *("model", "chatbot", "human", "ai", "ipython", "observation", "environment"),  # others, in any case
    ]
)
"""The roles that a provider or framework has."""
_READ = frozenset(
    ["parts", "contents", "blocks", "tool_calls", "function_call", "refusal", "audio", "tool_call_id", "type", "kind"]
)
"""The fields beside `content` from which views take something."""
_NOT_READ = ("text", "message", "body", "utterance", "msg")
_DEPTH_LIMIT = 100
_LEAVES = frozenset([str, int, float, bool, type(None)])


@runtime_checkable
class HasModelDump(Protocol):
    """A pydantic model, such as the message in an SDK's reply."""

    def model_dump(self, *, mode: str = ..., exclude_none: bool = ...) -> dict[str, Any]:
        """Return the fields as a dict."""


class IsDataclass(Protocol):
    """An instance of a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


Shape = Mapping[str, object] | HasModelDump | IsDataclass
"""A dict or TypedDict, or an object with the fields of a message."""


def coerce_message(shape: object) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return the message as a dict, and the fields to store beside it or None.

    Raises InvalidMessage if the object is not a message.
    """
    if isinstance(shape, Mapping):
        return shape if isinstance(shape, dict) else dict(shape), None
    if dataclasses.is_dataclass(shape) and not isinstance(shape, type):
        payload = dump_models(
            {field.name: _dump_field(getattr(shape, field.name)) for field in dataclasses.fields(shape)}
        )
    elif isinstance(shape, HasModelDump) and not isinstance(shape, type):
        payload = dump_models(shape)
    else:
        hint = ""
        if isinstance(shape, str):
            hint = ": pass {'role': 'user', 'content': ...}"
        elif isinstance(shape, Iterable):
            hint = ": pass messages one by one, as in append(*messages)"
        raise InvalidMessage(f"a message is a dict, a Message or an object with its fields, not a {_kind(shape)}{hint}")
    if not isinstance(payload, dict):
        raise InvalidMessage(f"a {_kind(shape)} is not a message: it has no fields")
    # Many servers require the key `content` in a message with tool calls, even if it is null.
    if getattr(shape, "content", payload) is None and "role" in payload:
        payload["content"] = None
    # The SDK of Responses requires empty lists in its items; providers refuse them in messages.
    unset: tuple[Any, ...] = (None, []) if "role" in payload else (None,)
    payload = {key: value for key, value in payload.items() if key == "content" or value not in unset}
    has_content = "role" in payload and {"content", "parts", "tool_calls", "refusal"} & payload.keys()
    if not has_content and not str(payload.get("type")).endswith(_ITEMS):
        raise InvalidMessage(f"a {_kind(shape)} is not a message: it has no role with content (pass the message in it)")
    if payload.get("type") == "message" and {*_SENT, "stop_reason"} <= payload.keys():
        metadata = {key: payload[key] for key in _BESIDE if key in payload}
        return {key: payload[key] for key in _SENT}, {"metadata": metadata, "id": payload.get("id")}
    return payload, None


def check_role_or_type(payload: dict[str, Any]) -> None:
    """Check that a dict has a known role, or a type, or Pydantic AI's `kind` and `parts`, and words that are read.

    Raises InvalidMessage.
    """
    role = payload.get("role")
    if type(role) is str and role:
        if role not in ROLES and role.lower() not in ROLES:
            raise InvalidMessage(
                "the role of a message must be one that a provider or framework has, such as user, assistant or tool"
            )
        if "content" not in payload:
            _check_words(payload)
        return
    if type(payload.get("type")) is str and payload["type"]:
        return
    if payload.get("kind") in ("request", "response") and type(payload.get("parts")) is list:
        return
    if "messages" in payload:
        raise InvalidMessage("this dict holds messages: pass them one by one, as in append(*messages)")
    for key in ("role", "type"):
        if payload.get(key) is not None and type(payload[key]) is not str:
            raise InvalidMessage(
                f"the {key} of a message must be a plain string, not one of the type {type(payload[key]).__name__}"
            )
    raise InvalidMessage("a message needs a role, such as user or assistant, or a type (an item); this has neither")


def _check_words(payload: dict[str, Any]) -> None:
    """Check that the words of a message are in a field that providers read. Raises InvalidMessage."""
    odd = next((field for field in _NOT_READ if type(payload.get(field)) is str and payload[field]), None)
    if odd is not None and _READ.isdisjoint(payload):
        raise InvalidMessage(f"the words of a message belong into content: no provider reads the field {odd}")


def _dump_field(value: Any) -> Any:
    """Return the value of a dataclass field, with nested dataclasses as dicts."""
    if isinstance(value, list):
        return [_dump_field(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return value


def dump_models(value: Any, depth: int = _DEPTH_LIMIT) -> Any:
    """Replace every pydantic model in the value by its dict; other values stay, and are checked when they are packed.

    Raises InvalidMessage for a model that fails to dump.
    """
    if depth == 0:
        return value
    if isinstance(value, dict):
        return {key: dump_models(item, depth - 1) for key, item in value.items()}
    if isinstance(value, list):
        return [dump_models(item, depth - 1) for item in value]
    if isinstance(value, type) or not isinstance(value, HasModelDump):
        return value
    # OpenAI's SDK marks the copies that it parsed. It does not send them, and the API of Responses refuses them.
    not_sent = getattr(value, "__api_exclude__", None)
    options: dict[str, Any] = {"exclude": not_sent} if not_sent else {}
    try:
        return value.model_dump(mode="json", exclude_none=True, **options)
    except Exception as cause:  # a custom serializer may raise anything
        raise InvalidMessage(f"a {_kind(value)} cannot be made a dict ({type(cause).__name__})") from None


def is_plain(value: Any, depth: int = _DEPTH_LIMIT) -> bool | None:
    """True if `dump_models` would return an equal value of equal types; None if the nesting is too deep to tell."""
    kind = type(value)
    if kind is not dict and kind is not list:
        return kind in _LEAVES or not isinstance(value, (dict, list, HasModelDump))
    if depth == 0:
        return None
    for item in value.values() if kind is dict else value:
        if type(item) not in _LEAVES and not (verdict := is_plain(item, depth - 1)):
            return verdict
    return True


def _kind(value: object) -> str:
    return type(value).__name__
