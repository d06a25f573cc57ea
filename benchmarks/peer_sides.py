"""The turns of each side of `benchmarks.peers`, through the public API of its library, as its users would make them."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar, Protocol, Self

import redis
import redis.asyncio

from benchmarks.peer_clients import CoredisTransport, GlideTransport
from benchmarks.running import over_lane, over_redis_py
from benchmarks.turns import ASSISTANT, USER, Careful
from redismem import Memory, Settings
from redismem.store.store import Store

TTL_S = 86_400


class Side(Protocol):
    """A library under test. `packages` are the packages whose versions matter only to this side."""

    label: ClassVar[str]
    does: ClassVar[str]
    packages: ClassVar[tuple[str, ...]]

    @classmethod
    async def open(cls, url: str, name: str, concurrency: int) -> Self: ...

    async def talk(self, session_id: str, turns_count: int) -> None:
        """Play a new session with this many turns."""

    async def aclose(self) -> None: ...


class _Redismem:
    """`append_and_read(user)`, then `append(assistant)`; the context is converted to dicts."""

    packages: ClassVar[tuple[str, ...]] = ()

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    async def talk(self, session_id: str, turns_count: int) -> None:
        for _ in range(turns_count):
            session = self._memory.session(session_id)
            context = await session.append_and_read(USER)
            context.to_openai()
            await session.append(ASSISTANT)

    async def aclose(self) -> None:
        await self._memory.aclose()


class OverLane(_Redismem):
    label: ClassVar[str] = "redismem, lane"
    does: ClassVar[str] = "append_and_read, append; atomic, with ids, counters, index; one connection"

    @classmethod
    async def open(cls, url: str, name: str, concurrency: int) -> Self:
        del concurrency
        return cls(over_lane(url, f"{name}-lane"))


class OverRedisPy(_Redismem):
    label: ClassVar[str] = "redismem, redis-py"
    does: ClassVar[str] = "the same over redis-py's pool of 64 connections"

    @classmethod
    async def open(cls, url: str, name: str, concurrency: int) -> Self:
        return cls(over_redis_py(url, f"{name}-redispy", concurrency))


class OverGlide(_Redismem):
    label: ClassVar[str] = "valkey-glide, same scripts"
    does: ClassVar[str] = "redismem's commands through a GlideClient: atomic Batch, one connection"
    packages: ClassVar[tuple[str, ...]] = ("valkey-glide",)

    @classmethod
    async def open(cls, url: str, name: str, concurrency: int) -> Self:
        del concurrency
        return cls(Memory(Store(await GlideTransport.open(url), f"{name}-glide", Settings())))


class OverCoredis(_Redismem):
    label: ClassVar[str] = "coredis, same scripts"
    does: ClassVar[str] = "redismem's commands through coredis.Redis: pipeline(transaction=True), 64 connections"
    packages: ClassVar[tuple[str, ...]] = ("coredis",)

    @classmethod
    async def open(cls, url: str, name: str, concurrency: int) -> Self:
        return cls(Memory(Store(await CoredisTransport.open(url, concurrency), f"{name}-coredis", Settings())))


class CarefulIdiom:
    label: ClassVar[str] = "redis-py, careful"
    does: ClassVar[str] = "twice a MULTI of RPUSH, LTRIM, EXPIRE, HINCRBY, LRANGE; JSON; 64 connections"
    packages: ClassVar[tuple[str, ...]] = ()

    def __init__(self, careful: Careful) -> None:
        self._careful = careful

    @classmethod
    async def open(cls, url: str, name: str, concurrency: int) -> Self:
        return cls(Careful(url, name, concurrency))

    async def talk(self, session_id: str, turns_count: int) -> None:
        for _ in range(turns_count):
            await self._careful.turn(session_id)

    async def aclose(self) -> None:
        await self._careful.aclose()


def _shared_client(url: str, concurrency: int) -> Any:
    """Return the best client for a library: one for all sessions, with a pool in which no caller waits."""
    pool = redis.asyncio.BlockingConnectionPool.from_url(url, max_connections=concurrency, timeout=10)
    return redis.asyncio.Redis.from_pool(pool)


class OpenAIAgents:
    label: ClassVar[str] = "openai-agents RedisSession"
    does: ClassVar[str] = "add_items, get_items, add_items; one object a session, one async client for all"
    packages: ClassVar[tuple[str, ...]] = ("openai-agents",)

    def __init__(self, url: str, name: str, concurrency: int) -> None:
        from agents.extensions.memory import RedisSession

        self._prefix = f"{name}-agents"
        self._session = RedisSession
        self._client = _shared_client(url, concurrency)

    @classmethod
    async def open(cls, url: str, name: str, concurrency: int) -> Self:
        return cls(url, name, concurrency)

    async def talk(self, session_id: str, turns_count: int) -> None:
        session = self._session(session_id, redis_client=self._client, key_prefix=self._prefix, ttl=TTL_S)
        user: Any = dict(USER)
        assistant: Any = dict(ASSISTANT)
        for _ in range(turns_count):
            await session.add_items([user])
            await session.get_items()
            await session.add_items([assistant])

    async def aclose(self) -> None:
        await self._client.aclose()


class LlamaIndex:
    label: ClassVar[str] = "LlamaIndex RedisChatStore"
    does: ClassVar[str] = "async_add_message, aget_messages, async_add_message; its async client, 64 connections"
    packages: ClassVar[tuple[str, ...]] = ("llama-index-storage-chat-store-redis", "llama-index-core")

    def __init__(self, url: str, name: str, concurrency: int) -> None:
        from llama_index.core.llms import ChatMessage
        from llama_index.storage.chat_store.redis import RedisChatStore

        self._prefix = f"{name}-llamaindex"
        self._message = ChatMessage
        self._clients = (redis.Redis.from_url(url), _shared_client(url, concurrency))
        self._store = RedisChatStore(redis_client=self._clients[0], aredis_client=self._clients[1], ttl=TTL_S)

    @classmethod
    async def open(cls, url: str, name: str, concurrency: int) -> Self:
        return cls(url, name, concurrency)

    async def talk(self, session_id: str, turns_count: int) -> None:
        key = f"{self._prefix}:{session_id}"
        for _ in range(turns_count):
            await self._store.async_add_message(key, self._message(**USER))
            await self._store.aget_messages(key)
            await self._store.async_add_message(key, self._message(**ASSISTANT))

    async def aclose(self) -> None:
        self._clients[0].close()
        await self._clients[1].aclose()


class LangChain:
    """A library whose async methods run sync methods in threads. Each of its objects creates its own client."""

    label: ClassVar[str] = "LangChain RedisChatMessageHistory"
    does: ClassVar[str] = "aadd_messages, aget_messages, aadd_messages (sync client in threads); one object a session"
    packages: ClassVar[tuple[str, ...]] = ("langchain-community", "langchain-core")

    def __init__(self, url: str, name: str) -> None:
        from langchain_community.chat_message_histories import RedisChatMessageHistory
        from langchain_core.messages import AIMessage, HumanMessage

        self._url, self._prefix = url, f"{name}-{type(self).__name__}:"
        self._history, self._human, self._ai = RedisChatMessageHistory, HumanMessage, AIMessage

    @classmethod
    async def open(cls, url: str, name: str, concurrency: int) -> Self:
        del concurrency
        return cls(url, name)

    async def _opened(self, session_id: str) -> Any:
        return await asyncio.to_thread(self._history, session_id, self._url, self._prefix, TTL_S)

    async def _turn(self, history: Any) -> None:
        await history.aadd_messages([self._human(USER["content"])])
        await history.aget_messages()
        await history.aadd_messages([self._ai(ASSISTANT["content"])])

    async def talk(self, session_id: str, turns_count: int) -> None:
        history = await self._opened(session_id)
        for _ in range(turns_count):
            await self._turn(history)
        history.redis_client.close()

    async def aclose(self) -> None:
        """Do nothing: no connection stays open."""


class LangChainPerRequest(LangChain):
    label: ClassVar[str] = "LangChain, an object per request"
    does: ClassVar[str] = "the same, made anew each turn, as RunnableWithMessageHistory has its factory do"

    async def talk(self, session_id: str, turns_count: int) -> None:
        for _ in range(turns_count):
            history = await self._opened(session_id)
            await self._turn(history)
            history.redis_client.close()


SIDES: tuple[type[Side], ...] = (
    OverLane,
    OverRedisPy,
    OverGlide,
    OverCoredis,
    CarefulIdiom,
    LlamaIndex,
    OpenAIAgents,
    LangChain,
    LangChainPerRequest,
)
