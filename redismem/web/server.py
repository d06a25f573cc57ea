"""The uvicorn server of the service. It stops without losing a turn."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterator
from functools import partial
from typing import Any

import uvicorn

from redismem.errors import InvalidSettings
from redismem.web.app import create_app
from redismem.web.http.failures import App
from redismem.web.http.protocol import LimitedProtocol
from redismem.web.http.request_queue import BATCH_COUNT
from redismem.web.service import Service
from redismem.web.shedding import request_queue

LISTENERS_COUNT = 2 * BATCH_COUNT
"""The sockets that listen at an address. In an iteration of its event loop uvloop accepts one connection for each.

With fewer than the requests that an iteration begins, those of clients that open a connection for each request would
wait in the kernel, where nothing measures and refuses them, and a probe would wait behind them.
"""


class QuietServer(uvicorn.Server):
    """A server that leaves signals to its caller."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone: the caller of `serve` handles them."""
        yield


def _cut_off(server: uvicorn.Server, scope: Any) -> None:
    """Close a connection at once and drop its unsent data."""
    for connection in list(server.server_state.connections):
        if getattr(connection, "client", None) == scope["client"] and connection.transport is not None:
            connection.transport.abort()


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens at this address. Port 0 means any free port.

    Raises:
        InvalidSettings: The address does not exist, or the port is taken.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as cause:
        raise InvalidSettings(f"cannot listen at {host}:{port}: {cause.strerror or 'no such address'}") from None


async def serve(
    service: Service, listening: socket.socket, stop: asyncio.Event, stop_s: float, app: App | None = None
) -> None:
    """Answer requests until `stop` is set; then refuse new ones and finish the running ones within `stop_s`.

    `app` is the ASGI application, by default that of the HTTP API.
    """

    class Connection(LimitedProtocol):
        queue = request_queue(service)

    config = uvicorn.Config(
        create_app(service) if app is None else app,
        http=Connection,
        ws="none",
        lifespan="off",
        proxy_headers=False,  # `_cut_off` finds a connection by its peer address
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=service.limits.idle_s,
        timeout_graceful_shutdown=max(1, round(stop_s)),
    )
    # Access lines contain paths, and paths contain session ids.
    logging.getLogger("uvicorn.access").disabled = True
    server = QuietServer(config)
    service.cut_off = partial(_cut_off, server)
    listeners = [listening, *(listening.dup() for _ in range(LISTENERS_COUNT - 1))]
    serving = asyncio.create_task(server.serve(listeners))
    load_task = asyncio.create_task(service.load.run())
    stop_wait = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((serving, stop_wait), return_when=asyncio.FIRST_COMPLETED)
        service.stopping.set()
        await service.chat.aclose(stop_s)
        server.should_exit = True
        await serving
    finally:
        for listener in listeners:
            listener.close()
        await service.aclose()
        load_task.cancel()
        stop_wait.cancel()
