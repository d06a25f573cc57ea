"""Messages, and the bytes they are in Redis.

An element of a session's list is one msgpack array (https://github.com/msgpack/msgpack/blob/master/spec.md)

    [version = 1, tokens, payload, beside, stored_ms]

`payload` is the dict exactly as it was put in; as a `bin` it is JSON text (UTF-8, surrogates let through), for what
msgpack cannot hold: lone surrogates, integers beyond 64 bits. `beside`, in the same two ways, holds what was given to
`Message(...)` but belongs to no model's wire format, or is nil. The append script writes the last member, the server's
clock, behind the rest: nine bytes, `0xcf` and the milliseconds. State values are msgpack or JSON text likewise. Scripts
never open any of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import msgspec

from redismem.errors import InvalidMessage, UnsupportedFormat
from redismem.values import Undecodable, encode_plain, opened, pack

FORMAT_VERSION = 1
_EPOCH = datetime.fromtimestamp(0, UTC)
_FIRST_MS = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)
_LAST_MS = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)

TokenCounter = Callable[[dict[str, Any]], int]
"""Counts the tokens of a message's dict, once, when it is appended. The default: a quarter of its bytes, plus 4."""


def moment(ms: float) -> datetime:
    """These milliseconds since 1970 in UTC; the first or last moment there is, if they lie outside."""
    return _EPOCH + timedelta(milliseconds=min(max(ms, _FIRST_MS), _LAST_MS))


class Unset:
    """The type of UNSET."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNSET"


UNSET = Unset()
"""Not given, if None means something. As a value in `merge`, it removes the param."""


class Message:
    """One message: a dict in a model's wire format, and what is known beside it.

    A dict passed to `append` comes back as that dict, every key of it, from `to_openai()`. Of what is given to
    `Message(...)`, `metadata`, `timestamp` and `id` are kept beside the dict and never go to a model. Keyword arguments
    with other names become keys of the dict; what is not given is absent from it (`content=None` is not: it is null).

    Attributes set by the store: `seq` (place in the session's epoch, from 1), `tokens`, `stored_ms` (server's clock).
    """

    __slots__ = ("_beside", "_payload", "epoch", "seq", "stored_ms", "tokens")

    def __init__(
        self,
        role: str | Unset | None = UNSET,
        content: str | list[Any] | Unset | None = UNSET,
        *,
        name: str | Unset = UNSET,
        tool_calls: list[Any] | Unset = UNSET,
        tool_call_id: str | Unset = UNSET,
        metadata: Mapping[str, Any] | None = None,
        timestamp: datetime | None = None,
        id: str | None = None,
        **unknown: Any,
    ) -> None:
        known = {"role": role, "content": content, "name": name, "tool_calls": tool_calls, "tool_call_id": tool_call_id}
        self._payload: dict[str, Any] = {key: value for key, value in known.items() if value is not UNSET} | unknown
        beside: dict[str, Any] = {}
        if metadata is not None:
            beside["metadata"] = dict(metadata)
        if timestamp is not None:
            if timestamp.tzinfo is None:
                raise InvalidMessage("a timestamp needs a time zone, this datetime has none")
            beside["timestamp_us"] = (timestamp - _EPOCH) // timedelta(microseconds=1)
            if not _FIRST_MS * 1000 <= beside["timestamp_us"] <= _LAST_MS * 1000 + 999:
                raise InvalidMessage("a timestamp lies within the years 1 to 9999 in UTC, this one does not")
        if id is not None:
            beside["id"] = id
        self._beside = beside or None
        self.seq = 0
        self.tokens = 0
        self.stored_ms = 0
        self.epoch = ""

    @classmethod
    def from_openai(cls, payload: dict[str, Any]) -> Message:
        """A message that is this dict, whatever its keys."""
        return cls.restored(payload, None, 0, 0, 0, "")

    @classmethod
    def restored(
        cls, payload: dict[str, Any], beside: dict[str, Any] | None, seq: int, tokens: int, stored_ms: int, epoch: str
    ) -> Message:
        """The message that had these attributes, `to_openai()` and `beside`."""
        message = cls.__new__(cls)
        message._payload = payload
        message._beside = beside
        message.seq = seq
        message.tokens = tokens
        message.stored_ms = stored_ms
        message.epoch = epoch
        return message

    def to_openai(self) -> dict[str, Any]:
        """The dict as it was put in."""
        return self._payload

    @property
    def beside(self) -> dict[str, Any] | None:
        """What was given to `Message(...)` and goes to no model: `metadata`, `timestamp_us` (since 1970), `id`."""
        return self._beside

    def _get(self, key: str) -> Any:
        return (self._beside or {}).get(key, self._payload.get(key))

    def _timestamp_us(self) -> int | None:
        return None if self._beside is None else self._beside.get("timestamp_us")

    @property
    def role(self) -> str | None:
        return self._payload.get("role")

    @property
    def content(self) -> Any:
        """The text, the list of parts, or None. `"content" in message` tells null from absent."""
        return self._payload.get("content")

    @property
    def name(self) -> str | None:
        return self._payload.get("name")

    @property
    def tool_calls(self) -> list[Any] | None:
        return self._payload.get("tool_calls")

    @property
    def tool_call_id(self) -> str | None:
        return self._payload.get("tool_call_id")

    @property
    def metadata(self) -> Any:
        return self._get("metadata")

    @property
    def timestamp(self) -> Any:
        """The caller's, as given; else when Redis took the message, as a datetime in UTC (None before it did)."""
        given_us = self._timestamp_us()
        if given_us is not None:
            return moment(given_us // 1000) + timedelta(microseconds=given_us % 1000)
        given = self._payload.get("timestamp")
        return moment(self.stored_ms) if given is None and self.stored_ms else given

    @property
    def time_ms(self) -> int:
        """Milliseconds since 1970: of the timestamp given to `Message(...)`, else of when Redis took the message."""
        given_us = self._timestamp_us()
        return self.stored_ms if given_us is None else given_us // 1000

    @property
    def id(self) -> Any:
        """The caller's id; else `<epoch>:<seq>`, which no other message has (None before the message is stored)."""
        given = self._get("id")
        if given is None and self.seq:
            return f"{self.epoch}:{self.seq}"
        return given

    def __contains__(self, key: str) -> bool:
        return key in self._payload

    def __getitem__(self, key: str) -> Any:
        return self._payload[key]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Message):
            return NotImplemented
        return (self._payload, self._beside, self.seq) == (other._payload, other._beside, other.seq)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<Message seq={self.seq} role={self.role!r} tokens={self.tokens}>"


