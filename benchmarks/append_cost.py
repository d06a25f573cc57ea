"""The server's CPU time for one append_and_read, against one bare RPUSH + LRANGE. No client library takes part.

Commands are packed in advance and sent over plain sockets in two ways. `one write a call` uses 64 connections with one
call each in flight, like concurrent callers. `blast` uses one socket with many calls per write, which shows the pure
cost of the commands, almost without system calls.

Both sides keep equal windows. A window is filled to 6 messages, then four calls are measured, which read 7 to 10
messages, as workers with threshold 10 and recent_limit 6 leave them. Then it is pruned to 6 outside the measured time.
`after a pause` sets the session's last activity back first, so that the append refreshes the activity index, as it
does after a second.
"""

from __future__ import annotations

import random
import selectors
import socket
import statistics
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import hiredis

from benchmarks.measuring import Server
from redismem import Memory, Settings
from redismem.messages.encoding import encode_message
from redismem.protocol.session.calls import SessionCalls

SESSIONS_COUNT = 256
CALLS_A_BURST = 4
BASE_COUNT = 6
CONNECTIONS_COUNT = 64
TEXT = "x" * 160
_BLAST_CALLS = 32

Sender = Callable[[list[bytes], int], None]


class Sockets:
    """Plain connections, with two ways to send packed calls over them."""

    def __init__(self, url: str) -> None:
        at = urlsplit(url)
        self._sockets = [
            socket.create_connection((at.hostname or "127.0.0.1", at.port or 6379)) for _ in range(CONNECTIONS_COUNT)
        ]
        for connection in self._sockets:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        for connection in self._sockets:
            connection.close()

    def one_write_a_call(self, calls: list[bytes], replies_count: int) -> None:
        waiting: Iterator[bytes] = iter(calls)
        with selectors.DefaultSelector() as selector:
            for connection, call in zip(self._sockets, waiting, strict=False):
                selector.register(connection, selectors.EVENT_READ, _Replies(connection, replies_count))
                connection.sendall(call)
            while selector.get_map():
                for key, _ in selector.select():
                    if not key.data.complete():
                        continue
                    following = next(waiting, None)
                    if following is None:
                        selector.unregister(key.fileobj)
                    else:
                        key.data.expect(replies_count)
                        key.fileobj.sendall(following)  # type: ignore[union-attr]

    def blast(self, calls: list[bytes], replies_count: int) -> None:
        connection = self._sockets[0]
        for at in range(0, len(calls), _BLAST_CALLS):
            part = calls[at : at + _BLAST_CALLS]
            connection.sendall(b"".join(part))
            replies = _Replies(connection, replies_count * len(part))
            while not replies.complete():
                pass


class _Replies:
    """A reader of one connection, up to a number of replies. It raises an error reply."""

    def __init__(self, connection: socket.socket, count: int) -> None:
        self._connection = connection
        self._reader = hiredis.Reader()
        self._missing = count

    def expect(self, count: int) -> None:
        self._missing = count

    def complete(self) -> bool:
        self._reader.feed(self._connection.recv(1 << 20))
        while (reply := self._reader.gets()) is not False:
            for answer in reply if isinstance(reply, list) else [reply]:
                if isinstance(answer, Exception):
                    raise answer
            self._missing -= 1
        return self._missing == 0


