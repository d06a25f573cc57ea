"""The lane for blocking callers. A socket carries one call at a time, and each thread that is in a call has its own."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from redismem.protocol.call import Command, Subject
from redismem.protocol.scripts import Script
from redismem.protocol.server_errors import ConnectionLost, ServerError
from redismem.transport import resp
from redismem.transport.base import reason_of
from redismem.transport.lane.socket import LOST, Socket
from redismem.transport.loading import load_and_repeat
from redismem.transport.replicas import Content, Wanted, add_replicas, encode_wait
from redismem.transport.url import Address


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
        return await self._run(commands, partial(self._send, until=until), script, until)

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

        return await self._run(commands, send, script, until)

    async def _run(
        self,
        commands: Sequence[Command],
        send: Callable[[Sequence[Command]], resp.Outcome],
        script: Script | None,
        until: float,
    ) -> list[Any]:
        """Run a call and return its replies. Loads a missing script, and closes connections to a replica."""
        half_time = (time.monotonic() + until) / 2

        async def ask(command: Command) -> ServerError | ConnectionLost | None:
            outcome = self._send([command], until)
            return outcome if isinstance(outcome, ConnectionLost) else resp.refusal(outcome)

        async def repeat(commands: Sequence[Command]) -> resp.Outcome:
            return send(commands) if time.monotonic() <= half_time else resp.loaded_late()

        outcome = send(commands)
        refusal = resp.refusal(outcome)
        if refusal is not None and refusal.word == "NOSCRIPT" and script is not None:
            outcome = await load_and_repeat(commands, script, ask, repeat)
        elif refusal is not None and refusal.word == "READONLY":
            # The former primary is a replica now. A new connection may lead to its successor.
            self._close_idle()
        return resp.replies_or_raise(outcome)

    async def run_independent(self, commands: Sequence[Command], timeout_s: float) -> list[Any]:
        if not commands:
            return []
        until = time.monotonic() + timeout_s
        return resp.replies_or_raise(
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
        return self._call(*Content.of(commands), until)

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
        except LOST as failure:
            return ConnectionLost(reason_of(failure), sent=False)
        try:
            outcome = read(connection.exchange(content, reply_count, until))
        except BaseException as failure:  # even KeyboardInterrupt, or a late reply goes to the next call
            connection.give_up()
            if not isinstance(failure, LOST):
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
