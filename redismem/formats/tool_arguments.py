"""Convert call arguments of any form to objects. No I/O."""

from __future__ import annotations

import json
from math import isfinite
from typing import Any

DEPTH_LIMIT = 32
"""The deepest nesting of arguments. Gemini's protobuf allows 100 nested messages, and an object takes three."""
_MOST = 10**308  # about the largest double


def to_object(arguments: Any) -> dict[str, Any]:
    """Return arguments as an object: {} if there are none, `{"arguments": value}` for a value of another type.

    JSON that is invalid, nests too deeply or has a number beyond a double stays text: `{"arguments": text}`.
    """
    parsed = _parse_json(arguments) if isinstance(arguments, str) else arguments
    if parsed is None:
        return {}
    as_object = parsed if isinstance(parsed, dict) else {"arguments": parsed}
    if _is_sound(as_object, DEPTH_LIMIT):
        return as_object
    return {"arguments": arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)}


def parse_object(text: str) -> dict[str, Any] | None:
    """Parse a JSON object; None for any other text, and for an object that `to_object` would leave as text."""
    if not text.lstrip().startswith("{"):
        return None
    parsed = _parse_json(text)
    return parsed if isinstance(parsed, dict) and _is_sound(parsed, DEPTH_LIMIT) else None


def _parse_json(text: str) -> Any:
    """Parse JSON; return the text itself if it is invalid, None if it is blank."""
    if not text.strip():
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _is_sound(value: Any, depth: int) -> bool:
    if isinstance(value, float):
        return isfinite(value)
    if isinstance(value, int):
        return -_MOST <= value <= _MOST
    if not isinstance(value, dict | list):
        return True
    inner = value.values() if isinstance(value, dict) else value
    return depth > 0 and all(_is_sound(item, depth - 1) for item in inner)
