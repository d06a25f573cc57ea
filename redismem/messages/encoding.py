"""Encode messages to the bytes stored in Redis."""

from __future__ import annotations

from typing import Any

from redismem.errors import InvalidMessage
from redismem.messages.coercion import Shape, coerce_message, dump_models, is_plain
from redismem.messages.message import FORMAT_VERSION, Message, TokenCounter, is_opaque
from redismem.messages.values import encode_plain, pack, pack_json

_HEAD = b"\x95" + FORMAT_VERSION.to_bytes(1, "big")
_NIL = encode_plain(None)


def default_tokens(packed: bytes) -> int:
    """Estimate the tokens of a payload: one per four bytes, plus 4."""
    return len(packed) // 4 + 4


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
        tokens = default_tokens(packed)
    else:
        tokens = count_tokens(payload)
        if type(tokens) is not int or not 0 <= tokens < 1 << 32:
            raise InvalidMessage("the token counter must return a count: an integer, 0 or more and below 2^32")
    packed_beside = _NIL if beside is None else pack(beside, InvalidMessage)
    return b"".join((_HEAD, encode_plain(tokens), packed, packed_beside)), tokens
