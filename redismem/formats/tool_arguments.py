"""The arguments of a call as an object, whatever they were; and a view without what no client can send. No I/O."""

from __future__ import annotations

import json
from math import isfinite
from typing import Any

DEPTH_LIMIT = 32
"""How deep arguments may be nested. Gemini's are protobuf, which nests a hundred messages, three for each object."""
_MOST = 10**308  # a double holds no more


def object_of(arguments: Any) -> dict[str, Any]:
    """The arguments as an object: an empty one for none, one that holds them for what is no object.

    What is no JSON, is nested too deep or has a number that is no double stays the text that it was, in an object.
    """
    found = _read(arguments) if isinstance(arguments, str) else arguments
    if found is None:
        return {}
    held = found if isinstance(found, dict) else {"arguments": found}
    if _is_sound(held, DEPTH_LIMIT):
        return held
    return {"arguments": arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)}


def object_in(text: str) -> dict[str, Any] | None:
    """The object that a text of JSON is; None for another text, and for an object that `object_of` leaves a text."""
    if not text.lstrip().startswith("{"):
        return None
    found = _read(text)
    return found if isinstance(found, dict) and _is_sound(found, DEPTH_LIMIT) else None


def _read(text: str) -> Any:
    """What a text of JSON says; the text itself if it is none, None if it is blank."""
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
    return depth > 0 and all(_is_sound(each, depth - 1) for each in inner)


def sendable(view: Any) -> Any:
    """The view as JSON in UTF-8 can hold it: half a character becomes U+FFFD, and what is no finite number null."""
    try:
        json.dumps(view, ensure_ascii=False, allow_nan=False).encode()
    except ValueError:
        return _mended(view)
    return view


def _mended(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, dict):
        return {_mended(key): _mended(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_mended(item) for item in value]
    return None if isinstance(value, float) and not isfinite(value) else value
