"""The embedded store: fakeredis with Lua, running the same scripts inside this process. It ends with the process."""

from __future__ import annotations

import fakeredis

from redismem.transport.redis_py import BlockingRedisPy, RedisPy


def embedded() -> RedisPy:
    """A new, empty store for asyncio."""
    return RedisPy(fakeredis.FakeAsyncRedis(server=fakeredis.FakeServer()), owned=True)


def blocking_embedded() -> BlockingRedisPy:
    """A new, empty store for blocking callers."""
    return BlockingRedisPy(fakeredis.FakeRedis(server=fakeredis.FakeServer()), owned=True)
