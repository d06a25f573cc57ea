"""A connection of the service without a server, with a transport that records its writes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from redismem.web.http.protocol import WHOLE, LimitedProtocol


class Wire(asyncio.Transport):
    """A transport that records its calls."""

    def __init__(self) -> None:
        super().__init__({"name": "wire"})
        self.sent: list[bytes | str] = []

    def write(self, data: object) -> None:
        assert isinstance(data, bytes)
        assert not self.is_closing()
        self.sent.append(data)

    def is_closing(self) -> bool:
        return bool({"close", "abort"} & set(self.sent))

    def close(self) -> None:
        self.sent.append("close")

    def abort(self) -> None:
        self.sent.append("abort")

    def pause_reading(self) -> None:
        """Do nothing."""

    def resume_reading(self) -> None:
        """Do nothing."""


async def turn() -> None:
    await asyncio.sleep(0)


class Protocol(LimitedProtocol):
    """A connection without a server; `answer` answers each request."""

    def __init__(self, answer: Callable[[Any, Any], Awaitable[None]]) -> None:
        self.wire = Wire()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            del receive
            await answer(scope, send)

        config = uvicorn.Config(app, ws="none", lifespan="off", log_config=None, timeout_keep_alive=5)
        super().__init__(config, ServerState(), {}, asyncio.get_running_loop())
        self.connection_made(self.wire)

    def pass_time(self, seconds: float) -> None:
        """Turn the clock of idle connections forward, and let the timer of this one fire."""
        self._idle_since_s -= seconds
        self._idle_timer.cancel()
        self._check_idle()

    async def ask(self, request: bytes) -> None:
        """Send these bytes and run the loop until every request is answered."""
        self.data_received(request)
        while self.tasks:
            await turn()
        await turn()


async def answer_whole(scope: Any, send: Any) -> None:
    """Answer with `ANSWER`, in one piece if possible."""
    if not scope["extensions"][WHOLE]["send"](scope, 201, b"content-length: 2\r\n", b"ok"):
        await send({"type": "http.response.start", "status": 201, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})


REQUEST = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"
ANSWER = b"HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\nok"
