"""Decode the elements of a session's list and of its pinned messages. `messages.message` documents the format."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any, Literal

import msgspec

from redismem.errors import UnsupportedFormat
from redismem.messages.compression import decode_frame
from redismem.messages.message import COMPRESSED_VERSION, Message, Opaque, is_pinned, visible_payload
from redismem.messages.values import Undecodable, encode_plain, unwrap_json


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
_split = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_new = object.__new__
_PLAIN_ROLES = frozenset(["system", "developer", "user", "assistant"])


def is_gap(message: Message) -> bool:
    """True if this is a gap, which stands for popped messages and for the pop itself."""
    return message.beside is not None and "gap" in message.beside


class StoredMessages:
    """Stored messages, checked and decoded; `Message` objects are created on demand."""

    __slots__ = ("_epoch", "_first_seq", "_rows", "_seqs", "may_hold_calls", "may_hold_surrogates", "zone")

    def __init__(
        self,
        elements: Sequence[bytes],
        first_seq: int,
        epoch: str,
        seqs: Sequence[int] | None = None,
        zone: str | None = None,
    ) -> None:
        """Decode all elements. Raises Undecodable or UnsupportedFormat.

        Args:
            first_seq: The seq of the first element; the others follow.
            seqs: The seq of each message. If given, `first_seq` is ignored, and one element may contain several
                messages in a row.
            zone: The time zone of the session.
        """
        self.zone = zone
        # One msgpack array around all elements needs one call into msgspec, instead of one per message.
        length = len(elements) if seqs is None else len(seqs)
        array = b"".join((b"\xdd", length.to_bytes(4, "big"), *elements))
        try:
            self._rows = _decode_elements(array)
            self.may_hold_surrogates = False
            self.may_hold_calls = not _are_plain([row.payload for row in self._rows])
        except (msgspec.MsgspecError, ValueError, RecursionError):
            self._rows, self.may_hold_surrogates = _decode_any_rows(array, elements)
            self.may_hold_calls = True
        self._first_seq = first_seq
        self._seqs = seqs
        self._epoch = epoch

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def last_day(self) -> int | None:
        """The day of the last message, see `Message.day`; None without messages."""
        if not self._rows:
            return None
        row = self._rows[-1]
        last = Message.restored({}, row.beside, 0, 0, row.stored_ms, "")
        last.zone = self.zone
        return last.day

    def payloads(self) -> list[dict[str, Any]]:
        """Return the visible dict of every message, gaps included."""
        if self.may_hold_surrogates:  # only then may a message be opaque
            return [visible_payload(row.payload, row.beside) for row in self._rows]
        return [row.payload for row in self._rows]

    def payloads_apart(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Return the visible dicts of pinned messages and of unpinned messages; both without gaps."""
        pinned, others = [], []
        for row in self._rows:
            beside = row.beside
            payload = row.payload if beside is None else visible_payload(row.payload, beside)
            if is_pinned(row.payload, beside):
                pinned.append(payload)
            elif beside is None or "gap" not in beside:
                others.append(payload)
        return pinned, others

    def tokens(self) -> dict[int, int]:
        """Return the tokens of each unpinned message by its seq, without gaps."""
        return {
            seq: row.tokens
            for seq, row in enumerate(self._rows, self._first_seq)
            if not is_pinned(row.payload, row.beside) and (row.beside is None or "gap" not in row.beside)
        }

    def messages(self) -> list[Message]:
        """Create the Message objects."""
        epoch, zone, messages = self._epoch, self.zone, []
        seqs: Iterable[int] = count(self._first_seq) if self._seqs is None else self._seqs
        for seq, row in zip(seqs, self._rows, strict=False):
            message = _new(Message)
            message._payload = row.payload
            message._beside = row.beside
            message.seq = seq
            message.tokens = row.tokens
            message.stored_ms = row.stored_ms
            message.epoch = epoch
            message.zone = zone
            messages.append(message)
        return messages


def scan_payloads(payloads: list[dict[str, Any]]) -> tuple[bool, bool]:
    """Return two flags: any dict may be more than a plain text, and any dict may contain a lone surrogate."""
    if Opaque in map(type, payloads):
        return True, True
    try:
        encode_plain(payloads)
    except (TypeError, ValueError, OverflowError):
        return True, True
    return not _are_plain(payloads), False


def _are_plain(payloads: list[dict[str, Any]]) -> bool:
    """True if each message has a text and a role that all providers have, and nothing else. Every turn asks."""
    try:
        for payload in payloads:  # any() costs three times as much
            if len(payload) != 2 or type(payload["content"]) is not str or payload["role"] not in _PLAIN_ROLES:
                return False
    except (KeyError, TypeError):  # no role or content, or a role that is no text
        return False
    return True


def split_elements(joined: bytes, length: int) -> list[bytes]:
    """Split `length` concatenated elements. Raises Undecodable."""
    try:
        return [bytes(element) for element in _split(b"\xdd" + length.to_bytes(4, "big") + joined)]
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise Undecodable("joined messages cannot be split") from None


def decode_messages(elements: Sequence[bytes], first_seq: int, epoch: str, zone: str | None = None) -> list[Message]:
    """Decode elements to Message objects. Raises Undecodable or UnsupportedFormat."""
    return StoredMessages(elements, first_seq, epoch, zone=zone).messages()


def _decode_any_rows(array: bytes, elements: Sequence[bytes]) -> tuple[list[_Element], bool]:
    """Return the rows, and True if any payload is JSON text: only JSON text can contain lone surrogates."""
    try:
        rows = _decode_any_elements(array)
        has_json = False
        for row in rows:
            if row.version == COMPRESSED_VERSION:
                row.payload, row.beside = decode_frame(row.payload)
            has_json = has_json or type(row.payload) is bytes
            row.payload = _unwrap_dict(row.payload)
            row.beside = None if row.beside is None else _unwrap_dict(row.beside)
        return list(rows), has_json
    except (msgspec.MsgspecError, ValueError, RecursionError):
        newest = max((element[1] for element in elements if element[:1] == b"\x95" and len(element) > 1), default=0)
        if COMPRESSED_VERSION < newest < 0x80:
            raise UnsupportedFormat(
                f"a message has format version {newest}, this release reads up to {COMPRESSED_VERSION}"
            ) from None
        raise Undecodable("a message cannot be decoded") from None


def _unwrap_dict(value: dict[str, Any] | bytes) -> dict[str, Any]:
    payload = unwrap_json(value)
    if not isinstance(payload, dict):
        raise Undecodable("a message is not a dict")
    return payload
