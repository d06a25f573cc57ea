"""The server accepts connections faster than its event loop turns."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any

import pytest

from redismem.web.access import Access
from redismem.web.http.request_queue import BATCH_COUNT
from redismem.web.server import listen, serve
from redismem.web.service import Service

CLIENTS = 320


def test_more_connections_are_accepted_in_an_iteration_than_requests_begin() -> None:
    uvloop: Any = pytest.importorskip("uvloop")
    stop, answered_count = asyncio.Event(), 0

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal answered_count
        del scope, receive
        answered_count += 1
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def count_iterations(address: Any) -> int:
        """Open connections, and return the iterations that pass until their requests are answered."""
        iterations_count, wanted_count = 0, answered_count + CLIENTS
        with contextlib.ExitStack() as clients:
            for _ in range(CLIENTS):
                client = clients.enter_context(socket.create_connection(address))
                client.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
            while answered_count < wanted_count:
                await asyncio.sleep(0)
                iterations_count += 1
        return iterations_count

    async def count_rounds(listening: socket.socket) -> list[int]:
        running = asyncio.create_task(serve(Service({}, Access.of("", "n")), listening, stop, 1, app))
        # the server opens its listeners during the first round
        counts = [await count_iterations(listening.getsockname()) for _ in range(3)]
        stop.set()
        await running
        return counts

    with listen("127.0.0.1", 0) as listening, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        counts = runner.run(count_rounds(listening))
    assert min(counts) < CLIENTS / BATCH_COUNT, counts
