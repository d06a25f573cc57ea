"""JSON values as bytes, given back exactly as they were: msgpack, or a msgpack `bin` of JSON text.

The JSON text (UTF-8, surrogates let through) is for what msgpack cannot hold: lone surrogates, integers beyond 64 bits.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from redismem.errors import InvalidState, RedismemError

DEPTH_LIMIT = 100
_PLAIN = frozenset([str, int, float, bool, type(None)])

encode_plain = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


class Undecodable(Exception):
    """These bytes are none of ours: what decoding raises, and the calls turn into CorruptSession."""


def encode_value(value: Any) -> bytes:
    """A state value. Raises InvalidState for what is not a JSON value, or would not come back equal."""
    return pack(value, InvalidState)


def decode_value(packed: bytes) -> Any:
    """The state value again. Raises Undecodable."""
    try:
        return opened(_decode(packed))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise Undecodable("a state value cannot be decoded") from None


def pack(value: Any, error: type[RedismemError]) -> bytes:
    """msgpack of a value, or of its JSON text. Checks it first: a tuple, date or int key would come back as another."""
    if not _is_json(value, DEPTH_LIMIT):
        raise error(
            "a value would not come back as it was put in: only JSON values can be stored (a list, not a tuple or set, "
            f"and strings as keys), nested at most {DEPTH_LIMIT} deep"
        )
    try:
        try:
            return encode_plain(value)
        except (OverflowError, UnicodeEncodeError):
            text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
            return encode_plain(text.encode("utf-8", "surrogatepass"))
    except (TypeError, ValueError) as cause:
        raise error(f"a value cannot be stored ({type(cause).__name__}): only JSON values can") from None


def _is_json(value: Any, depth: int) -> bool:
    """Whether a value comes back as it is, and can be decoded from within any stack that is not itself too deep."""
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                return False
        value = value.values()
    elif not isinstance(value, list):
        return value is None or isinstance(value, str | int | float)
    if depth == 0:
        return False
    for item in value:  # noqa: SIM110 (a generator would take twice as long)
        if type(item) not in _PLAIN and not _is_json(item, depth - 1):
            return False
    return True


def opened(value: Any) -> Any:
    """A value out of msgpack; where it is a `bin`, the value of the JSON text in it."""
    return json.loads(value.decode("utf-8", "surrogatepass")) if type(value) is bytes else value
