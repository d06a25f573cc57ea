"""The embedded store: fakeredis with Lua, which runs the scripts inside this process. It ends with the process."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import fakeredis

from redismem.transport.redis_py.client import RedisPy


def embedded(server: fakeredis.FakeServer | None = None, *, blocks: bool = False) -> RedisPy:
    """Return a new, empty store, or the store of `server` if that is given; with `blocks` for blocking callers."""
    kind = fakeredis.FakeRedis if blocks else fakeredis.FakeAsyncRedis
    return RedisPy(kind(server=server or fakeredis.FakeServer()), owned=True, blocks=blocks)


def both() -> tuple[RedisPy, Callable[[], RedisPy]]:
    """Return one new store for blocking callers, and a function that opens it for asyncio."""
    server = fakeredis.FakeServer()
    return embedded(server, blocks=True), partial(embedded, server)
