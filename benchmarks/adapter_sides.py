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


class _LlamaIndexStore:
    """A chat store of LlamaIndex."""

    def __init__(self, add: Any, read: Any, close: Any) -> None:
        from llama_index.core.base.llms.types import ChatMessage

        self._add, self._read, self.aclose = add, read, close
        self._messages = [ChatMessage(role=item["role"], content=item["content"]) for item in (USER, ASSISTANT)]

    async def talk(self, session_id: str, turns: int) -> None:
        question, answer = self._messages
        for _ in range(turns):
            await self._add(session_id, question)
            await self._read(session_id)
            await self._add(session_id, answer)


class LlamaIndexOurs(_LlamaIndexStore):
    label = "LlamaIndex, redismem"

    @classmethod
    async def open(cls, url: str) -> Self:
        from redismem.adapters.llama_index import ChatStore

        memory = Memory.connect(url, namespace="bench-llama")
        store = ChatStore(memory=memory, ttl=TTL_S)
        return cls(store.add_message, store.get_messages, memory.aclose)


class LlamaIndexOursOverClient(_LlamaIndexStore):
    label = "LlamaIndex, redismem over redis-py"

    @classmethod
    async def open(cls, url: str) -> Self:
        from redismem.adapters.llama_index import ChatStore

        client = _client(url)
        store = ChatStore(redis_client=client, ttl=TTL_S)
        return cls(store.add_message, store.get_messages, client.aclose)


class LlamaIndexTheirs(_LlamaIndexStore):
    label = "LlamaIndex, RedisChatStore"

    @classmethod
    async def open(cls, url: str) -> Self:
        from llama_index.storage.chat_store.redis import RedisChatStore

        client = _client(url)
        store = RedisChatStore(redis_client=redis.Redis.from_url(url), aredis_client=client, ttl=TTL_S)
        return cls(store.async_add_message, store.aget_messages, client.aclose)


class _AdkService:
    """A session service of Google ADK."""

    def __init__(self, service: Any, close: Any) -> None:
        self._service, self.aclose = service, close

    async def talk(self, session_id: str, turns: int) -> None:
        from google.adk.events.event import Event
        from google.genai import types

        place = {"app_name": "bench", "user_id": session_id, "session_id": session_id}
        session = await self._service.create_session(**place)
        for _ in range(turns):
            for item, author in ((USER, "user"), (ASSISTANT, "model")):
                content = types.Content(role=author, parts=[types.Part(text=item["content"])])
                await self._service.append_event(session, Event(author=author, content=content))
                if author == "user":
                    session = await self._service.get_session(**place)


class AdkOurs(_AdkService):
    label = "Google ADK, redismem"

    @classmethod
    async def open(cls, url: str) -> Self:
        from redismem.adapters.google_adk import SessionService

        memory = Memory.connect(url, namespace="bench-adk")
        return cls(SessionService(memory=memory, ttl=TTL_S), memory.aclose)


class AdkTheirs(_AdkService):
    label = "Google ADK, RedisSessionService"

    @classmethod
    async def open(cls, url: str) -> Self:
        from google.adk.integrations.redis import RedisSessionService

        client = _client(url, decode_responses=True)
        return cls(RedisSessionService(redis_client=client), client.aclose)


class _LangChainHistory:
    """A chat message history of LangChain, an object per session."""

    def __init__(self, make: Any, close: Any) -> None:
        from langchain_core.messages import AIMessage, HumanMessage

        self._make, self.aclose = make, close
        self._question, self._answer = HumanMessage(USER["content"]), AIMessage(ASSISTANT["content"])

    async def talk(self, session_id: str, turns: int) -> None:
        history = self._make(session_id)
        for _ in range(turns):
            await history.aadd_messages([self._question])
            await history.aget_messages()
            await history.aadd_messages([self._answer])


class LangChainOurs(_LangChainHistory):
    label = "LangChain, redismem"

    @classmethod
    async def open(cls, url: str) -> Self:
        from redismem.adapters.langchain import ChatMessageHistory

        memory = Memory.connect(url, namespace="bench-langchain")
        return cls(lambda session_id: ChatMessageHistory(session_id, memory=memory, ttl=TTL_S), memory.aclose)


class LangChainTheirs(_LangChainHistory):
    label = "LangChain, RedisChatMessageHistory"

    @classmethod
    async def open(cls, url: str) -> Self:
        from langchain_community.chat_message_histories import RedisChatMessageHistory

        async def close() -> None:
            """Do nothing: each object has a client of its own."""

        return cls(lambda session_id: RedisChatMessageHistory(session_id, url=url, ttl=TTL_S), close)


def _client(url: str, **options: Any) -> redis.asyncio.Redis:
    pool = redis.asyncio.BlockingConnectionPool.from_url(url, max_connections=64, **options)
    return redis.asyncio.Redis(connection_pool=pool)


PAIRS: list[tuple[Any, Any]] = [
    (AgentsOurs, AgentsTheirs),
    (AgentsOursOverClient, AgentsTheirs),
    (LlamaIndexOurs, LlamaIndexTheirs),
    (LlamaIndexOursOverClient, LlamaIndexTheirs),
    (AdkOurs, AdkTheirs),
    (LangChainOurs, LangChainTheirs),
]
"""Our adapter, and the framework's own store."""
