"""A memory with its strategy and its worker; and the real server, with a namespace for each example."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
import redis.asyncio
from support.clock import T0, Clock
from support.examples import OpenMemory
from support.provider_server import ProviderServer
from support.redis_server import RedisServer
from support.stores import PATIENCE, Store
from support.worked import FEW, WorkerParts
from support.writers import Echo

from redismem import Memory, Settings
from redismem.workers.summaries import Worker

_numbers = itertools.count(1)


@pytest.fixture
async def worker_parts(store: Store, namespace: str, clock: Clock) -> AsyncIterator[WorkerParts]:
    async with store.memory(namespace, FEW) as memory:
        echo = Echo()
        yield memory, echo, Worker(memory.store, echo)


@pytest.fixture
async def client(redis_server: RedisServer) -> AsyncIterator[redis.asyncio.Redis]:
    """A client of the real server, for tests that do not run on both stores."""
    async with redis.asyncio.Redis(port=redis_server.port) as client:
        yield client


@pytest.fixture
def open_memory(client: redis.asyncio.Redis, namespace: str, clock: Clock) -> OpenMemory:
    """Open a memory on the real server, with a new namespace for each example."""

    def open_new(**changed: Any) -> AbstractAsyncContextManager[Memory]:
        clock.now_ms = T0
        name = f"{namespace}-{next(_numbers)}"
        settings = Settings(**{"shards": 2, **PATIENCE, **changed})
        return Memory.connect(client=client, namespace=name, settings=settings, clock=clock)

    return open_new


@pytest.fixture
def provider() -> Iterator[ProviderServer]:
    with ProviderServer() as provider:
        yield provider
