"""JSON values as bytes, given back exactly as they were: msgpack, or a msgpack `bin` of JSON text.

The JSON text (UTF-8, surrogates let through) is for what msgpack cannot hold: lone surrogates, integers beyond 64 bits.
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


class Undecodable(Exception):
    """These bytes are none of ours: what decoding raises, and the calls turn into CorruptSession."""


def encode_value(value: Any, name: str = "") -> bytes:
    """A state value. Raises InvalidState for what is not a JSON value, or would not come back equal.

    `name` is what a refusal calls the value.
    """
    return pack(value, InvalidState, name)


def decode_value(packed: bytes) -> Any:
    """The state value again. Raises Undecodable."""
    try:
        return opened(_decode(packed))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise Undecodable("a state value cannot be decoded") from None


def pack(value: Any, error: type[RedismemError], name: str = "") -> bytes:
    """msgpack of a value, or of its JSON text. Checks it first: a tuple, date or int key would come back as another.

    Raises `error`, which says where in the value the fault is.
    """
    if not _is_json(value, DEPTH_LIMIT):
        raise error(_fault(value, name) or "a value would not come back as it was put in")
    try:
        return packed_unchecked(value)
    except (TypeError, ValueError) as cause:
        where = _fault(value, name, _unpackable)
        raise error(where or f"a value cannot be stored ({type(cause).__name__}): only JSON values can") from None


def packed_unchecked(value: Any) -> bytes:
    """`pack` of what was stored once, as it is. Raises TypeError or ValueError for what never was."""
    try:
        return encode_plain(value)
    except (OverflowError, UnicodeEncodeError):
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return encode_plain(text.encode("utf-8", "surrogatepass"))


def _is_json(value: Any, depth: int) -> bool:
    """Whether a value comes back as it is, and can be decoded from within any stack that is not itself too deep."""
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


def _unpackable(value: Any) -> str | None:
    try:
        packed_unchecked(value)
    except (TypeError, ValueError) as cause:
        return f"{_kind(value)} that cannot be stored ({type(cause).__name__})"
    return None


def _unequal(value: Any) -> str | None:
    if _is_leaf(value):
        return None
    if isinstance(value, float):
        return "not a finite number, and JSON has no other"
    return f"{_kind(value)}: only JSON values can be stored (a list, not a tuple or set, and strings as keys)"


def _kind(value: Any) -> str:
    return f"a value of type {type(value).__name__}"


def _fault(value: Any, name: str, wrong: Callable[[Any], str | None] = _unequal) -> str | None:
    """Where the first fault is, and what it is; never the value."""
    steps: list[str | int] = []
    what = _found(value, DEPTH_LIMIT, wrong, steps)
    if what is None:
        return None
    path = name
    for key in reversed(steps):
        path = _step(path, key)
    return f"{path[:60]}… {what}" if what is _TOO_DEEP else f"{path or 'the value'} {what}"


def _found(value: Any, depth: int, wrong: Callable[[Any], str | None], steps: list[str | int]) -> str | None:
    """What the first fault is. The way to it goes into `steps`, the last step first: sound elements need no path."""
    if not isinstance(value, (dict, list)):
        what = wrong(value)
        return None if what is None else f"is {what}"
    if depth == 0:
        return _TOO_DEEP
    is_dict = isinstance(value, dict)
    sound = _PLAIN if wrong is _unequal else ()
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        if is_dict and not isinstance(key, str):
            return f"has a key of type {type(key).__name__}: only strings can be keys"
        what = None if type(item) in sound else _found(item, depth - 1, wrong, steps)
        if what is not None:
            steps.append(key)
            return what
        if is_dict and type(key) not in sound and wrong(key) is not None:
            return "has a key that cannot be stored"
    return None


def _step(path: str, key: str | int) -> str:
    """A name is shown like the names of params; a key that is no name may be somebody's text."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    shown = key if len(key) <= 64 and key.isidentifier() else "[…]"
    return f"{path}.{shown}" if path and shown != "[…]" else f"{path}{shown}"


def opened(value: Any) -> Any:
    """A value out of msgpack; if it is a `bin`, the value of the JSON text in it."""
    return json.loads(value.decode("utf-8", "surrogatepass")) if type(value) is bytes else value


def readable(value: Any) -> Any:
    """A JSON value that every reader of JSON takes: what is no finite number, and earlier releases took, is null."""
    if isinstance(value, dict):
        return {key: readable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [readable(item) for item in value]
    return value if _is_leaf(value) else None
