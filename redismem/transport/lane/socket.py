"""A connection for blocking callers, which carries one call at a time."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from typing import Any

import hiredis

from redismem.concurrency import forks
from redismem.protocol.call import Command
from redismem.protocol.server_errors import ConnectionLost, ServerError
from redismem.transport import resp, tls
from redismem.transport.base import discard_unsent, keep_alive
from redismem.transport.url import Address

_READ_BYTES = 64 * 1024
LOST = (OSError, EOFError, UnicodeError, resp.OutOfStep, hiredis.HiredisError)
"""The errors that end a connection."""


class Socket:
    """A connection that the server has accepted. Must be closed after any error of `exchange`."""

    def __init__(self, address: Address, until: float) -> None:
        """Connect, and send the greeting.

        Raises:
            ServerError: The server refused the connection.
            ConnectionLost: TLS failed, or there is no login.
            OSError: The connection failed.
        """
        self.pid = os.getpid()
        self.place = address.place
        self._reader = resp.reader()
        self._is_new = True
        try:
            self._socket = _dial(address, until)
            self._held = forks.hold(self._socket.fileno())
            self._open(address, until)
        except LOST as failure:
            raise tls.lasting_failure(failure) or failure from None

    def _open(self, address: Address, until: float) -> None:
        """Greet the server, and once more with a new login if the server does not accept the current one."""
        try:
            if (asker := address.asker) is None:
                self._greet(address.opening(), until)
                return
            try:
                self._greet(address.opening(asker.login_blocking(until)), until)
            except ServerError as refused:
                if refused.word != "WRONGPASS":
                    raise
                self._greet(address.opening(asker.login_blocking(until)), until)
        except BaseException:
            self.close()
            raise

    def _greet(self, opening: tuple[Command, ...], until: float) -> None:
        if opening:
            replies = self.exchange(resp.encode_independent(opening), len(opening), until)
            resp.check_greeting(resp.check_replies(replies), opening)

    def exchange(self, content: bytes, reply_count: int, until: float) -> list[Any]:
        """Send a call, and return its replies.

        Raises:
            ConnectionLost: The server is not Redis.
            OSError: The connection failed, or the deadline has passed (TimeoutError).
            EOFError: The server closed the connection.
            HiredisError: The replies are malformed.
            OutOfStep: There are more replies than expected.
        """
        self._socket.settimeout(_left_s(until))
        self._socket.sendall(content)
        replies: list[Any] = []
        next_reply, nothing = self._reader.gets, resp.NOTHING
        while True:
            while (reply := next_reply()) is not nothing:
                replies.append(reply)
            if len(replies) >= reply_count:
                break
            self._socket.settimeout(_left_s(until))
            received = self._socket.recv(_READ_BYTES)
            if not received:
                raise EOFError
            if self._is_new and resp.is_foreign(received):
                raise resp.foreign_server()
            self._is_new = False
            self._reader.feed(received)
        if len(replies) > reply_count or self._reader.has_data():
            raise resp.OutOfStep("a reply without a call")
        return replies

    def close(self) -> None:
        forks.drop(self._held)
        self._socket.close()

    def give_up(self) -> None:
        """Close the socket while a call is pending."""
        discard_unsent(self._socket)
        self.close()


def _left_s(until: float) -> float:
    """Return the seconds left. Raises TimeoutError if there are none."""
    left_s = until - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s


def _dial(address: Address, until: float) -> socket.socket:
    if address.path is not None:
        dialled = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            dialled.settimeout(_left_s(until))
            dialled.connect(address.path)
        except BaseException:
            dialled.close()
            raise
        return dialled
    dialled = _connect(address, until)
    try:
        dialled.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        keep_alive(dialled)
        if address.tls is None:
            return dialled
        return address.tls.wrap_socket(dialled, server_hostname=address.host)
    except TimeoutError:
        dialled.close()
        raise ConnectionLost(tls.SILENCE, sent=False) from None
    except BaseException:
        dialled.close()
        raise


def _connect(address: Address, until: float) -> socket.socket:
    """Connect to one of the host's addresses."""
    found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    *others, last = (str(info[4][0]) for info in found)
    for host in others:
        with contextlib.suppress(OSError):
            return socket.create_connection((host, address.port), _left_s(until))
    return socket.create_connection((last, address.port), _left_s(until))
