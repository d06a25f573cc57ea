"""A list of a hook's events, and both memories on both stores."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import fakeredis
import redis
import redis.asyncio

import redismem
from redismem import Settings
from redismem.blocking import memory as blocking
from redismem.events import Event, OnEvent
from redismem.protocol.keys import Keys, SessionKeys
from support.callers import Awaiting
from support.redis_server import RedisServer

CANARY = "canary"
NAME = "user-42"
PATIENT = Settings(deadline_s=60, reply_timeout_s=20)


class Events(list[Event]):
    """The events that a hook received."""

    seen_count = 0

    def drain(self) -> list[tuple[str, str]]:
        """Return op and outcome of the events since the last call."""
        found = [(event.op, event.outcome) for event in self[self.seen_count :]]
        self.seen_count = len(self)
        return found


def user(number: int) -> dict[str, Any]:
    return {"role": "user", "content": f"{CANARY} {number}"}


class Place:
    """A store, and memories on it: async or blocking."""

    def __init__(self, server: RedisServer | None, namespace: str, *, is_async: bool) -> None:
        self.namespace, self.is_async = namespace, is_async
        fake = fakeredis.FakeServer()
        self.raw: Any = redis.Redis(port=server.port) if server else fakeredis.FakeRedis(server=fake)
        self._async: Callable[[], Any] = (
            partial(redis.asyncio.Redis, port=server.port) if server else partial(fakeredis.FakeAsyncRedis, server=fake)
        )

    def keys(self, session_id: str) -> SessionKeys:
        return Keys(self.namespace, 64).session(session_id)

    @contextlib.asynccontextmanager
    async def memory(self, on_event: OnEvent, settings: Settings | None = None, **options: Any) -> AsyncIterator[Any]:
        given: dict[str, Any] = {"namespace": self.namespace, "settings": settings, "on_event": on_event} | options
        if not self.is_async:
            with blocking.Memory.connect(client=self.raw, **given) as memory:
                yield Awaiting(memory, redismem.Memory)
            return
        async with self._async() as client, redismem.Memory.connect(client=client, **given) as memory:
            yield memory
