"""The embedded store: fakeredis with Lua, running the same scripts inside this process. It ends with the process."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import fakeredis

from redismem.transport.redis_py.client import BlockingRedisPy, RedisPy


def embedded(server: fakeredis.FakeServer | None = None) -> RedisPy:
    """A new, empty store for asyncio; with a `server`, what is kept there."""
    return RedisPy(fakeredis.FakeAsyncRedis(server=server or fakeredis.FakeServer()), owned=True)


def blocking_embedded(server: fakeredis.FakeServer | None = None) -> BlockingRedisPy:
    """The same for blocking callers."""
    return BlockingRedisPy(fakeredis.FakeRedis(server=server or fakeredis.FakeServer()), owned=True)


def both() -> tuple[BlockingRedisPy, Callable[[], RedisPy]]:
    """One new, empty store, for blocking callers, and what makes it one for asyncio."""
    server = fakeredis.FakeServer()
    return blocking_embedded(server), partial(embedded, server)
