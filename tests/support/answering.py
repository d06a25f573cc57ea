"""A server that answers each command as the test says: a sentinel or a cluster node without a Redis behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import hiredis

from support.listening import Listening


class AnsweringServer:
    """A server whose `answer` gets each command as a list of bytes, and returns the encoded reply."""

    def __init__(self, answer: Callable[[list[bytes]], bytes]) -> None:
        self.answer = answer

    async def __aenter__(self) -> AnsweringServer:
        self._listening = Listening(self._serve)
        self.port = self._listening.port
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._listening.end()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        commands = hiredis.Reader()
        while chunk := await reader.read(1 << 16):
            commands.feed(chunk)
            while (command := commands.gets()) is not False:
                writer.write(self.answer(command))


def encode(value: Any) -> bytes:
    """Encode a reply: a list, an int, or a string."""
    if isinstance(value, list | tuple):
        return b"*%d\r\n%b" % (len(value), b"".join(map(encode, value)))
    if isinstance(value, int):
        return b":%d\r\n" % value
    text = str(value).encode()
    return b"$%d\r\n%b\r\n" % (len(text), text)


def primary_at(port: int, epoch: int) -> bytes:
    """Return a sentinel's reply that the primary is on this port, since the failover with this number."""
    state = {"name": "chats", "ip": "127.0.0.1", "port": port, "flags": "master", "config-epoch": epoch}
    numbers = dict.fromkeys(("num-slaves", "num-other-sentinels", "quorum"), 1)
    return encode([each for pair in (state | numbers).items() for each in map(str, pair)])


def slots_at(*ports: int) -> bytes:
    """Return a node's reply to CLUSTER SLOTS: equal ranges on these ports."""
    size = 16_384 // len(ports)
    ranges = [(number * size, (number + 1) * size - 1, ["127.0.0.1", port, "id"]) for number, port in enumerate(ports)]
    return encode(ranges)
