"""The embedded store: fakeredis with Lua, which runs the scripts inside this process. It ends with the process."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import fakeredis

from redismem.transport.redis_py.client import RedisPy


def embedded(server: fakeredis.FakeServer | None = None) -> RedisPy:
    """Return a new, empty store for asyncio, or the store of `server` if that is given."""
    return RedisPy(fakeredis.FakeAsyncRedis(server=server or fakeredis.FakeServer()), owned=True)


def blocking_embedded(server: fakeredis.FakeServer | None = None) -> RedisPy:
    """Return a new, empty store for blocking callers, or the store of `server` if that is given."""
    return RedisPy(fakeredis.FakeRedis(server=server or fakeredis.FakeServer()), owned=True, blocks=True)


def both() -> tuple[RedisPy, Callable[[], RedisPy]]:
    """Return one new store for blocking callers, and a function that opens it for asyncio."""
    server = fakeredis.FakeServer()
    return blocking_embedded(server), partial(embedded, server)
