"""The kernel probes every idle connection, so that a peer that vanished without a word is noticed in minutes.

Run as a program with a name and a URL per kind of transport, this file prints the options of each one's connections: in
a process of its own, whose other sockets belong to no server, client or thread of another test.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from support.checks import until
from support.transports import OURS, open_transport, url_of

KEPT_ALIVE = {"SO_KEEPALIVE": 1, "TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 20, "TCP_KEEPCNT": 3}
# The options of a client are its owner's choice.
NAMES = [name for name in OURS if not name.startswith("redis-py")]


def connections() -> dict[str, dict[str, int]]:
    """Return the keepalive options of each TCP connection of this process, by its inode."""
    options = {}
    for fd in Path("/proc/self/fd").iterdir():
        if fd.is_symlink() and (inode := os.readlink(fd)).startswith("socket:"):
            with socket.socket(fileno=os.dup(int(fd.name))) as connection:
                if connection.family != socket.AF_UNIX:
                    options[inode] = {option: value_of(connection, option) for option in KEPT_ALIVE}
    return options


def value_of(connection: socket.socket, option: str) -> int:
    level = socket.SOL_SOCKET if option.startswith("SO_") else socket.IPPROTO_TCP
    return connection.getsockopt(level, getattr(socket, option))


async def connections_of(name: str, url: str) -> list[dict[str, int]]:
    """Return the options of the connections that a transport opens."""
    before = connections()
    async with open_transport(name, url) as transport:
        for key in "abcdef":  # on several nodes of a cluster
            await transport.run([("GET", key)], 60)
        opened: list[dict[str, int]] = []

        def is_dialled() -> bool:
            """True unless a thread is about to set the options of a connection that it has just opened."""
            opened[:] = [options for inode, options in connections().items() if inode not in before]
            return all(options == KEPT_ALIVE for options in opened)

        with contextlib.suppress(TimeoutError):
            await until(is_dialled)
        return opened


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists a process's sockets in /proc")
def test_every_connection_is_kept_alive(request: pytest.FixtureRequest) -> None:
    places = [word for name in NAMES for word in (name, url_of(name, request))]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    ran = subprocess.run(
        [sys.executable, __file__, *places], env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    opened = json.loads(ran.stdout)
    assert {name: [KEPT_ALIVE] * len(options) for name, options in opened.items()} == opened
    assert all(opened[name] for name in NAMES)


if __name__ == "__main__":
    found = {
        name: asyncio.run(connections_of(name, url)) for name, url in zip(sys.argv[1::2], sys.argv[2::2], strict=True)
    }
    sys.stdout.write(json.dumps(found))
