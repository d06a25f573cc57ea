"""Responses that stream events. A stream ends when its client leaves, and cuts off a client that reads nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

from starlette.responses import Response

from redismem.web.access import Caller
from redismem.web.chat.answer import frame
from redismem.web.open_streams import OpenStream, StreamKind
from redismem.web.service import Service

STREAM: dict[int | str, dict[str, Any]] = {200: {"content": {"text/event-stream": {}}}}
"""The OpenAPI response of a stream."""
_HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"x-accel-buffering", b"no")]


_LAST_WRITE_S = 1.0
_REVOKED = {"reason": "the key is no longer valid"}
# Further members of the last event, as each kind of stream has them.
_ENDS: dict[StreamKind, dict[str, Any]] = {
    StreamKind.EVENTS: {},
    StreamKind.CHAT: {"complete": False, "seq": None, "waiting_for": None},
}


class EventStream(Response):
    """A stream of frames. It buffers nothing beyond the connection's own buffer, and ends if its key is revoked."""

    def __init__(
        self, service: Service, caller: Caller, kind: StreamKind, frames: Callable[[], AsyncIterator[bytes]]
    ) -> None:
        super().__init__(media_type="text/event-stream")
        self._service = service
        self._caller = caller
        self._kind = kind
        self._frames = frames
        self._write_s = service.limits.stream_write_s
        self._writing: asyncio.Timeout | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        place = self._service.take_place(self._caller, self._kind)
        frames = self._frames()
        gone = asyncio.create_task(_wait_for_disconnect(receive))
        place.revoked.add_done_callback(self._hasten)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})
            await self._send_all(frames, gone, place, send)
        except TimeoutError:
            self._service.cut_off(scope)
        finally:
            place.leave()
            gone.cancel()
            if isinstance(frames, AsyncGenerator):
                await frames.aclose()

    async def _send_all(
        self, frames: AsyncIterator[bytes], gone: asyncio.Task[None], place: OpenStream, send: Any
    ) -> None:
        while True:
            next_frame = asyncio.ensure_future(anext(frames, None))
            try:
                await asyncio.wait((next_frame, gone, place.revoked), return_when=asyncio.FIRST_COMPLETED)
            finally:
                if not next_frame.done():
                    next_frame.cancel()
                    await asyncio.wait((next_frame,))
            if place.revoked.done():
                await self._write(frame("end", _REVOKED | _ENDS[self._kind]), send)
                break
            if next_frame.cancelled() or (content := next_frame.result()) is None:
                break
            await self._write(content, send)
        await self._write(b"", send)

    async def _write(self, content: bytes, send: Any) -> None:
        """Send a frame; an empty one ends the stream. Raises TimeoutError if the client does not read."""
        try:
            async with asyncio.timeout(self._write_s) as self._writing:
                await send({"type": "http.response.body", "body": content, "more_body": content != b""})
        finally:
            self._writing = None

    def _hasten(self, revoked: asyncio.Future[None]) -> None:
        """Give a client whose key is revoked little time to read the rest."""
        if revoked.cancelled():
            return
        self._write_s = _LAST_WRITE_S
        if self._writing is not None and not self._writing.expired():
            self._writing.reschedule(asyncio.get_running_loop().time() + _LAST_WRITE_S)


async def _wait_for_disconnect(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
