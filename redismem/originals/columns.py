"""The elements of a block with like beside like: first what they are made of, then all of their texts. No I/O.

    [tokens, besides, payloads, later_ms, texts]

The first four have an item for each element: its tokens, what stands beside it, its payload with "" in the place of
each text but the role, and how much later it was stored than the one before. `tokens` is nil if all are as they are
counted by default, `besides` if there are none. `texts` has what stood in those places, with a zero between two. An
element that would not come back byte by byte, or is a large one, stands among the payloads as a whole. What is alike in
most blocks comes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from redismem.messages.encoding import default_tokens
from redismem.messages.message import FORMAT_VERSION, UNSET, Unset
from redismem.messages.values import Undecodable, encode_plain

STAMP = b"\xcf\x00\x00\x01\x9b\x00\x00\x00\x00"
"""A stamp that begins as those of these years do."""

# What is larger has little in common with what stands beside it. Of lists in lists, each byte is taken apart.
_LARGE_BYTES = 16_384
_SEPARATOR = "\0"
_HEAD = b"\x95" + FORMAT_VERSION.to_bytes(1, "big")
_NIL = encode_plain(None)
_STAMP = b"\xcf"
_LATEST_MS = (1 << 63) - 1


class _Element(msgspec.Struct, array_like=True, gc=False, forbid_unknown_fields=True):
    version: int
    tokens: int
    payload: msgspec.Raw
    beside: msgspec.Raw
    stored_ms: int


class _Columns(msgspec.Struct, array_like=True, gc=False, forbid_unknown_fields=True):
    tokens: list[int] | None
    besides: list[msgspec.Raw] | None
    payloads: list[dict[str, Any] | bytes]
    later_ms: list[int]
    texts: str


_element = msgspec.msgpack.Decoder(_Element).decode
_payload = msgspec.msgpack.Decoder(dict[str, Any]).decode
_columns = msgspec.msgpack.Decoder(_Columns).decode


def encode_columns(elements: Sequence[bytes]) -> bytes:
    """These elements in this form."""
    later_ms: list[int] = []
    tokens: list[int] = []
    besides: list[bytes] = []
    payloads: list[dict[str, Any] | bytes] = []
    texts: list[str] = []
    before_ms, by_default = 0, True
    for element in elements:
        found, payload, of_it = _split_element(element)
        later_ms.append(0 if found is None else found.stored_ms - before_ms)
        tokens.append(0 if found is None else found.tokens)
        besides.append(_NIL if found is None else bytes(found.beside))
        payloads.append(payload)
        texts += of_it
        if found is not None:
            before_ms = found.stored_ms
            by_default = by_default and found.tokens == default_tokens(bytes(found.payload))
    return encode_plain(
        _Columns(
            None if by_default else tokens,
            None if all(each == _NIL for each in besides) else [msgspec.Raw(each) for each in besides],
            payloads,
            later_ms,
            _SEPARATOR.join(texts),
        )
    )


def decode_columns(content: bytes, count: int) -> list[bytes]:
    """The elements again, so many. Raises Undecodable."""
    try:
        columns = _columns(content)
        texts = iter(columns.texts.split(_SEPARATOR))
        tokens: Sequence[int | None] = columns.tokens or [None] * count
        besides: Sequence[bytes | msgspec.Raw] = columns.besides or [_NIL] * count
        elements: list[bytes] = []
        stored_ms = 0
        for later_ms, counted, beside, payload in zip(columns.later_ms, tokens, besides, columns.payloads, strict=True):
            stored_ms += later_ms
            if isinstance(payload, dict):
                _restore_texts(payload, texts, "role")
                elements.append(_join_element(counted, encode_plain(payload), beside, stored_ms))
            else:
                elements.append(payload)
    except (msgspec.MsgspecError, ValueError, OverflowError, StopIteration, RecursionError):
        raise Undecodable("a block of originals cannot be taken apart") from None
    if len(elements) != count or next(texts, ""):
        raise Undecodable("a block of originals has not what it should have")
    return elements


def _split_element(element: bytes) -> tuple[_Element | None, dict[str, Any] | bytes, list[str]]:
    """What an element is made of, its payload without its texts, and these; None and the element, if it stays whole."""
    texts: list[str] = []
    if len(element) > _LARGE_BYTES:
        return None, element, []
    try:
        found = _element(element)
        payload = _payload(found.payload)
        again = _join_element(found.tokens, encode_plain(payload), found.beside, found.stored_ms)
        _extract_texts(payload, texts, "role")
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError):
        return None, element, []
    if again != element or found.stored_ms > _LATEST_MS or any(_SEPARATOR in text for text in texts):
        return None, element, []
    return found, payload, texts


def _join_element(tokens: int | None, payload: bytes, beside: bytes | msgspec.Raw, stored_ms: int) -> bytes:
    counted = encode_plain(default_tokens(payload) if tokens is None else tokens)
    return b"".join((_HEAD, counted, payload, beside, _STAMP, stored_ms.to_bytes(8, "big")))


def _items(value: dict[str, Any] | list[Any]) -> Iterable[tuple[Any, Any]]:
    return value.items() if isinstance(value, dict) else enumerate(value)


def _extract_texts(value: Any, texts: list[str], but: str | Unset = UNSET) -> None:
    """Takes every text out of a dict or list, but that of one key: a foreign one may have any, nil too."""
    for key, each in _items(value):
        if type(each) is str:
            if key != but:
                texts.append(each)
                value[key] = ""
        elif type(each) is dict or type(each) is list:
            _extract_texts(each, texts)


def _restore_texts(value: Any, texts: Iterator[str], but: str | Unset = UNSET) -> None:
    """Puts them back. Raises StopIteration if they are too few."""
    for key, each in _items(value):
        if type(each) is str:
            if key != but:
                value[key] = next(texts)
        elif type(each) is dict or type(each) is list:
            _restore_texts(each, texts)