class Sides:
    """The sessions of both sides, and the packed calls on them."""

    def __init__(self, server: Server, name: str) -> None:
        self._server = server
        self._settings = Settings(url=server.url)
        self._memory = Memory.connect(server.url, namespace=name, settings=self._settings)
        self._ids = [f"session-{number:06d}" for number in range(SESSIONS_COUNT)]
        self._calls = [SessionCalls(self._memory.store.keys.session(id), self._settings) for id in self._ids]
        self._lists = [f"{name}:bare:{id}".encode() for id in self._ids]
        # As long as a message that redismem stores, with its nine bytes of stamp.
        self._element = encode_message({"role": "user", "content": TEXT})[0] + bytes(9)

    def redismem(self) -> list[bytes]:
        """Pack one call for each session."""
        packed = []
        for calls in self._calls:
            call = calls.append_and_read([{"role": "user", "content": TEXT}])
            packed.append(pack(("MULTI",), *call.commands, ("EXEC",)))
        return packed

    def redismem_after_a_pause(self) -> list[bytes]:
        self._server.make_idle([calls.keys.state for calls in self._calls])
        return self.redismem()

    def bare(self) -> list[bytes]:
        return [pack(("RPUSH", key, self._element), ("LRANGE", key, 0, -1)) for key in self._lists]

    async def prepare(self) -> None:
        """Create sessions with more appends than a session remembers."""
        await self._memory.ping()
        for _ in range(24):
            for id in self._ids:
                await self._memory.session(id).append({"role": "user", "content": TEXT})
        for key in self._lists:
            self._server.client.rpush(key, *[self._element] * BASE_COUNT)
        await self.prune()

    async def prune(self) -> None:
        for id in self._ids:
            await self._memory.session(id).prune(BASE_COUNT)
        pipeline = self._server.client.pipeline(transaction=False)
        for key in self._lists:
            pipeline.ltrim(key, -BASE_COUNT, -1)
        pipeline.execute()

    async def close(self) -> None:
        await self._memory.aclose()


def pack(*commands: tuple[Any, ...]) -> bytes:
    return b"".join(hiredis.pack_command(command) for command in commands)


# MULTI, three times QUEUED, EXEC; and two plain replies.
_REDISMEM_REPLIES, _BARE_REPLIES = 5, 2


async def measure(server: Server, name: str, rounds: int) -> list[dict[str, Any]]:
    """Return one row per way and call: µs of the server's CPU and the ratio to bare, as medians of all rounds."""
    sides, sockets = Sides(server, name), Sockets(server.url)
    ways: dict[str, Sender] = {"one write a call": sockets.one_write_a_call, "blast": sockets.blast}
    kinds: dict[str, tuple[Callable[[], list[bytes]], int]] = {
        "bare RPUSH + LRANGE": (sides.bare, _BARE_REPLIES),
        "append_and_read": (sides.redismem, _REDISMEM_REPLIES),
        "append_and_read after a pause": (sides.redismem_after_a_pause, _REDISMEM_REPLIES),
    }
    found: dict[tuple[str, str], list[float]] = {(way, kind): [] for way in ways for kind in kinds}
    await sides.prepare()
    for _ in range(rounds):
        # A new order in each round, so that no side always follows the same side.
        for way, kind in random.sample(list(found), len(found)):
            found[way, kind].append(_burst(server, ways[way], *kinds[kind]))
            await sides.prune()
    sockets.close()
    await sides.close()
    return [_row(way, kind, found) for way, kind in found]


def _burst(server: Server, send: Sender, make: Callable[[], list[bytes]], replies_count: int) -> float:
    """Return the µs of the server's CPU for one call."""
    used_s = 0.0
    for _ in range(CALLS_A_BURST):
        calls = make()
        # INFO costs CPU too, so the cost of the previous INFO is subtracted.
        earlier, before = server.cpu_s(), server.cpu_s()
        send(calls, replies_count)
        used_s += server.cpu_s() - before - (before - earlier)
    return used_s / (CALLS_A_BURST * SESSIONS_COUNT) * 1e6


def _row(way: str, kind: str, found: dict[tuple[str, str], list[float]]) -> dict[str, Any]:
    bare = found[way, "bare RPUSH + LRANGE"]
    low, middle, high = statistics.quantiles(found[way, kind], n=4)
    return {
        "way": way,
        "call": kind,
        "server_us": middle,
        "quartiles_us": [low, high],
        "ratio": statistics.median(ours / theirs for ours, theirs in zip(found[way, kind], bare, strict=True)),
    }
