"""Names: namespaces, shards, and every Redis key there is."""

from __future__ import annotations

import binascii
import re
from dataclasses import dataclass
from typing import TypeGuard

from redismem.errors import InvalidSessionId
from redismem.protocol.layout import INDEXES
from redismem.protocol.slots import shard_tags

# Controls, separators of lines and paragraphs, and half characters, which UTF-8 has no bytes for.
_NOT_IN_A_SESSION_ID = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029\\ud800-\\udfff]")
_SESSION_ID_BYTES = 256
NAMESPACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)

SHARD_KEYS = (*INDEXES, "fences")


@dataclass(frozen=True, slots=True)
class ShardKeys:
    """The keys that all sessions of one shard share."""

    active: bytes
    overdue: bytes
    leased: bytes
    dead: bytes
    evictions: bytes
    fences: bytes

    @property
    def indexes(self) -> tuple[bytes, ...]:
        """The keys that name sessions, in the order in which the scripts take them."""
        return tuple(getattr(self, index) for index in INDEXES)


@dataclass(frozen=True, slots=True)
class SessionKeys:
    """The keys of one session, and those of its shard: all with one hash tag, so one script may touch them all."""

    session_id: str
    session: bytes
    messages: bytes
    state: bytes
    originals: bytes
    vectors: bytes
    quarantine: bytes
    shard: ShardKeys
    appends: tuple[bytes, ...]
    """The keys of an append, in the order in which its script takes them."""


def _matches(pattern: re.Pattern[str], text: object) -> bool:
    return isinstance(text, str) and pattern.fullmatch(text) is not None


def plain(text: str) -> str:
    """The text alone: a member of a str enum would be formatted by its name, but encoded by its value."""
    return text if type(text) is str else str.__str__(text)


def is_session_id(text: object) -> TypeGuard[str]:
    """Whether a session may be called so."""
    if not isinstance(text, str) or not text or len(text) > _SESSION_ID_BYTES or text != text.strip():
        return False
    if text.isascii():
        return text.isprintable()
    return _NOT_IN_A_SESSION_ID.search(text) is None and len(text.encode()) <= _SESSION_ID_BYTES


class Keys:
    """Where the sessions of a namespace live.

    A session's shard is CRC-16/XMODEM (Redis Cluster's own hash) of its id, modulo the number of shards. The tag
    `{namespace:shard}` stands in front of the session id, so that nothing in an id can move it to another slot. Four
    letters behind the number bring it to its place among the slots: see `placement`.
    """

    __slots__ = ("_shards", "_tags", "dictionaries", "namespace", "providers", "record", "shard_count", "ticks")

    def __init__(self, namespace: str, shard_count: int) -> None:
        if not _matches(NAMESPACE, namespace):
            raise InvalidSessionId("a namespace is 1 to 64 of [A-Za-z0-9._-], the first one alphanumeric")
        namespace = plain(namespace)
        self.namespace = namespace
        self.shard_count = shard_count
        self.record = f"rm:{{{namespace}}}:namespace".encode()
        self.providers = f"rm:{{{namespace}}}:providers".encode()
        self.ticks = f"rm:{{{namespace}}}:ticks".encode()
        self.dictionaries = f"rm:{{{namespace}}}:dictionaries".encode()
        self._tags = tuple(f"rm:{{{tag}}}" for tag in shard_tags(namespace, shard_count))
        self._shards = tuple(ShardKeys(*(f"{tag}:{name}".encode() for name in SHARD_KEYS)) for tag in self._tags)

    def shard_of(self, session_id: str) -> int:
        """The number of the shard that a session lives under."""
        return binascii.crc_hqx(session_id.encode(), 0) % self.shard_count

    def rate(self, name: str) -> bytes:
        """The key of what a name may do."""
        return f"rm:{{{self.namespace}}}:rate:{name}".encode()

    def shards(self) -> tuple[ShardKeys, ...]:
        """The keys of every shard, by its number."""
        return self._shards

    def session(self, session_id: str) -> SessionKeys:
        """The keys of a session. Raises InvalidSessionId."""
        if not is_session_id(session_id):
            raise InvalidSessionId(
                f"a session id is a text of 1 to {_SESSION_ID_BYTES} bytes in UTF-8, without control characters and "
                "without blanks around it"
            )
        session_id = plain(session_id)
        number = self.shard_of(session_id)
        tag, shard = self._tags[number], self._shards[number]
        messages, state = f"{tag}:messages:{session_id}".encode(), f"{tag}:state:{session_id}".encode()
        originals, vectors = f"{tag}:originals:{session_id}".encode(), f"{tag}:vectors:{session_id}".encode()
        return SessionKeys(
            session_id=session_id,
            session=session_id.encode(),
            messages=messages,
            state=state,
            originals=originals,
            vectors=vectors,
            quarantine=f"{tag}:quarantine:{session_id}".encode(),
            shard=shard,
            appends=(messages, state, originals, vectors, *shard.indexes, shard.fences),
        )
