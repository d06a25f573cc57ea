"""Ids: of sessions, of appends, of fences, and what a log calls a session."""

from __future__ import annotations

import hashlib
import os
import time
import uuid
from collections import deque
from functools import lru_cache

from redismem.errors import InvalidMessage

_APPEND_ID_BYTES = 256
_TOKEN_BYTES = 18
_TOKENS_COUNT = 256

_tokens: deque[bytes] = deque()
# What a child process took of these, its parent would take as well.
os.register_at_fork(after_in_child=_tokens.clear)


def now_ms() -> int:
    """This machine's clock. Only for names: what expires or is due goes by the server's."""
    return time.time_ns() // 1_000_000


def new_session_id() -> str:
    """A UUIDv7 (RFC 9562): 48 bits of milliseconds, so ids sort by creation, then 74 random bits."""
    number = (now_ms() << 80) | int.from_bytes(os.urandom(10), "big")
    number = number & ~(0xF << 76) | (0x7 << 76)
    number = number & ~(0x3 << 62) | (0x2 << 62)
    return str(uuid.UUID(int=number))


@lru_cache(maxsize=4_096)
def session_hash(session_id: str) -> str:
    """What a log says of a session: enough to find it by, nothing to read from it."""
    return hashlib.blake2b(session_id.encode("utf-8", "surrogateescape"), digest_size=6).hexdigest()


def append_token(append_id: object) -> bytes:
    """7 bytes by which a session remembers an append, a hash of the caller's id or random; the others are random.

    These are 3 that tell this call from another with the same id, and 8 for a new epoch.

    From the operating system, not from `random`: a process that seeds `random` would repeat the ids of its neighbours.
    """
    if append_id is None:
        try:
            return _tokens.pop()
        except IndexError:  # asked of the operating system all at once: a call of it costs as much as the rest of this
            drawn = os.urandom(_TOKEN_BYTES * _TOKENS_COUNT)
            _tokens.extend(drawn[at : at + _TOKEN_BYTES] for at in range(_TOKEN_BYTES, len(drawn), _TOKEN_BYTES))
            return drawn[:_TOKEN_BYTES]
    if not isinstance(append_id, str) or not append_id:
        raise InvalidMessage("an append id is a non-empty string")
    encoded = append_id.encode("utf-8", "surrogatepass")
    if len(encoded) > _APPEND_ID_BYTES:
        raise InvalidMessage(f"an append id has at most {_APPEND_ID_BYTES} bytes, this one {len(encoded)}")
    return hashlib.blake2b(encoded, digest_size=7).digest() + os.urandom(11)


def nonce() -> bytes:
    """16 hexadecimal digits that make a fence unique even when a failover rolled the counter back."""
    return os.urandom(8).hex().encode()
