"""Repair texts and numbers before they are sent: lone surrogates and non-finite numbers. No I/O.

Clients encode requests as strict UTF-8, so one lone surrogate fails every request until its message leaves the context.
Valid values are not copied.
"""

from __future__ import annotations

import json
from math import isfinite
from typing import Any


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
