"""A listener on loopback, for the servers of the tests' own.

It accepts by hand: a server of asyncio's own may still make a task of somebody it has accepted when it is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from functools import partial

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Listening:
    """Lets `serve` speak with each that connects; then the connection is closed, as it is when `serve` is cancelled."""

    def __init__(self, serve: Serve, port: int = 0, limit: int = 1 << 16) -> None:
        """`port`: 0 for a free one. `limit`: of the readers."""
        self._serve = serve
        self._limit = limit
        self._conversations: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._socket = socket.create_server(("127.0.0.1", port))
        self._socket.setblocking(False)
        self.port = int(self._socket.getsockname()[1])
        self._loop.add_reader(self._socket, self._accept)

    def close(self) -> None:
        """Takes nobody more."""
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket)
            self._socket.close()

    async def end(self) -> None:
        """Ends what is under way as well."""
        self.close()
        for task in self._conversations:
            task.cancel()
        await asyncio.gather(*self._conversations, return_exceptions=True)
        await asyncio.sleep(0)  # a transport ends in a turn of its own

    def _accept(self) -> None:
        try:
            connection, _ = self._socket.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        connection.setblocking(False)
        task = self._loop.create_task(self._converse(connection))
        # The loop knows a task that waits only by weak references: a search for garbage would take it.
        self._conversations.add(task)
        task.add_done_callback(self._conversations.discard)
        # A task that is cancelled before it began closes nothing by itself.
        task.add_done_callback(partial(_close, connection))

    async def _converse(self, connection: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=connection, limit=self._limit)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                await self._serve(reader, writer)
            writer.close()  # what it was sent still goes out
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
        finally:
            writer.transport.abort()


def _close(connection: socket.socket, _: object) -> None:
    connection.close()
