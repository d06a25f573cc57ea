"""Responses that stream events. A stream ends when its client leaves, and cuts off a client that reads nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from typing import Any

from starlette.responses import Response

from redismem.formats.streams.encoding import SSE_HEADERS
from redismem.web.access import Caller
from redismem.web.open_streams import OpenStream, StreamKind
from redismem.web.service import Service

HEARTBEAT_S = 15.0
STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Server-sent events. In the format `events`, the data of each is a `TurnEvent`.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}
"""The OpenAPI response of a stream."""
REVOKED = "the key is no longer valid"
_HEARTBEAT = b": still here\n\n"
_LAST_WRITE_S = 1.0


class CutOff(Exception):
    """The stream must break off without a proper end, so that its client connects again."""


class EventStream(Response):
    """A stream of frames. It buffers nothing beyond the connection's own buffer, and ends if its key is revoked."""

    def __init__(
        self,
        service: Service,
        caller: Caller,
        kind: StreamKind,
        frames: Callable[[], AsyncIterator[bytes]],
        *,
        revoked: bytes = b"",
        ends_at_stop: bool = False,
        headers: Mapping[str, str] = SSE_HEADERS,
    ) -> None:
        """Set up a stream.

        `revoked` is the last frame if the key is revoked; without one, the stream breaks off. With `ends_at_stop` it
        breaks off as soon as the server stops, because its client can go on with another server.
        """
        super().__init__(media_type="text/event-stream")
        self._service = service
        self._caller = caller
        self._kind = kind
        self._frames = frames
        self._revoked = revoked
        self._ends_at_stop = ends_at_stop
        lines = [(name.encode(), value.encode("latin-1")) for name, value in headers.items() if name != "cache-control"]
        self._lines = [*lines, (b"x-accel-buffering", b"no")]
        self._write_s = service.limits.stream_write_s
        self._writing: asyncio.Timeout | None = None
        self._written_s = 0.0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        place = self._service.take_place(self._caller, self._kind)
        place.revoked.add_done_callback(self._hasten)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self._lines})
            await self._run(place, receive, send)
        except (TimeoutError, CutOff):
            self._service.cut_off(scope)
            await asyncio.sleep(0)  # the server logs an answer without an end, unless it knows of the cut by then
        finally:
            place.leave()

    async def _run(self, place: OpenStream, receive: Any, send: Any) -> None:
        """Send frames until they end, the client leaves or the key is revoked. Raises TimeoutError, CutOff."""
        sending = asyncio.create_task(self._send_all(send))
        gone = asyncio.create_task(wait_for_disconnect(receive))
        stopping = asyncio.create_task(self._service.stopping.wait() if self._ends_at_stop else asyncio.Event().wait())
        waits = (sending, gone, stopping, place.revoked)
        try:
            while True:
                done, _ = await asyncio.wait(waits, timeout=HEARTBEAT_S, return_when=asyncio.FIRST_COMPLETED)
                if done:
                    break
                if self._writing is None and asyncio.get_running_loop().time() - self._written_s >= HEARTBEAT_S:
                    await self._write(_HEARTBEAT, send)
        finally:
            for task in (sending, gone, stopping):
                task.cancel()
            await asyncio.wait((sending, gone, stopping))
        if not sending.cancelled():
            sending.result()
        elif not stopping.cancelled():
            raise CutOff
        elif place.revoked.done():
            if not self._revoked:
                raise CutOff
            await self._write(self._revoked, send)
            await self._write(b"", send)

    async def _send_all(self, send: Any) -> None:
        frames = self._frames()
        try:
            async for frame in frames:
                if frame:
                    await self._write(frame, send)
        finally:
            if isinstance(frames, AsyncGenerator):
                await frames.aclose()
        await self._write(b"", send)

    async def _write(self, content: bytes, send: Any) -> None:
        """Send a frame; an empty one ends the stream. Raises TimeoutError if the client does not read."""
        try:
            async with asyncio.timeout(self._write_s) as self._writing:
                await send({"type": "http.response.body", "body": content, "more_body": content != b""})
        finally:
            self._writing = None
        self._written_s = asyncio.get_running_loop().time()

    def _hasten(self, revoked: asyncio.Future[None]) -> None:
        """Give a client whose key is revoked little time to read the rest."""
        if revoked.cancelled():
            return
        self._write_s = _LAST_WRITE_S
        if self._writing is not None and not self._writing.expired():
            self._writing.reschedule(asyncio.get_running_loop().time() + _LAST_WRITE_S)


async def wait_for_disconnect(receive: Any) -> None:
    """Wait until the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass
