"""Ids of sessions, appends and fences, and the hash that stands for a session in logs."""

from __future__ import annotations

import hashlib
import itertools
import os
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterator
from functools import lru_cache

from redismem.errors import InvalidMessage

_APPEND_ID_BYTES = 256
_RANDOM_BYTES = 15
_TOKENS_COUNT = 256
_SENDER_BYTES, _NUMBER_BYTES = 6, 6
SENDING_BYTES = _SENDER_BYTES + _NUMBER_BYTES
SENDING_AT = 10
"""The place of the sending in a token."""

_tokens: deque[bytes] = deque()
_sender: list[bytes] = []
"""The bytes that name this process, drawn with the first token."""
_numbers = itertools.count(1)
# Two threads that drew at once would put numbers out of order, and a retry needs a greater one than its first attempt.
_drawing = [threading.Lock()]
# Otherwise a forked child and its parent would use the same bytes.
os.register_at_fork(after_in_child=_tokens.clear)
os.register_at_fork(after_in_child=_sender.clear)
os.register_at_fork(after_in_child=lambda: _drawing.__setitem__(0, threading.Lock()))


def now_ms() -> int:
    """Return the time of this machine in milliseconds, for names only: expiry and due times use the server's clock."""
    return time.time_ns() // 1_000_000


def new_session_id() -> str:
    """Create a UUIDv7 (RFC 9562): 48 bits of milliseconds, so ids sort by creation, then 74 random bits."""
    number = (now_ms() << 80) | int.from_bytes(os.urandom(10), "big")
    number = number & ~(0xF << 76) | (0x7 << 76)
    number = number & ~(0x3 << 62) | (0x2 << 62)
    return str(uuid.UUID(int=number))


@lru_cache(maxsize=4_096)
def session_hash(session_id: str) -> str:
    """Return a short hash that identifies a session in logs without revealing its id."""
    return hashlib.blake2b(session_id.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()


def append_token(append_id: object) -> bytes:
    """Return the 30-byte token of an append.

    Seven bytes name the append: they are a hash of the caller's id, or random without an id. Three bytes distinguish
    this call from other calls with the id: one of the process, and two that count. The next
    twelve are those of `sending`, and the last eight the nonce of a new epoch.

    The random bytes come from the operating system, because processes that seed `random` alike would get equal ids.

    Raises:
        InvalidMessage: the id is not a string of 1 to 256 bytes.
    """
    if append_id is None:
        try:
            return _tokens.popleft()  # the oldest, because its number is the least
        except IndexError:  # drawn in bulk: one call to the operating system costs as much as the rest of this function
            with _drawing[0]:
                if not _tokens:
                    _tokens.extend(_draw_tokens())
            return append_token(None)
    if not isinstance(append_id, str) or not append_id:
        raise InvalidMessage("an append id must be a non-empty string")
    encoded = append_id.encode("utf-8", "surrogatepass")
    if len(encoded) > _APPEND_ID_BYTES:
        raise InvalidMessage(f"an append id has at most {_APPEND_ID_BYTES} bytes, this one has {len(encoded)}")
    return hashlib.blake2b(encoded, digest_size=7).digest() + append_token(None)[7:]


def sending() -> bytes:
    """Return twelve bytes that name one sending of a call: six the process, and six count its sendings."""
    return append_token(None)[SENDING_AT : SENDING_AT + SENDING_BYTES]


def resending() -> bytes:
    """Return the twelve bytes of a sending of a call that was sent before: the top bit of the count is set.

    The script that runs it notes them, and refuses earlier sendings of the process: their bytes may come late.
    """
    name = sending()
    return name[:_SENDER_BYTES] + bytes((name[_SENDER_BYTES] | 0x80,)) + name[_SENDER_BYTES + 1 :]


def renew(token: bytes) -> bytes:
    """Return a token, or a sending alone, with a new sending of a call that was sent before."""
    at = SENDING_AT if len(token) > SENDING_BYTES else 0
    return token[:at] + resending() + token[at + SENDING_BYTES :]


def _draw_tokens() -> Iterator[bytes]:
    """Yield new tokens, in the order of their numbers."""
    if not _sender:
        _sender.append(os.urandom(_SENDER_BYTES))
    sender, drawn = _sender[0], os.urandom(_RANDOM_BYTES * _TOKENS_COUNT)
    for at in range(0, len(drawn), _RANDOM_BYTES):
        number = next(_numbers).to_bytes(_NUMBER_BYTES)
        random, epoch = drawn[at : at + 7], drawn[at + 7 : at + _RANDOM_BYTES]
        yield b"%b%b%b%b%b%b" % (random, sender[:1], number[-2:], sender, number, epoch)


def nonce() -> bytes:
    """Return 16 random hexadecimal digits, which keep a fence unique if a failover rolls its counter back."""
    return os.urandom(8).hex().encode()
