"""A server that listens, and stops without losing a turn."""

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
from redismem.web.http.protocol import Gathering
from redismem.web.service import Service


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are not its business: whoever runs it tells it to stop."""
        yield


def _cut_off(server: uvicorn.Server, scope: Any) -> None:
    """Drops a connection with all that waits to be written to it."""
    for connection in list(server.server_state.connections):
        if getattr(connection, "client", None) == scope["client"] and connection.transport is not None:
            connection.transport.abort()


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0: a free one. Raises InvalidSettings."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as cause:
        raise InvalidSettings(f"nobody can listen there: {cause.strerror or 'no such address'}") from None


async def serve(service: Service, listening: socket.socket, told: asyncio.Event, stop_s: float) -> None:
    """Answers until it is told to stop; then takes nothing more, and ends what is in hand, within `stop_s`."""
    config = uvicorn.Config(
        create_app(service),
        http=Gathering,
        ws="none",
        lifespan="off",
        proxy_headers=False,  # a connection is known by the address it came from
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=service.limits.idle_s,
        timeout_graceful_shutdown=max(1, round(stop_s)),
    )
    # Its lines hold paths, and paths hold session ids.
    logging.getLogger("uvicorn.access").disabled = True
    server = _Server(config)
    service.cut_off = partial(_cut_off, server)
    serving = asyncio.create_task(server.serve([listening]))
    looking = asyncio.create_task(service.load.run())
    telling = asyncio.create_task(told.wait())
    try:
        await asyncio.wait((serving, telling), return_when=asyncio.FIRST_COMPLETED)
        service.stopping.set()
        await service.chat.aclose(stop_s)
        server.should_exit = True
        await serving
    finally:
        looking.cancel()
        telling.cancel()
