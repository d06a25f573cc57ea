"""A listener on loopback for the servers of tests.

It accepts connections itself, as a closed asyncio server may still start a task for an accepted connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from functools import partial

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Listening:
    """A listener that runs `serve` for each connection, and closes the connection after it."""

    def __init__(self, serve: Serve, port: int = 0, limit: int = 1 << 16) -> None:
        """Listen on this port; 0 picks a free one. `limit` is the buffer limit of the readers."""
        self._serve = serve
        self._limit = limit
        self._conversations: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._socket = socket.create_server(("127.0.0.1", port))
        self._socket.setblocking(False)
        self.port = int(self._socket.getsockname()[1])
        self._loop.add_reader(self._socket, self._accept)

    def close(self) -> None:
        """Accept no more connections."""
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket)
            self._socket.close()

    async def end(self) -> None:
        """Close the listener and its open connections."""
        self.close()
        for task in self._conversations:
            task.cancel()
        await asyncio.gather(*self._conversations, return_exceptions=True)
        await asyncio.sleep(0)  # a transport closes in the next iteration of the loop

    def _accept(self) -> None:
        try:
            connection, _ = self._socket.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        connection.setblocking(False)
        task = self._loop.create_task(self._converse(connection))
        # The loop holds only weak references to waiting tasks, so the garbage collector would remove them.
        self._conversations.add(task)
        task.add_done_callback(self._conversations.discard)
        # A task that is cancelled before it starts does not close its connection.
        task.add_done_callback(partial(_close, connection))

    async def _converse(self, connection: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=connection, limit=self._limit)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                await self._serve(reader, writer)
            writer.close()  # buffered bytes are still sent
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
        finally:
            writer.transport.abort()


def _close(connection: socket.socket, _: object) -> None:
    connection.close()
