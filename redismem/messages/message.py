"""Messages, and their format in Redis.

An element of a session's list is one msgpack array (https://github.com/msgpack/msgpack/blob/master/spec.md)

    [version = 1, tokens, payload, beside, stored_ms]

- `payload`: the dict exactly as it was appended. If it has values that msgpack cannot encode (lone surrogates, integers
  over 64 bits), it is a `bin` of JSON text instead (UTF-8 with surrogates).
- `beside`: the arguments of `Message(...)` that are never sent to a model, in the same two encodings, or nil. Its key
  `pinned` overrides the role; its key `gap` marks a gap and holds the number of its seqs (`gaps`); its key `opaque`
  marks an opaque message, whose payload is always the JSON text; its key `replaced` marks the message of a `replace`;
  its key `shortened` marks a message whose body has left the window, and holds the size of the whole element.
- `stored_ms`: the stamp, written by the append script from the server's clock: `0xcf` and eight bytes of milliseconds.

An element without `stored_ms` is called unstamped. State values are encoded like payloads. Scripts never decode
payload, beside or state values. The module `decoding` decodes elements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from redismem.errors import InvalidMessage
from redismem.messages.coercion import Shape, coerce_message
from redismem.messages.zones import local_zone

FORMAT_VERSION = 1
COMPRESSED_VERSION = 2
"""The format of large messages, if the settings turn compression on; `compression` documents it."""
STAMP_BYTES = 9
PINNED_ROLES = ("system", "developer")
"""Messages in these roles are pinned by default."""

DAY_MS = 86_400_000
_EPOCH = datetime.fromtimestamp(0, UTC)
_FIRST_MS = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)
_LAST_MS = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)

TokenCounter = Callable[[dict[str, Any]], int]
"""A function that counts the tokens of a message's dict, called once per append.

The default: bytes / 4 + 4, with at most 1,000 for each picture, recording or file.
"""


def moment(ms: float) -> datetime:
    """Return the UTC datetime of milliseconds since 1970, clamped to the years 1 to 9999."""
    return _EPOCH + timedelta(milliseconds=min(max(ms, _FIRST_MS), _LAST_MS))


def day_of(time_ms: int) -> int:
    """Return the number of the UTC day since 1970 that contains a time."""
    return time_ms // DAY_MS


def localize(at: datetime, zone: str | None, offset_s: int | None = None) -> datetime:
    """Return the same time by the clock with this offset, else by that of the zone, else in UTC."""
    try:
        if offset_s is not None:
            return at.astimezone(timezone(timedelta(seconds=offset_s)))
        return at if zone is None else at.astimezone(local_zone(zone, at))
    except (OverflowError, ValueError, TypeError):  # before the year 1 or after 9999, or no offset of a day
        return at


def number_of_day(at: datetime) -> int:
    """Return the number of a datetime's day since 1970, by its own clock."""
    return at.toordinal() - _EPOCH.toordinal()


