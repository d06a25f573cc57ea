"""A connection by itself: which bytes it sends after which replies, at given times."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from redismem.protocol import scripts
from redismem.protocol.server_errors import ServerError
from redismem.transport import resp
from redismem.transport.lane.connection import Connection, PendingCall


class Timed:
    """An event loop whose time stands still until it is set."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self.now = loop, 0.0

    def time(self) -> float:
        return self.now

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)


class Written(asyncio.Transport):
    """Collects the bytes that a connection writes."""

    def __init__(self) -> None:
        super().__init__()
        self.content = b""

    def write(self, data: Any) -> None:
        self.content += bytes(data)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default


@pytest.mark.parametrize("loaded_after_s", [0.4, 0.6])
async def test_a_call_whose_script_loads_slowly_gets_a_new_timeout(loaded_after_s: float) -> None:
    """Over 400 ms of latency, the load of a script leaves 200 ms of a second: too little for the reply."""
    loop: Any = Timed(asyncio.get_running_loop())
    connection, written = Connection(loop, lambda: None, lambda _: None, lambda _: None), Written()
    connection.connection_made(written)
    script = scripts.load("touch")
    content = resp.encode_independent([("EVALSHA", script.sha, 0)])
    call = PendingCall(content, 1, False, loop.create_future(), 0.0, 1.0, script)
    connection.send(call, 0.0)
    connection.data_received(b"-NOSCRIPT No matching script.\r\n")
    loop.now = loaded_after_s
    connection.data_received(b"$40\r\n" + script.sha + b"\r\n")
    await asyncio.sleep(0)
    assert written.content.count(b"SCRIPT") == 1
    if loaded_after_s > 0.5:
        assert isinstance(call.future.exception(), ServerError)
        assert written.content.count(b"EVALSHA") == 1
    else:
        assert written.content.count(b"EVALSHA") == 2
        connection.data_received(b":1\r\n")
        assert call.future.result() == [1]
