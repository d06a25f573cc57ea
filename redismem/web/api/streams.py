"""Responses that stream events. A stream ends when its client leaves, and cuts off a client that reads nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

from starlette.responses import Response

from redismem.web.service import Service

STREAM: dict[int | str, dict[str, Any]] = {200: {"content": {"text/event-stream": {}}}}
"""The OpenAPI response of a stream."""
_HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"x-accel-buffering", b"no")]


class EventStream(Response):
    """A stream of frames. It buffers nothing beyond the connection's own buffer."""

    def __init__(self, service: Service, frames: Callable[[], AsyncIterator[bytes]]) -> None:
        super().__init__(media_type="text/event-stream")
        self._service = service
        self._frames = frames

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        with self._service.stream():
            frames = self._frames()
            gone = asyncio.create_task(_wait_for_disconnect(receive))
            try:
                await send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})
                await self._send_all(frames, gone, send)
            except TimeoutError:
                self._service.cut_off(scope)
            finally:
                gone.cancel()
                if isinstance(frames, AsyncGenerator):
                    await frames.aclose()

    async def _send_all(self, frames: AsyncIterator[bytes], gone: asyncio.Task[None], send: Any) -> None:
        while True:
            next_frame = asyncio.ensure_future(anext(frames, None))
            try:
                await asyncio.wait((next_frame, gone), return_when=asyncio.FIRST_COMPLETED)
            finally:
                if not next_frame.done():
                    next_frame.cancel()
                    await asyncio.wait((next_frame,))
            if next_frame.cancelled() or (frame := next_frame.result()) is None:
                break
            async with asyncio.timeout(self._service.limits.stream_write_s):
                await send({"type": "http.response.body", "body": frame, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


async def _wait_for_disconnect(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
