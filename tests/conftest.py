"""What all tests share: a redis-server of their own, and the two stores that every behaviour is shown on."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import fakeredis
import pytest
import redis.asyncio
from redis_server import RedisServer

from redismem import Memory, Settings

_numbers = itertools.count(1)


@pytest.fixture(scope="session", autouse=True)
def no_settings_from_outside() -> Iterator[None]:
    """The environment of whoever runs the tests must not change what they see."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("REDISMEM_")]:
            patch.delenv(name)
        yield


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """One server for all tests that only need a real one; each test has a namespace of its own."""
    server = RedisServer(tmp_path_factory.mktemp("redis")).start()
    yield server
    server.stop()


@pytest.fixture
def namespace() -> str:
    return f"test-{os.getpid()}-{next(_numbers)}"


class Store:
    """A place to keep sessions, and the raw client that looks into it behind the memory's back."""

    def __init__(self, make_client: Callable[[], Any]) -> None:
        self._make_client = make_client

    def client(self) -> Any:
        """A raw redis.asyncio client on the store. Close it."""
        return self._make_client()

    @contextlib.asynccontextmanager
    async def memory(self, namespace: str, settings: Settings | None = None, **options: Any) -> AsyncIterator[Memory]:
        """A memory on the store, over a client of its own."""
        async with (
            self.client() as client,
            Memory.connect(client=client, namespace=namespace, settings=settings, **options) as memory,
        ):
            yield memory


@pytest.fixture(params=["real", "embedded"])
def store(request: pytest.FixtureRequest) -> Store:
    """Real Redis and the embedded store: a test that takes this runs on both."""
    if request.param == "real":
        server: RedisServer = request.getfixturevalue("redis_server")
        return Store(lambda: redis.asyncio.Redis(port=server.port))
    fake = fakeredis.FakeServer()
    return Store(lambda: fakeredis.FakeAsyncRedis(server=fake))


@pytest.fixture
async def raw(store: Store) -> Any:
    """A raw client on the store."""
    async with store.client() as client:
        yield client


@pytest.fixture
async def memory(store: Store, namespace: str) -> Any:
    """A memory of this test's own, on the store."""
    async with store.memory(namespace) as memory:
        yield memory
