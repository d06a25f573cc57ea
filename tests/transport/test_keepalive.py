"""The kernel probes every idle connection, so that a peer that vanished without a word is noticed in minutes."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from pathlib import Path

import pytest
from support.transports import OURS, open_transport, url_of

KEPT_ALIVE = {"SO_KEEPALIVE": 1, "TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 20, "TCP_KEEPCNT": 3}


def connections() -> dict[str, dict[str, int]]:
    """Return the keepalive options of each TCP connection of this process, by its inode."""
    options = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # closed meanwhile, or not connected
            inode = str(Path("/proc/self/fd", name).readlink())
            if not inode.startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(name))) as connection:
                if connection.family != socket.AF_UNIX and connection.getpeername():
                    options[inode] = {option: _value(connection, option) for option in KEPT_ALIVE}
    return options


def _value(connection: socket.socket, option: str) -> int:
    level = socket.SOL_SOCKET if option.startswith("SO_") else socket.IPPROTO_TCP
    return connection.getsockopt(level, getattr(socket, option))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists a process's sockets in /proc")
@pytest.mark.parametrize("name", OURS)
async def test_every_connection_is_kept_alive(name: str, request: pytest.FixtureRequest) -> None:
    url = url_of(name, request)
    before = connections()
    async with open_transport(name, url) as transport:
        for key in "abcdef":  # on several nodes of a cluster
            await transport.run([("GET", key)], 60)
        opened = [options for inode, options in connections().items() if inode not in before]
    assert opened == [KEPT_ALIVE] * len(opened) != []
