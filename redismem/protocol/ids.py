"""Ids of sessions, appends and fences, and the hash that stands for a session in logs."""

from __future__ import annotations

import hashlib
import itertools
import os
import threading
import time
import uuid
import weakref
from collections import deque
from collections.abc import Iterator
from functools import lru_cache

from redismem.concurrency import forks
from redismem.errors import InvalidMessage

_APPEND_ID_BYTES = 256
_RANDOM_BYTES = 15
_TOKENS_COUNT = 256
_SENDER_BYTES, _NUMBER_BYTES = 6, 6
SENDING_BYTES = _SENDER_BYTES + _NUMBER_BYTES
SENDING_AT = 10
"""The place of the sending in a token."""

_numbers = itertools.count(1)
_names: list[bytes] = []
"""The bytes that name a sender, of all senders of this process. The first byte differs, as long as there are 256."""
_free_names: list[bytes] = []
"""Names of senders that are gone. A process that opens one memory after another has one name."""
_senders: weakref.WeakValueDictionary[bytes, Sender] = weakref.WeakValueDictionary()
# Two threads that drew at once would put numbers out of order, and a retry needs a greater one than its first attempt.
_drawing = [threading.Lock()]


def _forget_names() -> None:
    """Let a forked child draw names of its own: otherwise it and its parent would use the same bytes."""
    _names.clear()
    _free_names.clear()
    _senders.clear()
    _drawing[0] = threading.Lock()


os.register_at_fork(after_in_child=_forget_names)


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


class Sender:
    """Draws the tokens of the calls of one memory. Six bytes name it, which no other memory uses while it lives.

    So Redis keeps apart the appends of several memories, also of one process. It is thread-safe, and a forked process
    draws other bytes.
    """

    __slots__ = ("__weakref__", "_name", "_tokens")

    def __init__(self) -> None:
        self._name: list[bytes] = []
        """One name, drawn with the first token."""
        self._tokens: deque[bytes] = deque()
        weakref.finalize(self, _free_names.extend, self._name).atexit = False
        forks.reset_after_fork(self)

    def reset(self) -> None:
        """Draw another name in a forked process."""
        self._name.clear()
        self._tokens.clear()

    def token(self, append_id: object) -> bytes:
        """Return the 30-byte token of an append.

        Seven bytes name the append: they are a hash of the caller's id, or random without an id. Three bytes
        distinguish this call from other calls with the id: one of the sender, and two that count. The next twelve are
        those of `sending`, and the last eight the nonce of a new epoch.

        The random bytes come from the operating system, because processes that seed `random` alike would get equal ids.

        Raises:
            InvalidMessage: the id is not a string of 1 to 256 bytes.
        """
        if append_id is None:
            try:
                return self._tokens.popleft()  # the oldest, because its number is the least
            except IndexError:  # drawn in bulk: one call to the operating system costs as much as the rest of this
                with _drawing[0]:
                    if not self._tokens:
                        self._tokens.extend(self._draw())
                return self.token(None)
        if not isinstance(append_id, str) or not append_id:
            raise InvalidMessage("an append id must be a non-empty string")
        encoded = append_id.encode("utf-8", "surrogatepass")
        if len(encoded) > _APPEND_ID_BYTES:
            raise InvalidMessage(f"an append id has at most {_APPEND_ID_BYTES} bytes, this one has {len(encoded)}")
        return hashlib.blake2b(encoded, digest_size=7).digest() + self.token(None)[7:]

    def sending(self) -> bytes:
        """Return twelve bytes that name one sending of a call: six the sender, and six count its sendings."""
        return self.token(None)[SENDING_AT : SENDING_AT + SENDING_BYTES]

    def resending(self) -> bytes:
        """Return the twelve bytes of a sending of a call that was sent before: the top bit of the count is set.

        The script that runs it notes them, and refuses earlier sendings of the sender: their bytes may come late.
        """
        name = self.sending()
        return name[:_SENDER_BYTES] + bytes((name[_SENDER_BYTES] | 0x80,)) + name[_SENDER_BYTES + 1 :]

    def _draw(self) -> Iterator[bytes]:
        """Yield new tokens, in the order of their numbers."""
        if not self._name:
            self._name.append(_free_names.pop() if _free_names else _draw_name())
            _senders[self._name[0]] = self
        name, drawn = self._name[0], os.urandom(_RANDOM_BYTES * _TOKENS_COUNT)
        for at in range(0, len(drawn), _RANDOM_BYTES):
            number = next(_numbers).to_bytes(_NUMBER_BYTES)
            random, epoch = drawn[at : at + 7], drawn[at + 7 : at + _RANDOM_BYTES]
            yield b"%b%b%b%b%b%b" % (random, name[:1], number[-2:], name, number, epoch)


def _draw_name() -> bytes:
    name = os.urandom(_SENDER_BYTES)
    if _names:
        name = bytes(((_names[-1][0] + 1) % 256,)) + name[1:]
    _names.append(name)
    return name


PROCESS = Sender()
"""The sender of calls that no memory makes."""


def renew(token: bytes) -> bytes:
    """Return a token, or a sending alone, with a new sending of a call that was sent before."""
    at = SENDING_AT if len(token) > SENDING_BYTES else 0
    sender = _senders.get(token[at : at + _SENDER_BYTES], PROCESS)
    return token[:at] + sender.resending() + token[at + SENDING_BYTES :]


def nonce() -> bytes:
    """Return 16 random hexadecimal digits, which keep a fence unique if a failover rolls its counter back."""
    return os.urandom(8).hex().encode()
