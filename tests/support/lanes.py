"""Lanes to a port, and a server that records bytes and answers only on demand."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from redismem.transport.lane.lane import Lane
from redismem.transport.url import Address
from support.listening import Listening


@contextlib.asynccontextmanager
async def lane_to(port: int, **options: Any) -> AsyncIterator[Lane]:
    lane = Lane(Address("127.0.0.1", port), **{"stall_s": 60, **options})
    try:
        yield lane
    finally:
        await lane.aclose()


async def connection_number(lane: Lane) -> int:
    (number,) = await lane.run([("CLIENT", "ID")], 60)
    return int(number)


class SilentServer:
    """A server that records what it receives, and sends only what `say` gets."""

    def __init__(self) -> None:
        self.received = b""
        self.connections: list[asyncio.StreamWriter] = []
        self.reads = True

    def has_received(self, word: bytes, count: int) -> bool:
        """True if it has received the word exactly `count` times."""
        return self.received.count(word) == count

    async def __aenter__(self) -> SilentServer:
        self._listening = Listening(self._hear, limit=1)
        self.port = self._listening.port
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._listening.end()

    async def _hear(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(writer)
        while self.reads and (chunk := await reader.read(1 << 16)):
            self.received += chunk
        await asyncio.get_running_loop().create_future()  # the client closes the connection

    def say(self, words: bytes) -> None:
        self.connections[-1].write(words)
