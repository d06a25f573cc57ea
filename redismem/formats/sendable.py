"""Repair messages before they are sent: lone surrogates, truncated call arguments, an assistant's audio. No I/O.

Clients encode requests as strict UTF-8, so one lone surrogate fails every request until its message leaves the context.
Valid values are not copied.
"""

from __future__ import annotations

import json
import time
from math import isfinite
from typing import Any

from redismem.formats.forms import FUNCTION, Form, Payload
from redismem.formats.sections import item_form
from redismem.formats.tool_arguments import to_object
from redismem.messages.values import is_json

_REPAIRED = frozenset(["tool_calls", "function_call", "arguments", "audio"])
_AUDIO = "[audio]"


def make_sendable(view: Any) -> Any:
    """Return a view that UTF-8 JSON can encode: lone surrogates become U+FFFD, non-finite numbers become null."""
    try:
        json.dumps(view, ensure_ascii=False, allow_nan=False).encode()
    except ValueError:
        return replace_unsendable(view)
    return view


def replace_unsendable(value: Any) -> Any:
    """Return a JSON value with U+FFFD for lone surrogates, in keys too, and null for non-finite numbers.

    Returns `value` itself if it has neither.
    """
    if isinstance(value, str):
        return _replace_in_text(value)
    if isinstance(value, dict):
        items = {replace_unsendable(key): replace_unsendable(item) for key, item in value.items()}
        is_same = items.keys() == value.keys() and all(items[key] is item for key, item in value.items())
        return value if is_same else items
    if isinstance(value, list):
        listed = [replace_unsendable(item) for item in value]
        return value if all(new is old for new, old in zip(listed, value, strict=True)) else listed
    return None if isinstance(value, float) and not isfinite(value) else value


def _replace_in_text(text: str) -> str:
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def repair_messages(payloads: list[Payload], may_hold_surrogates: bool, now_ms: float | None = None) -> list[Payload]:
    """Return the messages in a form that OpenAI accepts. A valid message is returned as the same dict.

    Call arguments that are not valid JSON become the object that `to_object` returns. An assistant's audio becomes a
    reference to its id; after `expires_at`, its transcript becomes the text.

    Args:
        now_ms: the current time in milliseconds since 1970; None means this process's clock.
    """
    is_sound = _REPAIRED.isdisjoint
    payloads = [payload if is_sound(payload) else _repair(payload, now_ms) for payload in payloads]
    return [replace_unsendable(payload) for payload in payloads] if may_hold_surrogates else payloads


def _repair(payload: Payload, now_ms: float | None) -> Payload:
    tool_calls = payload.get("tool_calls")
    if isinstance(tool_calls, list) and not all(map(_has_sound_function, tool_calls)):
        payload = payload | {"tool_calls": [_repair_field(call, "function") for call in tool_calls]}
    if "function_call" in payload:
        payload = _repair_field(payload, "function_call")
    item = item_form(payload)
    if item is not None and item.json_field and not _is_sound(payload, item):
        payload = _repair_arguments(payload, item)
    if isinstance(payload.get("audio"), dict) and payload.get("role") == "assistant":
        payload = _refer_to_audio(payload, now_ms)
    return payload


def _has_sound_function(call: Any) -> bool:
    return not isinstance(call, dict) or _is_sound(call.get("function"))


def _is_sound(function: Any, form: Form = FUNCTION) -> bool:
    """False for a call whose arguments are not valid JSON."""
    arguments = function.get(form.json_field) if isinstance(function, dict) else None
    return not isinstance(arguments, str) or is_json(arguments)


def _repair_field(value: Any, name: str) -> Any:
    function = value.get(name) if isinstance(value, dict) else None
    return value if _is_sound(function) else value | {name: _repair_arguments(function)}


def _repair_arguments(function: Any, form: Form = FUNCTION) -> Payload:
    text = json.dumps(to_object(function[form.json_field]), ensure_ascii=False)
    return {**function, form.json_field: _replace_in_text(text)}


def _refer_to_audio(payload: Payload, now_ms: float | None) -> Payload:
    audio = payload["audio"]
    if isinstance(audio.get("id"), str) and not _is_expired(audio, now_ms):
        return payload if len(audio) == 1 else payload | {"audio": {"id": audio["id"]}}
    others = {name: value for name, value in payload.items() if name != "audio"}
    transcript, content = audio.get("transcript"), payload.get("content")
    text = transcript if isinstance(transcript, str) and transcript.strip() else ""
    if isinstance(content, list):
        return others | {"content": [*content, {"type": "text", "text": text}] if text else content}
    words = "\n\n".join(filter(None, (content if isinstance(content, str) else "", text)))
    return others | {"content": words or (None if payload.get("tool_calls") else _AUDIO)}


def _is_expired(audio: Payload, now_ms: float | None) -> bool:
    expires_at = audio.get("expires_at")  # in seconds since 1970
    if not isinstance(expires_at, int | float):
        return False
    return expires_at * 1000 <= (time.time() * 1000 if now_ms is None else now_ms)
