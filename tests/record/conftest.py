"""Fixtures of the tests of records."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from support.redis_server import RedisServer
from support.stores import Store

from redismem import Memory


@pytest.fixture
async def memory(request: pytest.FixtureRequest, store: Store, namespace: str) -> AsyncIterator[Memory]:
    """A memory on the embedded store, or over the lane on Redis: the lane's replies are not those of redis-py."""
    if "embedded" in request.node.callspec.params.values():
        async with store.memory(namespace) as memory:
            yield memory
        return
    server: RedisServer = request.getfixturevalue("redis_server")
    async with Memory.connect(server.url, namespace=namespace) as memory:
        yield memory
