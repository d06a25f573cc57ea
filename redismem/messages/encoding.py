"""Encode messages to the bytes stored in Redis."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from redismem.errors import InvalidMessage
from redismem.messages.coercion import Shape, coerce_message, dump_models, is_plain
from redismem.messages.message import FORMAT_VERSION, Message, TokenCounter, is_opaque
from redismem.messages.values import encode_plain, pack, pack_json

_HEAD = b"\x95" + FORMAT_VERSION.to_bytes(1, "big")
_NIL = encode_plain(None)
_PICTURE_TOKENS = 1_000
"""The most tokens of one picture, recording or file: providers count its pixels, seconds or pages, not its bytes."""
# The fields that have a medium as base64, in the formats of providers and frameworks.
_MEDIA = frozenset(("audio", "base64", "blob", "bytes", "data", "file_data", "image", "result", "video"))
# The fields whose values a model reads or writes as text, whatever they contain.
_TEXTS = frozenset(("text", "content"))
_CALLS = frozenset(("arguments", "args", "input", "parameters"))
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{256}")


def default_tokens(packed: bytes) -> int:
    """Estimate the tokens of a payload without media: one per four bytes, plus 4."""
    return len(packed) // 4 + 4


def estimate_tokens(payload: Any, packed: bytes) -> int:
    """Estimate the tokens of a payload: one per four bytes, plus 4; at most 1,000 for each medium in it."""
    tokens = default_tokens(packed)
    if tokens <= _PICTURE_TOKENS:
        return tokens
    return tokens - sum(max(0, size // 4 - _PICTURE_TOKENS) for size in _media_sizes(payload))


def _media_sizes(payload: Any) -> Iterator[int]:
    """Yield the size of each data URL, and of each field of a medium that has bytes or base64."""
    left = [payload]
    while left:
        value = left.pop()
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            if key in _CALLS:
                continue
            if isinstance(item, dict | list):
                left.append(item)
            elif isinstance(item, bytes) or (isinstance(item, str) and key not in _TEXTS and _is_medium(key, item)):
                yield len(item)


def _is_medium(key: Any, text: str) -> bool:
    return text[:5].lower() == "data:" or (key in _MEDIA and _BASE64.match(text) is not None)


def encode_message(message: Message | Shape, count_tokens: TokenCounter | None = None) -> tuple[bytes, int]:
    """Return the unstamped element of a message, and its tokens.

    Raises InvalidMessage if the message would not decode to an equal one, or the counter returns no count.
    """
    payload: Any = message
    beside: dict[str, Any] | None = None
    if isinstance(message, Message):
        payload, beside = message._payload, message._beside
    elif not isinstance(message, dict):
        payload, beside = coerce_message(message)
    encode = pack_json if beside is not None and is_opaque(beside) else pack
    try:
        packed = encode(payload, InvalidMessage)
    except InvalidMessage:
        if is_plain(payload) is not False:  # it contains no SDK object, so `dump_models` would change nothing
            raise
        payload = dump_models(payload)
        packed = encode(payload, InvalidMessage)
    if count_tokens is None:
        tokens = len(packed) // 4 + 4  # as `default_tokens`, of which a turn needs no more
        if tokens > _PICTURE_TOKENS:
            tokens = estimate_tokens(payload, packed)
    else:
        tokens = count_tokens(payload)
        if type(tokens) is not int or not 0 <= tokens < 1 << 32:
            raise InvalidMessage("the token counter must return a count: an integer, 0 or more and below 2^32")
    packed_beside = _NIL if beside is None else pack(beside, InvalidMessage)
    return b"".join((_HEAD, encode_plain(tokens), packed, packed_beside)), tokens