class Unset:
    """The type of UNSET."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNSET"


UNSET = Unset()
"""Removes a param, as its value in `merge`. It is also the default of arguments for which None is a valid value."""


class Opaque(dict[str, Any]):
    """An empty dict in the place of an opaque message, for everything that reads dicts; `payload` is the message."""

    __slots__ = ("payload",)

    def __init__(self, payload: dict[str, Any]) -> None:
        super().__init__()
        self.payload = payload


class Message:
    """One message: a dict in a provider's wire format, and fields stored beside it.

    `to_openai()` returns the dict that was passed to `append`, with every key. `metadata`, `timestamp` and `id` of
    `Message(...)` are stored beside the dict and never sent to a model. Keyword arguments with other names become keys
    of the dict. Omitted arguments are absent from it; `content=None` is stored as null.

        Message("user", "Where is my order?", timestamp=datetime(2026, 5, 4, 9, 30, tzinfo=UTC))

    Attributes set by the store: `seq` (place in the session's epoch, from 1), `tokens`, `stored_ms` (server's clock),
    `zone` (of the session, or None).
    """

    __slots__ = ("_beside", "_payload", "epoch", "seq", "stored_ms", "tokens", "zone")
    zone: str | None

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
        if isinstance(role, Mapping):
            raise InvalidMessage("Message takes the role first: pass a dict to append as it is, or as Message(**dict)")
        named = {"role": role, "content": content, "name": name, "tool_calls": tool_calls, "tool_call_id": tool_call_id}
        self._payload: dict[str, Any] = {key: value for key, value in named.items() if value is not UNSET} | unknown
        beside: dict[str, Any] = {}
        if metadata is not None:
            beside["metadata"] = dict(metadata)
        if timestamp is not None:
            if not isinstance(timestamp, datetime):
                raise InvalidMessage(
                    f"a timestamp must be a datetime with a time zone, not one of the type {type(timestamp).__name__}"
                )
            if timestamp.tzinfo is None:
                raise InvalidMessage("a timestamp needs a time zone, this datetime has none")
            beside["timestamp_us"] = (timestamp - _EPOCH) // timedelta(microseconds=1)
            if offset_s := int((timestamp.utcoffset() or timedelta(0)).total_seconds()):
                beside["offset_s"] = offset_s
            if not _FIRST_MS * 1000 <= beside["timestamp_us"] <= _LAST_MS * 1000 + 999:
                raise InvalidMessage("a timestamp must lie within the years 1 to 9999 in UTC")
        if id is not None:
            beside["id"] = id
        self._beside = beside or None
        self.seq = 0
        self.tokens = 0
        self.stored_ms = 0
        self.epoch = ""
        self.zone = None

    @classmethod
    def from_openai(cls, shape: Shape) -> Message:
        """Create a message from a dict with any keys, or from an SDK's message object.

        Raises:
            InvalidMessage: It is no message, or it would not come back equal.
        """
        return cls.restored(*coerce_message(shape), 0, 0, 0, "")

    @classmethod
    def opaque(
        cls,
        payload: dict[str, Any],
        *,
        metadata: Mapping[str, Any] | None = None,
        timestamp: datetime | None = None,
        id: str | None = None,
    ) -> Message:
        """Create a message that redismem stores and returns without reading it: an envelope, an event, encrypted items.

        The dict may have any keys. It has no role, so only `pin=True` pins it. Recall does not find it, and its tokens
        are the default estimate. No summary covers it: a session is kept whole, see `Policy`, once an opaque message is
        the oldest that would be summarised. `Context.to_openai()` returns it verbatim, except with `alternate=True`;
        `to_anthropic()` and `to_gemini()` leave it out.

        Raises:
            InvalidMessage: The payload is not a plain dict.
        """
        if type(payload) is not dict:
            raise InvalidMessage(f"an opaque message is a plain dict, not a {type(payload).__name__}")
        message = cls(metadata=metadata, timestamp=timestamp, id=id)
        message._payload = payload
        message._beside = {**(message._beside or {}), "opaque": True}
        return message

    @classmethod
    def restored(
        cls, payload: dict[str, Any], beside: dict[str, Any] | None, seq: int, tokens: int, stored_ms: int, epoch: str
    ) -> Message:
        """Create a message from its stored fields."""
        message = cls.__new__(cls)
        message._payload = payload
        message._beside = beside
        message.seq = seq
        message.tokens = tokens
        message.stored_ms = stored_ms
        message.epoch = epoch
        message.zone = None
        return message

    def to_openai(self) -> dict[str, Any]:
        """Return the dict as it was appended, not a copy."""
        return self._payload

    @property
    def visible(self) -> dict[str, Any]:
        """The dict for code that reads messages: `to_openai()`, or an `Opaque` in the place of an opaque message."""
        return self._payload if self._beside is None else visible_payload(self._payload, self._beside)

    @property
    def beside(self) -> dict[str, Any] | None:
        """The fields never sent to a model: `metadata`, `timestamp_us` (since 1970), `id`, marks; or None."""
        return self._beside

    @property
    def pinned(self) -> bool:
        """True if the message is never summarised and comes first in the context, by its role or by `pin`."""
        return is_pinned(self._payload, self._beside)

    @property
    def shortened(self) -> bool:
        """True if notes take the place of long texts and pictures, because the window had become too large.

        `messages(include_originals=True)` returns the whole message.
        """
        return self._beside is not None and "shortened" in self._beside

    def with_pin(self, pinned: bool) -> Message:
        """Return a copy of the message that is pinned or not."""
        beside = {name: value for name, value in (self._beside or {}).items() if name != "pinned"}
        if pinned != is_pinned(self._payload, beside):
            beside["pinned"] = pinned
        return self.restored(self._payload, beside or None, self.seq, self.tokens, self.stored_ms, self.epoch)

    def mark_replaced(self) -> Message:
        """Return a copy with the mark of a replacement, so that a retry of the replaced message is recognised."""
        beside = {**(self._beside or {}), "replaced": True}
        return self.restored(self._payload, beside, self.seq, self.tokens, self.stored_ms, self.epoch)

    def _get(self, key: str) -> Any:
        return (self._beside or {}).get(key, self.visible.get(key))

    def _timestamp_us(self) -> int | None:
        return None if self._beside is None else self._beside.get("timestamp_us")

    @property
    def role(self) -> str | None:
        return self.visible.get("role")

    @property
    def content(self) -> Any:
        """The text, the list of parts, or None. `"content" in message` tells null from absent."""
        return self.visible.get("content")

    @property
    def name(self) -> str | None:
        return self.visible.get("name")

    @property
    def tool_calls(self) -> list[Any] | None:
        return self.visible.get("tool_calls")

    @property
    def tool_call_id(self) -> str | None:
        return self.visible.get("tool_call_id")

    @property
    def metadata(self) -> Any:
        return self._get("metadata")

    @property
    def timestamp(self) -> Any:
        """The caller's timestamp; else the datetime at which Redis stored the message, None before it is stored.

        It is by the clock of the caller's timestamp, else by that of the session's zone, else in UTC.
        """
        timestamp_us = self._timestamp_us()
        if timestamp_us is not None:
            return self._localize(moment(timestamp_us // 1000) + timedelta(microseconds=timestamp_us % 1000))
        timestamp = self.visible.get("timestamp")
        return self._localize(moment(self.stored_ms)) if timestamp is None and self.stored_ms else timestamp

    def _localize(self, at: datetime) -> datetime:
        offset_s = None if self._beside is None else self._beside.get("offset_s")
        return localize(at, self.zone, offset_s)

    @property
    def day(self) -> int:
        """The number of the message's day since 1970, by the clock of `timestamp`."""
        if self.zone is None and self._beside is None:
            return day_of(self.stored_ms)
        return number_of_day(self._localize(moment(self.time_ms)))

    @property
    def time_ms(self) -> int:
        """Milliseconds since 1970: the timestamp passed to `Message(...)`, else the time at which Redis stored it."""
        timestamp_us = self._timestamp_us()
        return self.stored_ms if timestamp_us is None else timestamp_us // 1000

    @property
    def id(self) -> Any:
        """The caller's id; else the unique `<epoch>:<seq>`, None before the message is stored."""
        id = self._get("id")
        if id is None and self.seq:
            return f"{self.epoch}:{self.seq}"
        return id

    @property
    def session_id(self) -> str | None:
        """The session of a message that recall over all conversations of an owner has found; None for all others."""
        return None

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


class FoundMessage(Message):
    """A message that was found among all conversations of an owner, so it names its session."""

    __slots__ = ("_session_id",)
    _session_id: str

    @classmethod
    def of(cls, message: Message, session_id: str) -> FoundMessage:
        """Return the message with the id of its session."""
        found = cls.__new__(cls)
        for name in Message.__slots__:
            setattr(found, name, getattr(message, name))
        found._session_id = session_id
        return found

    @property
    def session_id(self) -> str:
        return self._session_id


def is_pinned(payload: dict[str, Any], beside: dict[str, Any] | None) -> bool:
    """True if a message with this payload and beside is pinned."""
    if beside is None:
        return payload.get("role") in PINNED_ROLES
    marked = beside.get("pinned")
    return visible_payload(payload, beside).get("role") in PINNED_ROLES if marked is None else marked is True


def is_opaque(beside: dict[str, Any] | None) -> bool:
    """True if the message with this beside is opaque."""
    return beside is not None and beside.get("opaque") is True


def visible_payload(payload: dict[str, Any], beside: dict[str, Any] | None) -> dict[str, Any]:
    """Return the payload, or an `Opaque` in its place if the message is opaque."""
    return Opaque(payload) if is_opaque(beside) else payload
