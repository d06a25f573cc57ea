"""A call that timed out never arrives later: it may have been repeated elsewhere, and its id forgotten."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import socket
import sys
from collections.abc import Iterator

import pytest

from redismem.protocol.server_errors import ConnectionLost
from redismem.transport import resp
from redismem.transport.lane.blocking import BlockingLane
from redismem.transport.lane.lane import Lane
from redismem.transport.url import Address

LONG = b"a" * (32 * 1024 * 1024)
"""More bytes than the kernel buffers for a server that does not read."""


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)
        yield listener


def has_sent(server: socket.socket) -> bool:
    """True if the client has begun to send the call. A process that was halted may time out before."""
    try:
        return bool(server.recv(1, socket.MSG_PEEK))
    except ConnectionResetError:
        return False


async def give_up_call(kind: str, listener: socket.socket, deadline_s: float = 0.1) -> socket.socket:
    """The server's end of a connection on which a call timed out while it was sent."""
    address = Address.from_url(f"redis://127.0.0.1:{listener.getsockname()[1]}?protocol=2")
    lane = Lane(address, stall_s=1) if kind == "asyncio" else BlockingLane(address)
    with pytest.raises(ConnectionLost):
        await lane.run([("SET", "k", LONG)], deadline_s)
    await lane.aclose()
    if select.select([listener], [], [], 0)[0]:
        server, _ = listener.accept()
        server.settimeout(60)
        if has_sent(server):
            return server
        server.close()
    return await give_up_call(kind, listener, 4 * deadline_s)


def read_first_call(server: socket.socket) -> None:
    left_bytes = len(resp.encode_independent([("SET", "k", b"a" * 40_000)]))
    while left_bytes:
        left_bytes -= len(server.recv(left_bytes))


def read_to_the_end(server: socket.socket) -> None:
    while server.recv(1 << 20):
        pass


ASKING = """
import asyncio, os, signal, sys
from redismem.protocol.server_errors import ConnectionLost
from redismem.transport.url import Address
from redismem.transport import resp
from redismem.transport.lane.blocking import BlockingLane
from redismem.transport.lane.lane import Lane

async def main(kind, port):
    address = Address.from_url(f"redis://127.0.0.1:{port}?protocol=2")
    lane = Lane(address, stall_s=1) if kind == "asyncio" else BlockingLane(address)
    await lane.run([("SET", "k", b"a" * 40_000)], 60)  # opens the connection for large calls
    child = os.fork()
    if child == 0:
        signal.pause()
    try:
        await lane.run([("SET", "k", b"a" * (32 * 1024 * 1024))], float(sys.argv[3]))
    except ConnectionLost:
        await lane.aclose()
        print(child, flush=True)

asyncio.run(main(sys.argv[1], sys.argv[2]))
"""


@pytest.mark.parametrize("kind", ["asyncio", "blocking"])
async def test_a_forked_process_does_not_send_the_call_either(kind: str, listener: socket.socket) -> None:
    """The child has no copy of the connection, so that the parent's close ends it."""
    deadline_s = 0.2
    while not await was_reset_beside_a_child(kind, listener, deadline_s):
        deadline_s *= 4


async def was_reset_beside_a_child(kind: str, listener: socket.socket, deadline_s: float) -> bool:
    """Return True if the call timed out while it was sent, and the connection then ended at once."""
    command = (sys.executable, "-c", ASKING, kind, str(listener.getsockname()[1]), str(deadline_s))
    asking = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    server, _ = await asyncio.to_thread(listener.accept)
    with server:
        server.settimeout(60)
        await asyncio.to_thread(read_first_call, server)
        server.sendall(b"+OK\r\n")
        assert asking.stdout is not None
        child = int(await asyncio.wait_for(asking.stdout.readline(), 60))
        try:
            if not await asyncio.to_thread(has_sent, server):
                return False
            with pytest.raises(ConnectionResetError):
                await asyncio.to_thread(read_to_the_end, server)
            return True
        finally:
            os.kill(child, signal.SIGKILL)
            await asking.wait()


async def test_bytes_not_received_before_the_servers_close_are_never_sent(listener: socket.socket) -> None:
    """The server has shut down its sending side, but could still read."""

    def accept() -> socket.socket:
        server, _ = listener.accept()
        server.recv(1)
        server.shutdown(socket.SHUT_WR)
        return server

    accepted = asyncio.create_task(asyncio.to_thread(accept))
    lane = Lane(Address.from_url(f"redis://127.0.0.1:{listener.getsockname()[1]}?protocol=2"), stall_s=60)
    with pytest.raises(ConnectionLost, match="ConnectionClosed"):
        await lane.run([("SET", "k", LONG)], 60)
    await lane.aclose()
    with await accepted as server:
        server.settimeout(60)
        with pytest.raises(ConnectionResetError):
            await asyncio.to_thread(read_to_the_end, server)


@pytest.mark.parametrize("kind", ["asyncio", "blocking"])
async def test_bytes_not_received_are_never_sent(kind: str, listener: socket.socket) -> None:
    server = await give_up_call(kind, listener)
    with server, pytest.raises(ConnectionResetError):  # no clean end, which would follow all bytes
        await asyncio.to_thread(read_to_the_end, server)
