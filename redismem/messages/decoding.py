"""The elements of a session's list, and of its pinned messages, as messages again. `messages` says what they are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any, Literal

import msgspec

from redismem.errors import UnsupportedFormat
from redismem.messages.compression import payload_and_beside
from redismem.messages.encoding import encode_message
from redismem.messages.message import COMPRESSED_VERSION, Message, is_pinned
from redismem.messages.values import Undecodable, opened

GAP = encode_message(Message.restored({}, {"gap": True}, 0, 0, 0, ""), lambda _: 0)[0]
"""The place of a message that was popped, and of a pop, without its stamp."""


class _Element(msgspec.Struct, array_like=True, gc=False, forbid_unknown_fields=True):
    version: Literal[1]
    tokens: int
    payload: dict[str, Any]
    beside: dict[str, Any] | None
    stored_ms: int


class _AnyElement(_Element):
    version: Literal[1, 2]  # type: ignore[assignment]
    payload: dict[str, Any] | bytes  # type: ignore[assignment]
    beside: dict[str, Any] | bytes | None  # type: ignore[assignment]


_decode_elements = msgspec.msgpack.Decoder(list[_Element]).decode
_decode_any_elements = msgspec.msgpack.Decoder(list[_AnyElement]).decode
_part = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_new = object.__new__


def is_gap(message: Message) -> bool:
    """Whether this is no message, but the place of one that was popped, or of a pop."""
    return message.beside is not None and "gap" in message.beside


class StoredMessages:
    """Messages out of the store, checked and decoded; their objects are made when somebody asks for them."""

    __slots__ = ("_epoch", "_first_seq", "_rows", "_seqs", "may_hold_calls")

    def __init__(
        self, elements: Sequence[bytes], first_seq: int, epoch: str, seqs: Sequence[int] | None = None
    ) -> None:
        """`first_seq`: the seq of the first element. With `seqs` each has its own, and `elements` may be joined ones.

        Raises Undecodable, UnsupportedFormat.
        """
        # One msgpack array around all of them: one call into msgspec instead of one a message.
        length = len(elements) if seqs is None else len(seqs)
        array = b"".join((b"\xdd", length.to_bytes(4, "big"), *elements))
        rows = self._rows = _decoded(array, elements)
        # "_" is in every form of a call or result, but for a role of eight letters and Gemini's `parts`. Numbers are
        # found fastest in bytes.
        may_hold_calls = 0x5F in array or 0xA8 in array or (0xA5 in array and b"\xa5parts" in array)
        self.may_hold_calls = may_hold_calls or bool(rows and type(rows[0]) is not _Element)
        self._first_seq = first_seq
        self._seqs = seqs
        self._epoch = epoch

    def __len__(self) -> int:
        return len(self._rows)

    def payloads(self) -> list[dict[str, Any]]:
        return [row.payload for row in self._rows]

    def payloads_apart(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """The payloads of pinned messages, and those of the others; gaps are in neither."""
        pinned, others = [], []
        for row in self._rows:
            if is_pinned(row.payload, row.beside):
                pinned.append(row.payload)
            elif row.beside is None or "gap" not in row.beside:
                others.append(row.payload)
        return pinned, others

    def tokens(self) -> dict[int, int]:
        """The tokens of each message that is not pinned and no gap, by its seq."""
        return {
            seq: row.tokens
            for seq, row in enumerate(self._rows, self._first_seq)
            if not is_pinned(row.payload, row.beside) and (row.beside is None or "gap" not in row.beside)
        }

    def messages(self) -> list[Message]:
        epoch, messages = self._epoch, []
        seqs: Iterable[int] = count(self._first_seq) if self._seqs is None else self._seqs
        for seq, row in zip(seqs, self._rows, strict=False):
            message = _new(Message)
            message._payload = row.payload
            message._beside = row.beside
            message.seq = seq
            message.tokens = row.tokens
            message.stored_ms = row.stored_ms
            message.epoch = epoch
            messages.append(message)
        return messages


def parted(joined: bytes, length: int) -> list[bytes]:
    """The elements that were joined to these bytes, so many. Raises Undecodable."""
    try:
        return [bytes(each) for each in _part(b"\xdd" + length.to_bytes(4, "big") + joined)]
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise Undecodable("pinned messages cannot be told apart") from None


def decode_messages(elements: Sequence[bytes], first_seq: int, epoch: str) -> list[Message]:
    """The messages of these elements, made at once. Raises as StoredMessages does."""
    return StoredMessages(elements, first_seq, epoch).messages()


def _decoded(array: bytes, elements: Sequence[bytes]) -> list[_Element]:
    try:
        try:
            return _decode_elements(array)
        except msgspec.ValidationError:
            rows = _decode_any_elements(array)
        for row in rows:
            if row.version == COMPRESSED_VERSION:
                row.payload, row.beside = payload_and_beside(row.payload)
            row.payload = _opened_dict(row.payload)
            row.beside = None if row.beside is None else _opened_dict(row.beside)
        return list(rows)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        newest = max((element[1] for element in elements if element[:1] == b"\x95" and len(element) > 1), default=0)
        if COMPRESSED_VERSION < newest < 0x80:
            raise UnsupportedFormat(
                f"a message has format version {newest}, this release reads up to {COMPRESSED_VERSION}"
            ) from None
        raise Undecodable("a message cannot be decoded") from None


def _opened_dict(value: dict[str, Any] | bytes) -> dict[str, Any]:
    found = opened(value)
    if not isinstance(found, dict):
        raise Undecodable("a message is no dict")
    return found
