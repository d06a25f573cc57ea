"""Names: session ids, namespaces, append ids, shards, and every Redis key there is."""

from __future__ import annotations

import binascii
import hashlib
import os
import re
import time
import uuid
from dataclasses import dataclass
from functools import lru_cache

from redismem.errors import InvalidMessage, InvalidSessionId
from redismem.layout import INDEXES

_SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}", re.ASCII)
_NAMESPACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_APPEND_ID_BYTES = 256
_REMEMBERED_COUNT = 4_096

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
        """Those that name sessions, in the order in which the scripts take them."""
        return tuple(getattr(self, index) for index in INDEXES)


@dataclass(frozen=True, slots=True)
class SessionKeys:
    """The keys of one session, and those of its shard: all with one hash tag, so one script may touch them all."""

    session_id: str
    session: bytes
    messages: bytes
    state: bytes
    originals: bytes
    corrupt: bytes
    shard: ShardKeys
    appends: tuple[bytes, ...]
    """The keys of an append."""
    reads: tuple[tuple[bytes | str | int, ...], ...]
    """The commands that read the state and the whole window."""


def _matches(pattern: re.Pattern[str], text: object) -> bool:
    return isinstance(text, str) and pattern.fullmatch(text) is not None


class Keys:
    """Where the sessions of a namespace live.

    A session's shard is CRC-16/XMODEM (Redis Cluster's own hash) of its id, modulo the number of shards. The tag
    `{namespace:shard}` stands in front of the session id, so that nothing in an id can move it to another slot.
    """

    __slots__ = ("_session", "_shards", "namespace", "shard_count", "shards_record")

    def __init__(self, namespace: str, shard_count: int) -> None:
        if not _matches(_NAMESPACE, namespace):
            raise InvalidSessionId("a namespace is 1 to 64 of [A-Za-z0-9._-], the first one alphanumeric")
        self.namespace = namespace
        self.shard_count = shard_count
        self.shards_record = f"rm:{{{namespace}}}:shards".encode()
        # A handle is made for every turn: the names of the sessions used last need not be put together again.
        self._session = lru_cache(maxsize=_REMEMBERED_COUNT)(self._session_keys)
        self._shards = tuple(
            ShardKeys(*(f"{self._tag(shard)}:{name}".encode() for name in SHARD_KEYS)) for shard in range(shard_count)
        )

    def _tag(self, shard: int) -> str:
        return f"rm:{{{self.namespace}:{shard:02d}}}"

    def shard_of(self, session_id: str) -> int:
        return binascii.crc_hqx(session_id.encode(), 0) % self.shard_count

    def shards(self) -> tuple[ShardKeys, ...]:
        return self._shards

    def session(self, session_id: str) -> SessionKeys:
        """The keys of a session. Raises InvalidSessionId."""
        return self._session(session_id if isinstance(session_id, str) else "")

    def _session_keys(self, session_id: str) -> SessionKeys:
        if not _matches(_SESSION_ID, session_id):
            raise InvalidSessionId("a session id is 1 to 128 of [A-Za-z0-9._:@-], the first one alphanumeric")
        number = self.shard_of(session_id)
        tag, shard = self._tag(number), self._shards[number]
        messages, state = f"{tag}:messages:{session_id}".encode(), f"{tag}:state:{session_id}".encode()
        return SessionKeys(
            session_id=session_id,
            session=session_id.encode(),
            messages=messages,
            state=state,
            originals=f"{tag}:originals:{session_id}".encode(),
            corrupt=f"{tag}:corrupt:{session_id}".encode(),
            shard=shard,
            appends=(messages, state, *shard.indexes, shard.fences),
            reads=(("HGETALL", state), ("LRANGE", messages, 0, -1)),
        )


def now_ms() -> int:
    """This machine's clock. Only for names: what expires or is due goes by the server's."""
    return time.time_ns() // 1_000_000


def new_session_id() -> str:
    """A UUIDv7 (RFC 9562): 48 bits of milliseconds, so ids sort by creation, then 74 random bits."""
    number = (now_ms() << 80) | int.from_bytes(os.urandom(10), "big")
    number = number & ~(0xF << 76) | (0x7 << 76)
    number = number & ~(0x3 << 62) | (0x2 << 62)
    return str(uuid.UUID(int=number))


def session_hash(session_id: str) -> str:
    """What a log says of a session: enough to find it by, nothing to read from it."""
    return hashlib.blake2b(session_id.encode(), digest_size=6).hexdigest()


def append_token(append_id: object) -> bytes:
    """8 bytes by which a session remembers an append, a hash of the caller's id or random; 8 for a new epoch, random.

    From the operating system, not from `random`: a process that seeds `random` would repeat the ids of its neighbours.
    """
    if append_id is None:
        return os.urandom(16)
    if not isinstance(append_id, str) or not append_id:
        raise InvalidMessage("an append id is a non-empty string")
    encoded = append_id.encode("utf-8", "surrogatepass")
    if len(encoded) > _APPEND_ID_BYTES:
        raise InvalidMessage(f"an append id has at most {_APPEND_ID_BYTES} bytes, this one {len(encoded)}")
    return hashlib.blake2b(encoded, digest_size=8).digest() + os.urandom(8)


def nonce() -> bytes:
    """16 hexadecimal digits that make a fence unique even where a failover rolled the counter back."""
    return os.urandom(8).hex().encode()
