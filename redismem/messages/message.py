"""Messages, and the bytes they are in Redis.

An element of a session's list is one msgpack array (https://github.com/msgpack/msgpack/blob/master/spec.md)

    [version = 1, tokens, payload, beside, stored_ms]

`payload` is the dict exactly as it was put in; as a `bin` it is JSON text (UTF-8, surrogates let through), for what
msgpack cannot hold: lone surrogates, integers beyond 64 bits. `beside`, in the same two ways, holds what was given to
`Message(...)` but belongs to no model's wire format, or is nil; `pinned` in it says so if the role says otherwise,
and `gap` that this is the place of a message that was popped. The append script writes the last member, the server's
clock, behind the rest: nine bytes, `0xcf` and the milliseconds. State values are msgpack or JSON text likewise. Scripts
never open any of it. `elements` reads them again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from redismem.errors import InvalidMessage
from redismem.messages.coercion import Shape, message_of

FORMAT_VERSION = 1
COMPRESSED_VERSION = 2
"""What large messages are stored as, if the settings say so: `compressed` has its form."""
STAMP_BYTES = 9
PINNED_ROLES = ("system", "developer")
"""Messages in these roles are pinned, unless they are marked as not."""
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
        if isinstance(role, Mapping):
            raise InvalidMessage("a Message begins with its role: give a dict to append as it is, or Message(**it)")
        known = {"role": role, "content": content, "name": name, "tool_calls": tool_calls, "tool_call_id": tool_call_id}
        self._payload: dict[str, Any] = {key: value for key, value in known.items() if value is not UNSET} | unknown
        beside: dict[str, Any] = {}
        if metadata is not None:
            beside["metadata"] = dict(metadata)
        if timestamp is not None:
            if not isinstance(timestamp, datetime):
                raise InvalidMessage(
                    f"a timestamp is a datetime with a time zone, not one of the type {type(timestamp).__name__}"
                )
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
    def from_openai(cls, shape: Shape) -> Message:
        """A message that is this dict, whatever its keys; or what an SDK's object stands for. Raises InvalidMessage."""
        return cls.restored(*message_of(shape), 0, 0, 0, "")

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

    @property
    def pinned(self) -> bool:
        """Whether it is never summarised and comes before the others: by its role, or as it was pinned or unpinned."""
        return is_pinned(self._payload, self._beside)

    def with_pin(self, pinned: bool) -> Message:
        """The same message, pinned or not."""
        beside = {name: value for name, value in (self._beside or {}).items() if name != "pinned"}
        if pinned != is_pinned(self._payload, None):
            beside["pinned"] = pinned
        return self.restored(self._payload, beside or None, self.seq, self.tokens, self.stored_ms, self.epoch)

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


def is_pinned(payload: dict[str, Any], beside: dict[str, Any] | None) -> bool:
    """Whether such a message is pinned."""
    marked = None if beside is None else beside.get("pinned")
    return payload.get("role") in PINNED_ROLES if marked is None else marked is True
