"""A columnar codec for the elements of a block, which compresses better than rows. No I/O.

    [tokens, besides, payloads, later_ms, texts]

The first four columns have one item per element:

- `tokens`: the tokens; nil replaces the column if every item equals the default estimate
- `besides`: the beside; nil replaces the column if no element has a beside
- `payloads`: the payload, with "" for every text except the role
- `later_ms`: the milliseconds from the stamp of the previous element to the stamp of this one

`texts` joins the extracted texts with a zero character. A large element, or one that would not decode to equal bytes,
is stored whole among the payloads. The columns that are most alike in different blocks come first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from redismem.messages.encoding import default_tokens
from redismem.messages.message import FORMAT_VERSION, UNSET, Unset
from redismem.messages.values import Undecodable, encode_plain

STAMP = b"\xcf\x00\x00\x01\x9b\x00\x00\x00\x00"
"""A sample stamp. Stamps of the years around 2025 begin with the same bytes."""

# Larger elements have little in common with other elements, and splitting nested lists costs time per byte.
LARGE_BYTES = 16_384
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


_decode_element = msgspec.msgpack.Decoder(_Element).decode
_decode_payload = msgspec.msgpack.Decoder(dict[str, Any]).decode
_decode_columns = msgspec.msgpack.Decoder(_Columns).decode


def encode_columns(elements: Sequence[bytes]) -> bytes:
    """Encode elements as columns."""
    later_ms: list[int] = []
    tokens: list[int] = []
    besides: list[bytes] = []
    payloads: list[dict[str, Any] | bytes] = []
    texts: list[str] = []
    before_ms, by_default = 0, True
    for element in elements:
        row, payload, row_texts = split_element(element)
        later_ms.append(0 if row is None else row.stored_ms - before_ms)
        tokens.append(0 if row is None else row.tokens)
        besides.append(_NIL if row is None else bytes(row.beside))
        payloads.append(payload)
        texts += row_texts
        if row is not None:
            before_ms = row.stored_ms
            by_default = by_default and row.tokens == default_tokens(bytes(row.payload))
    return encode_plain(
        _Columns(
            None if by_default else tokens,
            None if all(beside == _NIL for beside in besides) else [msgspec.Raw(beside) for beside in besides],
            payloads,
            later_ms,
            _SEPARATOR.join(texts),
        )
    )


def decode_columns(content: bytes, count: int) -> list[bytes]:
    """Decode columns to `count` elements. Raises Undecodable."""
    try:
        columns = _decode_columns(content)
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
        raise Undecodable("a block of originals cannot be decoded") from None
    if len(elements) != count or next(texts, ""):
        raise Undecodable("a block of originals holds another number of messages or texts than its header says")
    return elements


def split_element(element: bytes) -> tuple[_Element | None, dict[str, Any] | bytes, list[str]]:
    """Split an element into its fields, its payload without texts, and the texts.

    Returns None, the element itself and no texts if it has to be stored whole.
    """
    texts: list[str] = []
    if len(element) > LARGE_BYTES:
        return None, element, []
    try:
        row = _decode_element(element)
        payload = _decode_payload(row.payload)
        rebuilt = _join_element(row.tokens, encode_plain(payload), row.beside, row.stored_ms)
        _extract_texts(payload, texts, "role")
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError):
        return None, element, []
    if rebuilt != element or row.stored_ms > _LATEST_MS or any(_SEPARATOR in text for text in texts):
        return None, element, []
    return row, payload, texts


def _join_element(tokens: int | None, payload: bytes, beside: bytes | msgspec.Raw, stored_ms: int) -> bytes:
    counted = encode_plain(default_tokens(payload) if tokens is None else tokens)
    return b"".join((_HEAD, counted, payload, beside, _STAMP, stored_ms.to_bytes(8, "big")))


def _items(value: dict[str, Any] | list[Any]) -> Iterable[tuple[Any, Any]]:
    return value.items() if isinstance(value, dict) else enumerate(value)


def _extract_texts(value: Any, texts: list[str], skipped_key: str | Unset = UNSET) -> None:
    """Move every text of a dict or list to `texts`, except the text at one key.

    UNSET skips no key. None could not mean that, because a damaged payload may have any key, including nil.
    """
    for key, item in _items(value):
        if type(item) is str:
            if key != skipped_key:
                texts.append(item)
                value[key] = ""
        elif type(item) is dict or type(item) is list:
            _extract_texts(item, texts)


def _restore_texts(value: Any, texts: Iterator[str], skipped_key: str | Unset = UNSET) -> None:
    """Put the extracted texts back. Raises StopIteration if there are too few."""
    for key, item in _items(value):
        if type(item) is str:
            if key != skipped_key:
                value[key] = next(texts)
        elif type(item) is dict or type(item) is list:
            _restore_texts(item, texts)
