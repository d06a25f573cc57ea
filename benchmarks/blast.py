"""Send packed commands over one socket as fast as it accepts them, and count the replies only as bytes.

Each 256 KiB take one `send` and a few `recv_into`, so the cost of the Python code is negligible.
"""

from __future__ import annotations

import os
import select
import socket
from urllib.parse import urlsplit

import hiredis

from benchmarks.measuring import Server

_PIECE_BYTES = 256 * 1024


class Blaster:
    """A plain socket to a server."""

    def __init__(self, server: Server) -> None:
        at = urlsplit(server.url)
        self._server = server
        self._socket = socket.create_connection((at.hostname or "127.0.0.1", at.port or 6379))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setblocking(False)
        self._buffer = bytearray(_PIECE_BYTES)

    def close(self) -> None:
        self._socket.close()

    def send(self, content: bytes) -> int:
        """Send all content, wait for all replies, and return their bytes."""
        marker = os.urandom(16).hex().encode()
        view = memoryview(content + hiredis.pack_command(("ECHO", marker)))  # type: ignore[arg-type]
        end, tail, sent, received = marker + b"\r\n", b"", 0, 0
        poll = select.poll()
        poll.register(self._socket, select.POLLIN | select.POLLOUT)
        while not tail.endswith(end):
            ((_, events),) = poll.poll()
            if events & select.POLLOUT:
                sent += self._socket.send(view[sent : sent + _PIECE_BYTES])
                if sent == len(view):
                    poll.modify(self._socket, select.POLLIN)
            if events & select.POLLIN:
                count = self._socket.recv_into(self._buffer)
                received += count
                tail = (tail + self._buffer[max(0, count - len(end)) : count])[-len(end) :]
                if count == 0:
                    raise ConnectionError("the server closed the connection")
        return received

    def errors_count(self) -> int:
        """Return the number of error replies that the server has sent so far, since `send` parses no replies."""
        return int(self._server.client.info("stats")["total_error_replies"])
