"""The names of namespaces, shards and all Redis keys."""

from __future__ import annotations

import binascii
import re
from dataclasses import dataclass
from typing import Any, TypeGuard

from redismem.errors import InvalidSessionId
from redismem.protocol.layout import INDEXES
from redismem.protocol.slots import shard_tags

# Control characters, line and paragraph separators, and lone surrogates, which UTF-8 cannot encode.
_NOT_IN_A_SESSION_ID = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029\\ud800-\\udfff]")
_SESSION_ID_BYTES = 256
NAMESPACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)

SHARD_KEYS = (*INDEXES, "owners", "fences", "turns", "stops")


@dataclass(frozen=True, slots=True)
class ShardKeys:
    """The keys shared by all sessions of one shard."""

    active: bytes
    overdue: bytes
    leased: bytes
    dead: bytes
    evictions: bytes
    owners: bytes
    fences: bytes
    turns: bytes
    """The sessions with a running turn, by the end of its lease."""
    stops: bytes
    """The channel on which running turns are stopped. There is no key of this name."""

    @property
    def prefix(self) -> bytes:
        """The beginning of all keys of the shard."""
        return self.active.removesuffix(b":active")

    @property
    def indexes(self) -> tuple[bytes, ...]:
        """The index keys, in the order of the scripts' KEYS."""
        return tuple(getattr(self, index) for index in INDEXES)

    @property
    def all_indexes(self) -> tuple[bytes, ...]:
        """The index keys, `owners` and `turns`, for the scripts that remove a session from all of them."""
        return (*self.indexes, self.owners, self.turns)


@dataclass(frozen=True, slots=True)
class SessionKeys:
    """The keys of one session and of its shard. They share one hash tag, so that one script can access all of them."""

    session_id: str
    session: bytes
    messages: bytes
    state: bytes
    originals: bytes
    turned: bytes
    """The turns that have ended."""
    live: bytes
    """The log of the running or last turn, and the channel of its events."""
    waiters: bytes
    """The turns that wait for the running one, in order of arrival."""
    shard: ShardKeys
    owner: bytes | None = None
    """The owner that the session must have, as its state contains it; None accepts any."""


def key_of_name(keys: object, name: str) -> Any:
    """Return the key with this name, of a subject such as a session, or of its shard. Raises AttributeError."""
    return getattr(keys, name) if hasattr(keys, name) else getattr(getattr(keys, "shard", keys), name)


def _matches(pattern: re.Pattern[str], text: object) -> bool:
    return isinstance(text, str) and pattern.fullmatch(text) is not None


def plain(text: str) -> str:
    """Convert a str subclass to str, because a str enum's member is formatted by name, but encoded by value."""
    return text if type(text) is str else str.__str__(text)


def is_session_id(text: object) -> TypeGuard[str]:
    """True if the text is a valid session id, or a valid owner."""
    if not isinstance(text, str) or not text or len(text) > _SESSION_ID_BYTES or text != text.strip():
        return False
    if text.isascii():
        return text.isprintable()
    return _NOT_IN_A_SESSION_ID.search(text) is None and len(text.encode()) <= _SESSION_ID_BYTES


class Keys:
    """The keys of a namespace, its shards and its sessions.

    A session's shard is the CRC-16/XMODEM (Redis Cluster's own hash) of its id, modulo the number of shards. The hash
    tag `{namespace:shard}` precedes the session id, so that braces in an id cannot move the key to another slot. Four
    letters after the shard number move the tag to a chosen slot, see `slots`.
    """

    __slots__ = (
        *("_shards", "_tags", "dictionaries", "namespace", "processes", "providers", "record", "shard_count"),
        "ticks",
    )

    def __init__(self, namespace: str, shard_count: int) -> None:
        if not _matches(NAMESPACE, namespace):
            raise InvalidSessionId("a namespace has 1 to 64 characters of [A-Za-z0-9._-], the first one alphanumeric")
        namespace = plain(namespace)
        self.namespace = namespace
        self.shard_count = shard_count
        self.record = f"rm:{{{namespace}}}:namespace".encode()
        self.providers = f"rm:{{{namespace}}}:providers".encode()
        self.ticks = f"rm:{{{namespace}}}:ticks".encode()
        self.processes = f"rm:{{{namespace}}}:processes".encode()
        self.dictionaries = f"rm:{{{namespace}}}:dictionaries".encode()
        self._tags = tuple(f"rm:{{{tag}}}" for tag in shard_tags(namespace, shard_count))
        self._shards = tuple(ShardKeys(*(f"{tag}:{name}".encode() for name in SHARD_KEYS)) for tag in self._tags)

    def shard_of(self, session_id: str) -> int:
        """Return the number of a session's shard."""
        return binascii.crc_hqx(session_id.encode(), 0) % self.shard_count

    def prefix_of(self, tag: bytes) -> bytes:
        """Return the beginning of all keys in the shard of a record's tag."""
        return self._tags[binascii.crc_hqx(tag, 0) % self.shard_count].encode()

    def prefixes(self) -> tuple[bytes, ...]:
        """Return the beginning of all keys of each shard, by shard number."""
        return tuple(tag.encode() for tag in self._tags)

    def rate(self, name: str) -> bytes:
        """Return the key of a rate limiter."""
        return f"rm:{{{self.namespace}}}:rate:{name}".encode()

    def shards(self) -> tuple[ShardKeys, ...]:
        """Return the keys of every shard, by shard number."""
        return self._shards

    def session(self, session_id: str) -> SessionKeys:
        """Return the keys of a session.

        Raises:
            InvalidSessionId: the id is not 1 to 256 bytes of UTF-8, or has control characters or surrounding
                whitespace.
        """
        if not is_session_id(session_id):
            raise InvalidSessionId(
                f"a session id is a string of 1 to {_SESSION_ID_BYTES} bytes in UTF-8, without control characters or "
                "surrounding whitespace"
            )
        session_id = plain(session_id)
        number = self.shard_of(session_id)
        tag, shard = self._tags[number], self._shards[number]
        messages, state = f"{tag}:messages:{session_id}".encode(), f"{tag}:state:{session_id}".encode()
        originals, turned = f"{tag}:originals:{session_id}".encode(), f"{tag}:turned:{session_id}".encode()
        live, waiters = f"{tag}:live:{session_id}".encode(), f"{tag}:waiters:{session_id}".encode()
        return SessionKeys(
            session_id=session_id,
            session=session_id.encode(),
            messages=messages,
            state=state,
            originals=originals,
            turned=turned,
            live=live,
            waiters=waiters,
            shard=shard,
        )
