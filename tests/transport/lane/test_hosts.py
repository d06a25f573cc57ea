"""A host with two addresses, of which the first drops every packet: calls reach the second one."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from support.redis_server import RedisServer

import redismem.blocking
from redismem import Memory, Settings
from redismem.transport.lane.hosts import in_turn

SILENT, ANSWERING = "127.0.0.2", "127.0.0.1"
SETTINGS = Settings(reply_timeout_s=0.3, deadline_s=60)


@pytest.fixture
def url(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Resolve a name to both addresses. The listener of the first one has a full queue, so it accepts nothing."""
    resolve = socket.getaddrinfo

    def resolve_both(host: Any, *rest: Any, **options: Any) -> list[Any]:
        hosts = (SILENT, ANSWERING) if host in ("both.test", b"both.test") else (host,)
        return [info for each in hosts for info in resolve(each, *rest, **options)]

    monkeypatch.setattr(socket, "getaddrinfo", resolve_both)
    with contextlib.ExitStack() as open_sockets:
        listener = open_sockets.enter_context(socket.socket())
        listener.bind((SILENT, redis_server.port))
        listener.listen(0)
        for _ in range(4):
            filler = open_sockets.enter_context(socket.socket())
            filler.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                filler.connect((SILENT, redis_server.port))
        yield f"redis://both.test:{redis_server.port}/0"


def test_calls_reach_the_address_that_answers(url: str, namespace: str) -> None:
    async def ping() -> bool:
        async with Memory.connect(url, namespace=namespace, settings=SETTINGS) as memory:
            return await memory.ping()

    # uvloop resolves names without the socket module.
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        assert runner.run(ping())


def test_blocking_calls_reach_it_too(url: str, namespace: str) -> None:
    with redismem.blocking.Memory.connect(url, namespace=namespace, settings=SETTINGS) as memory:
        assert memory.ping()


def test_each_failed_attempt_begins_with_another_address() -> None:
    found = [(socket.AF_INET, kind, 0, "", (f"10.0.0.{at}", 6379)) for at in (1, 2, 3) for kind in (1, 2)]
    orders = [in_turn(found, count) for count in range(4)]
    assert orders[:2] == [["10.0.0.1", "10.0.0.2", "10.0.0.3"], ["10.0.0.2", "10.0.0.3", "10.0.0.1"]]
    assert orders[3] == orders[0]
