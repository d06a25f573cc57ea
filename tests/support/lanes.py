"""What the tests of the lane share."""

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
    """Keeps what it is sent; says what it is told to say."""

    def __init__(self) -> None:
        self.received = b""
        self.connections: list[asyncio.StreamWriter] = []
        self.reads = True

    def heard(self, word: bytes, count: int) -> bool:
        """Whether it was told this word so many times, no more and no less."""
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
        await asyncio.get_running_loop().create_future()  # it closes nothing by itself

    def say(self, words: bytes) -> None:
        self.connections[-1].write(words)
