"""JSON and frames of server-sent events. No I/O."""

from __future__ import annotations

import json
import re
from math import isfinite
from typing import Any

SSE_HEADERS = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache, no-transform"}

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
_encode_ascii = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
_UNSAFE = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff]")
"""Line breaks that some readers of lines know beside those of the standard, and lone surrogates."""


def to_json(value: Any) -> str:
    """Encode a value as JSON that is one line and valid UTF-8. Infinity and NaN become null."""
    try:
        text = _encode(value)
        return _encode_ascii(value) if _UNSAFE.search(text) else text
    except ValueError:
        return _encode_ascii(_without_infinity(value))


def frame(value: Any, kind: str = "", event_id: str = "") -> bytes:
    """Encode a server-sent event whose data is JSON; `kind` is its `event`."""
    head = f"id: {event_id}\n" if event_id else ""
    if kind:
        head += f"event: {kind}\n"
    return f"{head}data: {to_json(value)}\n\n".encode()


def _without_infinity(value: Any) -> Any:
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, dict):
        return {name: _without_infinity(item) for name, item in value.items()}
    return [_without_infinity(item) for item in value] if isinstance(value, list) else value
