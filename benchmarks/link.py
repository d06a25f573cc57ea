"""A link of limited bandwidth on loopback: `python -m benchmarks.link PORT MBITS`, which prints the port to connect to.

All connections share the bandwidth of each direction, in turns of a few packets, as on a real link. It runs in a
process of its own, so that it takes no time from the event loop of the client.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterator

_PIECE_BYTES = 8 * 1024
# What a connection may have buffered on its way: about the product of bandwidth and delay.
_BUFFER_BYTES = 64 * 1024
_STEP_S = 0.0005


class _Direction:
    """The bandwidth of one direction. Pieces go in the order in which they arrive."""

    def __init__(self, bytes_per_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._free_at = 0.0
        self._turn = asyncio.Lock()

    async def carry(self, size: int) -> None:
        clock = asyncio.get_running_loop().time
        async with self._turn:
            self._free_at = max(self._free_at, clock()) + size / self._bytes_per_s
            if (wait_s := self._free_at - clock()) > _STEP_S:
                await asyncio.sleep(wait_s)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: _Direction) -> None:
    with contextlib.suppress(ConnectionError):
        while piece := await reader.read(_PIECE_BYTES):
            await direction.carry(len(piece))
            writer.write(piece)
            await writer.drain()
    writer.close()


async def serve(port: int, mbits: float) -> None:
    up, down = (_Direction(mbits * 1e6 / 8) for _ in range(2))

    async def carry(client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        server, to_server = await asyncio.open_connection("127.0.0.1", port, limit=_BUFFER_BYTES)
        for writer in (to_client, to_server):
            writer.transport.set_write_buffer_limits(_BUFFER_BYTES)
        await asyncio.gather(_pump(client, to_server, up), _pump(server, to_client, down))

    listening = await asyncio.start_server(carry, "127.0.0.1", 0, limit=_BUFFER_BYTES)
    print(listening.sockets[0].getsockname()[1], flush=True)
    await listening.serve_forever()


@contextlib.contextmanager
def link_to(port: int, mbits: float) -> Iterator[int]:
    """Start a link to this port, and yield the port to connect to."""
    words = [sys.executable, "-m", "benchmarks.link", str(port), str(mbits)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(int(sys.argv[1]), float(sys.argv[2])))
