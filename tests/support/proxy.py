"""A TCP proxy on loopback that counts what passes through it, and breaks it as told."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import Literal, Self

from support.listening import Listening

How = Literal["reset", "close", "half_close", "truncate", "freeze", "swallow", "hole", "delay", "split"]
_CHUNK_BYTES = 1 << 20


class _Link:
    """One connection: the client's side, the server's side, and what to do to the reply that comes next."""

    from_server: asyncio.StreamReader
    to_server: asyncio.StreamWriter

    def __init__(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        self.from_client, self.to_client = from_client, to_client
        self.how: How | None = None

    def reset(self) -> None:
        """RST to the client, nothing more."""
        client: socket.socket = self.to_client.get_extra_info("socket")
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.to_client.transport.abort()


class Proxy:
    """`async with Proxy(server.port) as proxy`: then `proxy.url`. What a chunk is, one read of the socket decides.

    How a request, or the reply to it, can be broken:
    reset, close, half_close: the server runs it; the reply is dropped and the connection ends in that way
    truncate: the server runs it; the first half of the reply arrives, then the end
    freeze: the server runs it; from now on nothing comes back on this connection, which stays open
    swallow: the server never sees it; the connection stays open
    hole: the same, and it sees nothing more of this connection
    delay: the reply comes `delay_s` later
    split: the reply comes a byte at a time
    """

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._links: set[_Link] = set()
        self.sent: list[bytes] = []
        """Client to server, a chunk an item."""
        self.received: list[bytes] = []
        """Server to client, before anything is broken."""
        self.connections_count = 0
        self.broken_count = 0
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
        """Resets every connection, and refuses new ones."""
        self._listening.close()
        for link in tuple(self._links):
            link.reset()
        while self._links:  # noqa: ASYNC110 (their tasks end by themselves)
            await asyncio.sleep(0.001)

    async def accept_again(self) -> None:
        """Listens again on the same port as before."""
        self._listen(self.port)

    def lead_to(self, port: int) -> None:
        """New connections go to another server. Those that are open stay where they are."""
        self._server_port = port

    def forget(self) -> None:
        """Starts counting again."""
        self.sent.clear()
        self.received.clear()
        self.connections_count = self.broken_count = 0

    def break_next(self, how: How, count: float = 1, to: bytes = b"", delay_s: float = 0) -> None:
        """Breaks the next `count` requests that hold the bytes `to`. Replaces what was asked for before."""
        self._how, self._left, self._to, self._delay_s = how, count, to, delay_s

    def heal(self) -> None:
        """Breaks nothing more. What is frozen stays frozen."""
        self.break_next("reset", 0)

    def count(self, part: bytes) -> int:
        """How many chunks from clients hold these bytes."""
        return sum(part in chunk for chunk in self.sent)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections_count += 1
        link = _Link(reader, writer)
        self._links.add(link)  # at once: `refuse` is for those as well that are still on the way to the server
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
                if broken:
                    link.how = self._how
                if link.how == "hole":
                    continue
                link.to_server.write(chunk)
                await link.to_server.drain()
        link.to_server.close()

    async def _down(self, link: _Link) -> None:
        with contextlib.suppress(OSError):
            while chunk := await link.from_server.read(_CHUNK_BYTES):
                self.received.append(chunk)
                await self._answer(link, chunk)
        if link.how != "freeze":
            link.to_client.close()

    async def _answer(self, link: _Link, reply: bytes) -> None:
        if link.how == "freeze":
            return
        how, link.how = link.how, None
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
                    for _ in range(3):  # turns of the loop in which a client on it reads this byte alone
                        await asyncio.sleep(0)
            case _:
                if how == "delay":
                    await asyncio.sleep(self._delay_s)
                link.to_client.write(reply)
                await link.to_client.drain()
