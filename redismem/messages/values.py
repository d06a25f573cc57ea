"""A lossless codec for JSON values: msgpack, or a msgpack `bin` of JSON text.

The JSON text (UTF-8 with surrogates) is for values that msgpack cannot hold: lone surrogates, integers over 64 bits.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from math import isfinite
from typing import Any

import msgspec

from redismem.errors import InvalidState, RedismemError

DEPTH_LIMIT = 100
_PLAIN = frozenset([str, int, bool, type(None)])
_TOO_DEEP = f"is nested too deep: at most {DEPTH_LIMIT} deep"

encode_plain = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode
# json.loads() without its two searches for whitespace: stored texts have none around them.
_read_json = json.JSONDecoder().raw_decode
_write_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_scan_json = msgspec.json.Decoder(msgspec.Raw).decode


class Undecodable(Exception):
    """Bytes in no format of redismem. The calls turn it into CorruptSession."""


def encode_value(value: Any, name: str = "") -> bytes:
    """Encode a state value; `name` is its name in error texts.

    Raises InvalidState if it is not a JSON value, or would not decode to an equal one.
    """
    return pack(value, InvalidState, name)


def decode_value(packed: bytes) -> Any:
    """Decode a state value. Raises Undecodable."""
    try:
        return unwrap_json(_decode(packed))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise Undecodable("a state value cannot be decoded") from None


def pack(value: Any, error: type[RedismemError], name: str = "") -> bytes:
    """Encode a value as msgpack, or as JSON text in msgpack; refuse lossy values such as tuples, dates and int keys.

    Raises `error` with the path of the fault inside the value.
    """
    if not _is_json(value, DEPTH_LIMIT):
        raise error(_describe_fault(value, name) or "a value would not decode to an equal one")
    try:
        return pack_unchecked(value)
    except (TypeError, ValueError) as cause:
        where = _describe_fault(value, name, _storage_fault)
        raise error(where or f"a value cannot be stored ({type(cause).__name__}): only JSON values can") from None


def pack_unchecked(value: Any) -> bytes:
    """Encode a value that was stored before, without checks. Raises TypeError or ValueError if it cannot be encoded."""
    try:
        return encode_plain(value)
    except (OverflowError, UnicodeEncodeError):
        return _encode_json(value)


def pack_json(value: Any, error: type[RedismemError]) -> bytes:
    """Encode a value as JSON text in msgpack. Raises `error` as `pack` does."""
    pack(value, error)
    return _encode_json(value)


def _encode_json(value: Any) -> bytes:
    text = _write_json(value)
    return encode_plain(text.encode("utf-8", "surrogatepass"))


def is_json_value(value: Any) -> bool:
    """True if a value decodes to an equal one and is nested at most `DEPTH_LIMIT` levels."""
    return _is_json(value, DEPTH_LIMIT)


def _is_json(value: Any, depth: int) -> bool:
    """True if a value decodes to an equal one and is nested at most `depth` levels."""
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                return False
        value = value.values()
    elif not isinstance(value, list):
        return _is_leaf(value)
    if depth == 0:
        return False
    for item in value:
        kind = type(item)
        if kind not in _PLAIN and not (isfinite(item) if kind is float else _is_json(item, depth - 1)):
            return False
    return True


def _is_leaf(value: Any) -> bool:
    return isfinite(value) if isinstance(value, float) else value is None or isinstance(value, str | int)


def _storage_fault(value: Any) -> str | None:
    try:
        pack_unchecked(value)
    except (TypeError, ValueError) as cause:
        return f"{_kind(value)} that cannot be stored ({type(cause).__name__})"
    return None


def _json_fault(value: Any) -> str | None:
    if _is_leaf(value):
        return None
    if isinstance(value, float):
        return "not a finite number, and JSON has no other"
    return f"{_kind(value)}: only JSON values can be stored (a list, not a tuple or set, and strings as keys)"


def _kind(value: Any) -> str:
    return f"a value of type {type(value).__name__}"


def _describe_fault(value: Any, name: str, wrong: Callable[[Any], str | None] = _json_fault) -> str | None:
    """Describe the first fault and its path; the value itself never appears."""
    steps: list[str | int] = []
    what = _find_fault(value, DEPTH_LIMIT, wrong, steps)
    if what is None:
        return None
    path = name
    for key in reversed(steps):
        path = _step(path, key)
    return f"{path[:60]}… {what}" if what is _TOO_DEEP else f"{path or 'the value'} {what}"


def _find_fault(value: Any, depth: int, wrong: Callable[[Any], str | None], steps: list[str | int]) -> str | None:
    """Describe the first fault, and append its path to `steps`, innermost key first; None if there is no fault.

    The path grows only on the way back from a fault, so valid elements cost nothing.
    """
    if not isinstance(value, (dict, list)):
        what = wrong(value)
        return None if what is None else f"is {what}"
    if depth == 0:
        return _TOO_DEEP
    is_dict = isinstance(value, dict)
    sound = _PLAIN if wrong is _json_fault else ()
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        if is_dict and not isinstance(key, str):
            return f"has a key of type {type(key).__name__}: only strings can be keys"
        what = None if type(item) in sound else _find_fault(item, depth - 1, wrong, steps)
        if what is not None:
            steps.append(key)
            return what
        if is_dict and type(key) not in sound and wrong(key) is not None:
            return "has a key that cannot be stored"
    return None


def _step(path: str, key: str | int) -> str:
    """Append a key to a path; a key that is not an identifier is masked, since it may be user text."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    shown = key if len(key) <= 64 and key.isidentifier() else "[…]"
    return f"{path}.{shown}" if path and shown != "[…]" else f"{path}{shown}"


def is_json(text: str) -> bool:
    """True if a text is valid JSON without lone surrogates, not even escaped ones."""
    try:
        _scan_json(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
    return True


def unwrap_json(value: Any) -> Any:
    """Return the value of JSON text in a msgpack `bin`; any other value unchanged."""
    if type(value) is not bytes:
        return value
    text = value.decode("utf-8", "surrogatepass")
    try:
        decoded, end = _read_json(text)
    except ValueError:
        return json.loads(text)  # raises the error
    return decoded if end == len(text) else json.loads(text)


def replace_non_finite(value: Any) -> Any:
    """Return strict JSON: non-finite numbers, which earlier releases stored, become null."""
    if isinstance(value, dict):
        return {key: replace_non_finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [replace_non_finite(item) for item in value]
    return value if _is_leaf(value) else None
