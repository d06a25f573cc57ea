"""The turns of each side of `benchmarks.adapters`: an adapter of ours, or the Redis store of its framework."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol, Self

import redis.asyncio

from benchmarks.turns import ASSISTANT, USER
from redismem import Memory

TTL_S = 86_400


class Side(Protocol):
    """One store of a framework."""

    label: ClassVar[str]

    @classmethod
    async def open(cls, url: str) -> Self: ...

    async def talk(self, session_id: str, turns: int) -> None:
        """Play a new session with this many turns."""

    async def aclose(self) -> None: ...


class _AgentsSession:
    """A session of the OpenAI Agents SDK."""

    def __init__(self, make: Any, close: Any) -> None:
        self._make = make
        self.aclose = close

    async def talk(self, session_id: str, turns: int) -> None:
        session = self._make(session_id)
        for _ in range(turns):
            await session.add_items([dict(USER)])
            await session.get_items()
            await session.add_items([dict(ASSISTANT)])


class AgentsOurs(_AgentsSession):
    label = "OpenAI Agents, redismem"

    @classmethod
    async def open(cls, url: str) -> Self:
        from redismem.adapters.openai_agents import Session

        memory = Memory.connect(url, namespace="bench-agents")
        return cls(lambda session_id: Session(session_id, memory=memory, ttl=TTL_S), memory.aclose)


class AgentsOursOverClient(_AgentsSession):
    label = "OpenAI Agents, redismem over redis-py"

    @classmethod
    async def open(cls, url: str) -> Self:
        from redismem.adapters.openai_agents import Session

        client = _client(url)
        return cls(lambda session_id: Session(session_id, redis_client=client, ttl=TTL_S), client.aclose)


class AgentsTheirs(_AgentsSession):
    label = "OpenAI Agents, RedisSession"

    @classmethod
    async def open(cls, url: str) -> Self:
        from agents.extensions.memory import RedisSession

        client = _client(url)
        return cls(
            lambda session_id: RedisSession(session_id, redis_client=client, key_prefix="bench", ttl=TTL_S),
            client.aclose,
        )


def _client(url: str) -> redis.asyncio.Redis:
    pool = redis.asyncio.BlockingConnectionPool.from_url(url, max_connections=64)
    return redis.asyncio.Redis(connection_pool=pool)


PAIRS: list[tuple[Any, Any]] = [
    (AgentsOurs, AgentsTheirs),
    (AgentsOursOverClient, AgentsTheirs),
]
"""Our adapter, and the framework's own store."""
