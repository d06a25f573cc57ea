"""A load balancer on loopback: new connections go to one of several servers, and all open ones can be cut."""

from __future__ import annotations

import asyncio
from typing import Self
from urllib.parse import urlsplit

from support.listening import Listening


class Balancer:
    """A balancer: `async with Balancer(first_url) as balancer`, then connect to `balancer.url`.

    A server that dies takes its connections with it, as it does without a balancer.
    """

    def __init__(self, target: str) -> None:
        self.target = target
        """The address of the server that gets new connections."""
        self.is_open = asyncio.Event()
        """Clear this event, and new connections wait until it is set again."""
        self.is_open.set()
        self.after_loss = ""
        """An address: the answer to the next connection is lost, and later connections go there."""
        self._clients: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        self._listening = Listening(self._serve)
        self.url = f"http://127.0.0.1:{self._listening.port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._listening.end()

    def cut(self) -> None:
        """Cut all open connections to clients."""
        for client in self._clients:
            client.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self.is_open.wait()
        server, is_lost = urlsplit(self.target), self.after_loss != ""
        if is_lost:
            self.target, self.after_loss = self.after_loss, ""
        from_server, to_server = await asyncio.open_connection(server.hostname, server.port)
        self._clients.add(writer)
        there = asyncio.create_task(_pump(reader, to_server))
        back = asyncio.create_task(from_server.read(1) if is_lost else _pump(from_server, writer))
        try:
            await asyncio.wait((back, there), return_when=asyncio.FIRST_COMPLETED)
            if is_lost:
                writer.transport.abort()
        finally:
            back.cancel()
            there.cancel()
            await asyncio.gather(back, there, return_exceptions=True)
            self._clients.discard(writer)
            to_server.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass bytes on until one side ends."""
    try:
        while chunk := await reader.read(1 << 16):
            writer.write(chunk)
            await writer.drain()
    except ConnectionError:
        pass
