"""The lane for blocking callers. A socket carries one call at a time, and each thread that is in a call has its own."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import hiredis

from redismem.concurrency import forks
from redismem.protocol.call import Command, Subject
from redismem.protocol.scripts import Script
from redismem.protocol.server_errors import ConnectionLost, ServerError
from redismem.transport import resp, tls
from redismem.transport.base import discard_unsent, keep_alive, reason_of
from redismem.transport.replicas import Content, Wanted, add_replicas, encode_wait
from redismem.transport.url import Address

_READ_BYTES = 64 * 1024
_LOST = (OSError, EOFError, UnicodeError, resp.OutOfStep, hiredis.HiredisError)


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
        except _LOST as failure:
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


def _replies_or_raise(outcome: resp.Outcome) -> list[Any]:
    """Return the replies, or raise the error if there is one instead."""
    if isinstance(outcome, list):
        return outcome
    raise outcome


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


class BlockingLane:
    """A transport to one node for any number of threads.

    At most `max_connections` threads call at a time; others wait.

    Its methods block and never suspend. After a fork, both processes can use it.
    """

    repeats = False
    blocks = True
    nodes = None
    calls_count = 0

    def __init__(self, address: Address, *, max_connections: int = 64) -> None:
        self._address = address
        self.place = address.place
        self._idle: list[Socket] = []
        self._max_connections = max_connections
        self._room = threading.BoundedSemaphore(max_connections)
        self._pid = os.getpid()
        self._is_closed = self._is_retired = False

    async def run(
        self, commands: Sequence[Command], timeout_s: float, script: Script | None = None, subject: Subject = None
    ) -> list[Any]:
        del subject  # a thread makes one call at a time
        until = time.monotonic() + timeout_s
        return self._run(commands, partial(self._send, until=until), script, until)

    async def run_confirmed(
        self,
        commands: Sequence[Command],
        timeout_s: float,
        script: Script | None,
        wanted: Wanted,
        asking: bool = False,
    ) -> list[Any]:
        """Return the replies of `run`, followed by the number of replicas that have the write."""
        until = time.monotonic() + timeout_s + wanted.wait_s

        def send(commands: Sequence[Command]) -> resp.Outcome:
            call = Content.of(commands, asking)

            def read(replies: list[Any]) -> resp.Outcome:
                return add_replicas(call.read(replies[:-1]), replies[-1])

            return self._call(call.content + encode_wait(wanted), call.reply_count + 1, read, until)

        return self._run(commands, send, script, until)

    def _run(
        self,
        commands: Sequence[Command],
        send: Callable[[Sequence[Command]], resp.Outcome],
        script: Script | None,
        until: float,
    ) -> list[Any]:
        """Run a call and return its replies. Loads a missing script, and closes connections to a replica."""
        half_time = (time.monotonic() + until) / 2
        outcome = send(commands)
        refusal = resp.refusal(outcome)
        if refusal is not None and refusal.word == "NOSCRIPT" and script is not None:
            loaded = self._call(resp.encode_load(script), 1, resp.check_replies, until)
            refused = resp.refusal(loaded)
            if isinstance(loaded, ConnectionLost):
                outcome = loaded
            elif refused is None:
                outcome = send(commands) if time.monotonic() <= half_time else resp.loaded_late()
            elif not resp.is_command_refused(refused):
                outcome = refused
            else:
                outcome = self._send_source(commands, send, script, until)
        elif refusal is not None and refusal.word == "READONLY":
            # The former primary is a replica now. A new connection may lead to its successor.
            self._close_idle()
        return _replies_or_raise(outcome)

    def _send_source(
        self,
        commands: Sequence[Command],
        send: Callable[[Sequence[Command]], resp.Outcome],
        script: Script,
        until: float,
    ) -> resp.Outcome:
        """Send the call with the script's source, if this user may run EVAL."""
        probed = self._send([resp.EVAL_PROBE], until)
        if isinstance(probed, ConnectionLost):
            return probed
        if resp.is_command_refused(resp.refusal(probed)):
            return resp.may_not_load()
        return send(resp.with_source(commands, script))

    async def run_independent(self, commands: Sequence[Command], timeout_s: float) -> list[Any]:
        if not commands:
            return []
        until = time.monotonic() + timeout_s
        return _replies_or_raise(
            self._call(resp.encode_independent(commands), len(commands), resp.check_replies, until)
        )

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 (there is no event loop)

    async def aclose(self) -> None:
        """Close idle connections now and the others after their call. Nothing can be called afterwards."""
        self._is_closed = True
        self._close_idle()

    def drop(self) -> None:
        """Do nothing, because a blocking socket is closed when its object is collected."""

    def retire(self) -> None:
        """From now on, close each connection as soon as it is idle."""
        self._is_retired = True
        self._close_idle()

    def _send(self, commands: Sequence[Command], until: float) -> resp.Outcome:
        if len(commands) == 1:
            return self._call(resp.encode_independent(commands), 1, resp.check_replies, until)
        return self._call(resp.encode_transaction(commands), len(commands) + 2, resp.unpack_transaction, until)

    def _call(
        self, content: bytes, reply_count: int, read: Callable[[list[Any]], resp.Outcome], until: float
    ) -> resp.Outcome:
        if self._is_closed:
            raise RuntimeError("this memory is closed")
        if self._pid != os.getpid():
            # Threads of the parent that were in a call do not exist here, and would never release the semaphore.
            self._room, self._pid = threading.BoundedSemaphore(self._max_connections), os.getpid()
        room = self._room
        if not room.acquire(timeout=max(0.0, until - time.monotonic())):
            return ConnectionLost("TimeoutError", sent=False)
        try:
            return self._exchange(content, reply_count, read, until)
        finally:
            room.release()

    def _exchange(
        self, content: bytes, reply_count: int, read: Callable[[list[Any]], resp.Outcome], until: float
    ) -> resp.Outcome:
        try:
            connection = self._take_connection(until)
        except _LOST as failure:
            return ConnectionLost(reason_of(failure), sent=False)
        try:
            outcome = read(connection.exchange(content, reply_count, until))
        except BaseException as failure:  # even KeyboardInterrupt, or a late reply goes to the next call
            connection.give_up()
            if not isinstance(failure, _LOST):
                raise
            self._close_idle()  # the other idle connections are often broken too
            return ConnectionLost(reason_of(failure))
        self._idle.append(connection)
        if self._is_closed or self._is_retired:
            self._close_idle()
        return outcome

    def _take_connection(self, until: float) -> Socket:
        """Return an idle connection, or a new one."""
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:  # another thread has taken the last one
                break
            if connection.pid == os.getpid() and connection.place == self.place:
                return connection
            connection.close()  # in a forked process, this closes only the copies of this process
        return Socket(self._find_address(until), until)

    def _find_address(self, until: float) -> Address:
        """Return the address to connect to. Raises ServerError, ConnectionLost."""
        del until
        return self._address

    def _close_idle(self) -> None:
        while self._idle:
            try:
                self._idle.pop().close()
            except IndexError:
                return
