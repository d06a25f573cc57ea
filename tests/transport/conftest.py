"""Both event loops, and a Redis with users, TLS and a unix socket."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from support.lanes import lane_to
from support.redis_server import GuardedServer, RedisServer, TlsServer, free_port

from redismem.transport.lane.lane import Lane


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run the tests of lane and subscriptions on asyncio's event loop, and on uvloop if it is installed."""
    factories: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
    if item.path.name.startswith(("test_lane", "test_address", "test_subscriptions")):
        with contextlib.suppress(ImportError):
            import uvloop

            factories["uvloop"] = uvloop.new_event_loop
    return factories


@pytest.fixture(scope="module", autouse=True)
def quick_collections() -> None:
    """Let `gc.collect()` search the objects of the test's own file only, not those of the whole process."""
    gc.freeze()


@pytest.fixture
async def lane(redis_server: RedisServer) -> AsyncIterator[Lane]:
    async with lane_to(redis_server.port) as lane:
        yield lane


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedServer]:
    folder = tmp_path_factory.mktemp("guarded")
    socket_path = folder / "redis.sock"
    server = GuardedServer(folder, options=("--unixsocket", str(socket_path)))
    server.socket_path = socket_path
    server.start()
    server.refuse_clients()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def tls_server(certificates: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsServer]:
    """Its TLS port requires a client certificate."""
    tls_port = free_port()
    files = {"--tls-ca-cert-file": "ca.crt", "--tls-cert-file": "node.crt", "--tls-key-file": "node.key"}
    options = [word for option, name in files.items() for word in (option, str(certificates / name))]
    server = TlsServer(tmp_path_factory.mktemp("tls"), options=("--tls-port", str(tls_port), *options))
    server.tls_port = tls_port
    server.start()
    yield server
    server.stop()
