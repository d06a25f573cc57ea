"""The server accepts connections faster than its event loop turns."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any

import pytest

from redismem.web.access import Access
from redismem.web.server import listen, serve
from redismem.web.service import Service

CLIENTS = 128


def test_connections_do_not_wait_for_an_iteration_each() -> None:
    uvloop: Any = pytest.importorskip("uvloop")
    stop, iterations_count, answered_count = asyncio.Event(), 0, 0

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal answered_count
        del scope, receive
        answered_count += 1
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def count_iterations(listening: socket.socket) -> None:
        nonlocal iterations_count
        running = asyncio.create_task(serve(Service({}, Access.of("", "n")), listening, stop, 1, app))
        while answered_count < CLIENTS:
            await asyncio.sleep(0)
            iterations_count += 1
        stop.set()
        await running

    with listen("127.0.0.1", 0) as listening, contextlib.ExitStack() as clients:
        for _ in range(CLIENTS):
            client = clients.enter_context(socket.create_connection(listening.getsockname()))
            client.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(count_iterations(listening))
    assert iterations_count < CLIENTS / 2
