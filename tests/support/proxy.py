"""A TCP proxy on loopback that records its traffic, and breaks it on demand."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import Literal, Self

from support.listening import Listening

How = Literal["reset", "close", "half_close", "truncate", "freeze", "swallow", "hole", "hold", "late", "delay", "split"]
_CHUNK_BYTES = 1 << 20


class _Link:
    """A connection: both sides, and the fault of the next reply."""

    from_server: asyncio.StreamReader
    to_server: asyncio.StreamWriter

    def __init__(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        self.from_client, self.to_client = from_client, to_client
        self.how: How | None = None
        self.is_due = asyncio.Event()
        """Set when the bytes that a `late` keeps back may go on."""
        self.late_reply: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def reset(self) -> None:
        """Send RST to the client."""
        client: socket.socket = self.to_client.get_extra_info("socket")
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.to_client.transport.abort()


class Proxy:
    """A proxy: `async with Proxy(server.port) as proxy`, then connect to `proxy.url`. A chunk is one read of a socket.

    Faults of a request or its reply:
    reset, close, half_close: the server runs it; the reply is dropped and the connection ends in that way
    truncate: the server runs it; the first half of the reply arrives, then the end
    freeze: the server runs it; from now on nothing comes back on this connection, which stays open
    swallow: the server never sees it; the connection stays open
    hole: the server sees neither this nor any later request of the connection
    hold: the server sees it and the later requests of the connection after `heal` or the next order
    late: the connection is reset, and the server sees the request at the next `deliver`
    delay: the reply comes `delay_s` later
    split: the reply comes one byte at a time
    """

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._links: set[_Link] = set()
        self.sent: list[bytes] = []
        """Chunks from clients to the server."""
        self.received: list[bytes] = []
        """Chunks from the server to clients, before any fault."""
        self.connections_count = 0
        self.broken_count = 0
        self.late: list[_Link] = []
        """The connections whose last bytes wait for `deliver`."""
        self.frozen_count = 0
        """Replies that a freeze has kept back: the server has run what they answer."""
        self._released = asyncio.Event()
        self.heal()

    async def __aenter__(self) -> Self:
        self._listen(0)
        self.port = self._listening.port
        self.url = f"redis://127.0.0.1:{self.port}/0"
        return self

    def _listen(self, port: int) -> None:
        self._listening = Listening(self._serve, port, _CHUNK_BYTES)

    async def __aexit__(self, *_: object) -> None:
        await self._listening.end()

    async def refuse(self) -> None:
        """Reset every connection, and refuse new ones."""
        self._listening.close()
        for link in tuple(self._links):
            link.reset()
        while self._links:  # noqa: ASYNC110 (their tasks end by themselves)
            await asyncio.sleep(0.001)

    async def accept_again(self) -> None:
        """Listen again on the same port."""
        self._listen(self.port)

    def lead_to(self, port: int) -> None:
        """Connect new connections to another server; open ones stay."""
        self._server_port = port

    def forget(self) -> None:
        """Reset records and counts."""
        self.sent.clear()
        self.received.clear()
        self.connections_count = self.broken_count = self.frozen_count = 0

    def break_next(
        self, how: How, count: float = 1, to: bytes = b"", delay_s: float = 0, then: How | None = None
    ) -> None:
        """Break the next `count` requests that contain the bytes `to`; replaces the last order.

        `then` is the fault of all but the first of them, if it is another.
        """
        self._how, self._left, self._to, self._delay_s, self._then = how, count, to, delay_s, then or how
        self._released.set()
        self._released = asyncio.Event()

    def heal(self) -> None:
        """Break no more requests; frozen connections stay frozen."""
        self.break_next("reset", 0)

    async def deliver(self) -> list[bytes]:
        """Let the server see what `late` has kept back, and return its replies."""
        late, self.late = self.late, []
        replies = []
        for link in late:  # in order, one after the other
            link.is_due.set()
            replies.append(await link.late_reply)
        return replies

    def count(self, part: bytes) -> int:
        """Return the number of chunks from clients that contain these bytes."""
        return sum(part in chunk for chunk in self.sent)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections_count += 1
        link = _Link(reader, writer)
        self._links.add(link)  # now, as `refuse` must also reset connections that are not open on the server's side yet
        try:
            port = self._server_port
            link.from_server, link.to_server = await asyncio.open_connection("127.0.0.1", port, limit=_CHUNK_BYTES)
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._up(link))
                    group.create_task(self._down(link))
            finally:
                link.to_server.transport.abort()
        finally:
            self._links.discard(link)

    async def _up(self, link: _Link) -> None:
        with contextlib.suppress(OSError):
            while chunk := await link.from_client.read(_CHUNK_BYTES):
                self.sent.append(chunk)
                broken = self._left > 0 and self._to in chunk
                if broken:
                    self._left -= 1
                    self.broken_count += 1
                if link.how == "hole" or (broken and self._how == "swallow"):
                    continue
                if broken and self._how == "hold":
                    await self._released.wait()
                elif broken:
                    link.how, self._how = self._how, self._then
                if link.how == "hole":
                    continue
                if link.how == "late":
                    await self._send_late(link, chunk)
                    break
                link.to_server.write(chunk)
                await link.to_server.drain()
        link.to_server.close()

    async def _send_late(self, link: _Link, chunk: bytes) -> None:
        link.reset()
        self.late.append(link)
        await link.is_due.wait()
        link.to_server.write(chunk)
        await link.late_reply

    async def _down(self, link: _Link) -> None:
        with contextlib.suppress(OSError):
            while chunk := await link.from_server.read(_CHUNK_BYTES):
                self.received.append(chunk)
                if link.how == "late" and not link.late_reply.done():
                    link.late_reply.set_result(chunk)
                else:
                    await self._answer(link, chunk)
        if not link.late_reply.done():
            link.late_reply.set_result(b"")
        if link.how != "freeze":
            link.to_client.close()

    async def _answer(self, link: _Link, reply: bytes) -> None:
        if link.how == "freeze":
            self.frozen_count += 1
            return
        how = link.how
        # A reply that was on its way to an earlier request must not close the hole: the client would take the next
        # reply for that to the swallowed request.
        link.how = "hole" if how == "hole" else None
        match how:
            case "reset":
                link.reset()
            case "close":
                link.to_client.close()
            case "half_close":
                link.to_client.write_eof()
            case "truncate":
                link.to_client.write(reply[: len(reply) // 2])
                link.to_client.close()
            case "split":
                for at in range(len(reply)):
                    link.to_client.write(reply[at : at + 1])
                    for _ in range(3):  # iterations in which a client on this loop reads the byte alone
                        await asyncio.sleep(0)
            case _:
                if how == "delay":
                    await asyncio.sleep(self._delay_s)
                link.to_client.write(reply)
                await link.to_client.drain()
