"""What a connection is sent within one turn of the event loop goes out in one write: head and body of an answer."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HELD_BYTES = 64 * 1024


class Gathered:
    """A transport that writes at the end of the turn; sooner, if more is there than a socket takes at once."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self.is_closing = transport.is_closing  # asked after each answer
        self._held: list[bytes] = []
        self._held_bytes = 0

    def write(self, part: bytes) -> None:
        if not self._held:
            self._loop.call_soon(self._flush)
        self._held.append(part)
        self._held_bytes += len(part)
        if self._held_bytes > HELD_BYTES:
            self._flush()

    def _flush(self) -> None:
        parts, self._held, self._held_bytes = self._held, [], 0
        if parts and not self._transport.is_closing():  # the other side may have gone meanwhile
            self._transport.write(b"".join(parts))

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        self._held.clear()
        self._transport.abort()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class Gathering(HttpToolsProtocol):
    """uvicorn's protocol over such a transport."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(Gathered(transport, self.loop))  # type: ignore[arg-type]