class _Element(msgspec.Struct, array_like=True, gc=False, forbid_unknown_fields=True):
    version: Literal[1]
    tokens: int
    payload: dict[str, Any]
    beside: dict[str, Any] | None
    stored_ms: int


class _ElementWithText(_Element):
    payload: dict[str, Any] | bytes  # type: ignore[assignment]
    beside: dict[str, Any] | bytes | None  # type: ignore[assignment]


_decode_elements = msgspec.msgpack.Decoder(list[_Element]).decode
_decode_elements_with_text = msgspec.msgpack.Decoder(list[_ElementWithText]).decode
_new = object.__new__
_HEAD = b"\x95" + FORMAT_VERSION.to_bytes(1, "big")
_NIL = encode_plain(None)


def encode_message(message: Message | dict[str, Any], count_tokens: TokenCounter | None = None) -> tuple[bytes, int]:
    """An element without its stamp, and its tokens: by `count_tokens`, or the default.

    Raises InvalidMessage for what would not come back equal.
    """
    if isinstance(message, Message):
        payload, beside = message._payload, message._beside
    elif isinstance(message, dict):
        payload, beside = message, None
    else:
        raise InvalidMessage(
            f"a message is a dict or a Message, not a {type(message).__name__} (pydantic: pass model_dump())"
        )
    packed = pack(payload, InvalidMessage)
    if count_tokens is None:
        tokens = len(packed) // 4 + 4
    else:
        tokens = count_tokens(payload)
        if type(tokens) is not int or not 0 <= tokens < 1 << 32:
            raise InvalidMessage("the token counter must return a count: an integer, 0 or more and below 2^32")
    packed_beside = _NIL if beside is None else pack(beside, InvalidMessage)
    return b"".join((_HEAD, encode_plain(tokens), packed, packed_beside)), tokens


class StoredMessages:
    """Messages out of the store, checked and decoded; their objects are made when somebody asks for them."""

    __slots__ = ("_epoch", "_first_seq", "_rows", "may_hold_calls")

    def __init__(self, elements: Sequence[bytes], first_seq: int, epoch: str) -> None:
        """`first_seq`: the seq of the first element. Raises Undecodable, UnsupportedFormat."""
        # One msgpack array around all of them: one call into msgspec instead of one a message.
        array = b"".join((b"\xdd", len(elements).to_bytes(4, "big"), *elements))
        rows = self._rows = _decoded(array, elements)
        # "_" is in every form of a call or result, but for a role of eight letters. Numbers are found fastest in bytes.
        self.may_hold_calls = 0x5F in array or 0xA8 in array or bool(rows and type(rows[0]) is not _Element)
        self._first_seq = first_seq
        self._epoch = epoch

    def payloads(self) -> list[dict[str, Any]]:
        return [row.payload for row in self._rows]

    def messages(self) -> list[Message]:
        epoch, messages = self._epoch, []
        for seq, row in enumerate(self._rows, self._first_seq):
            message = _new(Message)
            message._payload = row.payload
            message._beside = row.beside
            message.seq = seq
            message.tokens = row.tokens
            message.stored_ms = row.stored_ms
            message.epoch = epoch
            messages.append(message)
        return messages


def decode_messages(elements: Sequence[bytes], first_seq: int, epoch: str) -> list[Message]:
    """The messages of these elements, made at once. Raises as StoredMessages does."""
    return StoredMessages(elements, first_seq, epoch).messages()


def _decoded(array: bytes, elements: Sequence[bytes]) -> list[_Element]:
    try:
        try:
            return _decode_elements(array)
        except msgspec.ValidationError:
            rows = _decode_elements_with_text(array)
        for row in rows:
            row.payload = _opened_dict(row.payload)
            row.beside = None if row.beside is None else _opened_dict(row.beside)
        return list(rows)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        newest = max((element[1] for element in elements if element[:1] == b"\x95" and len(element) > 1), default=0)
        if FORMAT_VERSION < newest < 0x80:
            raise UnsupportedFormat(
                f"a message has format version {newest}, this release reads up to {FORMAT_VERSION}"
            ) from None
        raise Undecodable("a message cannot be decoded") from None


def _opened_dict(value: dict[str, Any] | bytes) -> dict[str, Any]:
    found = opened(value)
    if not isinstance(found, dict):
        raise Undecodable("a message is no dict")
    return found
