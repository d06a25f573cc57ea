"""The proxy does to a connection what it says, no more: else the tests behind it show nothing."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator

import pytest
import redis
from support.checks import until
from support.proxy import How, Proxy
from support.redis_server import RedisServer

INCR = b"INCR counter\r\n"


class Client:
    """A bare socket: what arrives is what the proxy sent."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def __aenter__(self) -> Client:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    def say(self, request: bytes) -> None:
        self._writer.write(request)

    async def read(self) -> bytes:
        return await self._reader.read(1000)

    async def ask(self, request: bytes) -> bytes:
        self.say(request)
        return await self.read()

    async def hears_nothing(self) -> bool:
        try:
            async with asyncio.timeout(0.05):
                await self.read()
        except TimeoutError:
            return True
        return False


@pytest.fixture
async def client(proxy: Proxy, redis_server: RedisServer) -> AsyncIterator[Client]:
    with redis.Redis(port=redis_server.port) as raw:
        raw.delete("counter")
    async with Client(proxy.port) as client:
        yield client


def counter(server: RedisServer) -> int:
    with redis.Redis(port=server.port) as raw:
        return int(raw.get("counter") or 0)


async def test_counts_what_passes(proxy: Proxy, client: Client) -> None:
    assert await client.ask(INCR) == b":1\r\n"
    assert await client.ask(b"PING\r\n") == b"+PONG\r\n"
    assert (proxy.sent, proxy.received) == ([INCR, b"PING\r\n"], [b":1\r\n", b"+PONG\r\n"])
    assert (proxy.count(b"INCR"), proxy.connections_count, proxy.broken_count) == (1, 1, 0)
    proxy.forget()
    assert (proxy.sent, proxy.received, proxy.connections_count) == ([], [], 0)


@pytest.mark.parametrize("how", ["close", "half_close"])
async def test_drops_the_reply_of_what_ran_and_ends(
    how: How, proxy: Proxy, client: Client, redis_server: RedisServer
) -> None:
    proxy.break_next(how, to=b"INCR")
    assert await client.ask(b"PING\r\n") == b"+PONG\r\n"
    assert await client.ask(INCR) == b""
    assert counter(redis_server) == 1
    async with Client(proxy.port) as second:
        assert await second.ask(INCR) == b":2\r\n", "one was asked for"
    assert proxy.broken_count == 1


async def test_resets(proxy: Proxy, client: Client, redis_server: RedisServer) -> None:
    proxy.break_next("reset")
    with pytest.raises(ConnectionResetError):
        await client.ask(INCR)
    assert counter(redis_server) == 1


async def test_truncates(proxy: Proxy, client: Client) -> None:
    proxy.break_next("truncate")
    assert await client.ask(b"PING\r\n") == b"+PO"
    assert await client.read() == b""


async def test_freezes_one_connection_for_good(proxy: Proxy, client: Client, redis_server: RedisServer) -> None:
    proxy.break_next("freeze", to=b"INCR")
    client.say(INCR)
    await until(lambda: len(proxy.received) == 1)
    client.say(b"PING\r\n")
    await until(lambda: len(proxy.received) == 2)
    assert await client.hears_nothing()
    assert (counter(redis_server), proxy.received) == (1, [b":1\r\n", b"+PONG\r\n"])
    async with Client(proxy.port) as second:
        assert await second.ask(INCR) == b":2\r\n"


async def test_swallows_a_request(proxy: Proxy, client: Client, redis_server: RedisServer) -> None:
    proxy.break_next("swallow", to=b"INCR")
    client.say(INCR)
    await until(lambda: proxy.broken_count == 1)
    assert await client.hears_nothing()
    assert counter(redis_server) == 0
    assert await client.ask(b"PING\r\n") == b"+PONG\r\n"


async def test_delays(proxy: Proxy, client: Client) -> None:
    proxy.break_next("delay", delay_s=0.05)
    before = time.monotonic()
    assert await client.ask(b"PING\r\n") == b"+PONG\r\n"
    assert time.monotonic() - before >= 0.05


async def test_splits_at_every_byte(proxy: Proxy, client: Client) -> None:
    proxy.break_next("split")
    assert await client.ask(b"PING\r\n") == b"+"
    assert [await client.read() for _ in range(6)] == [b"P", b"O", b"N", b"G", b"\r", b"\n"]


async def test_ends_a_connection_where_the_server_is_gone() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        async with Proxy(taken.getsockname()[1]) as proxy, Client(proxy.port) as client:
            assert await client.read() == b""
