"""The server on standard input and output, for a client that starts it as a process."""

from __future__ import annotations

import asyncio
import io
import os
import select
import sys
from typing import Any

from mcp.server.mcpserver import MCPServer


class _Input(io.RawIOBase):
    """Standard input. It ends when the client closes it, or once `end` is called, even during a read."""

    def __init__(self) -> None:
        super().__init__()
        self._source = sys.stdin.fileno()
        self._ended, self._end = os.pipe()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        ready, _, _ = select.select([self._source, self._ended], [], [])
        if self._ended in ready:
            return 0
        read = os.read(self._source, len(buffer))
        buffer[: len(read)] = read
        return len(read)

    def end(self) -> None:
        os.write(self._end, b".")


async def serve_stdio(server: MCPServer[Any], stop: asyncio.Event) -> None:
    """Answer the client until it closes standard input, or until `stop` is set.

    Nothing but the protocol goes to standard output: whatever else is printed goes to standard error.
    """
    source = _Input()

    async def end_input() -> None:
        await stop.wait()
        source.end()

    ending = asyncio.create_task(end_input())
    # The SDK reads sys.stdin in a thread that nothing else can interrupt.
    before, sys.stdin = sys.stdin, io.TextIOWrapper(io.BufferedReader(source), encoding="utf-8", errors="replace")
    try:
        await server.run_stdio_async()
    finally:
        sys.stdin = before
        ending.cancel()
