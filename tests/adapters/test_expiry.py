"""The `ttl` of each adapter counts from the last use: a read renews it in its one round trip, once it has aged."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import redis.asyncio
from agent_framework import AgentSession
from agent_framework import Message as FrameworkMessage
from langchain_core.messages import HumanMessage
from llama_index.core.base.llms.types import ChatMessage
from support.clock import T0, Clock
from support.redis_server import RedisServer
from support.waiting import SOON_S

from redismem import Memory, Settings, blocking
from redismem.adapters import agent_framework, langchain, llama_index, openai_agents

TTL_S = 1600
Use = Callable[[Any], Awaitable[Any]]
Case = tuple[str, Callable[..., Any], Use, Use]

ITEM: Any = {"role": "user", "content": "kept"}
CASES: dict[str, Case] = {
    "OpenAI Agents": (
        "agents:session:a",
        lambda **options: openai_agents.Session("a", **options),
        lambda session: session.add_items([ITEM]),
        lambda session: session.get_items(),
    ),
    "LlamaIndex": (
        "llama_index:a",
        llama_index.ChatStore,
        lambda store: store.add_message("a", ChatMessage("kept")),
        lambda store: store.get_messages("a"),
    ),
    "Agent Framework": (
        "agent_framework:a",
        agent_framework.HistoryProvider,
        lambda history: history.save_messages("a", [FrameworkMessage("user", ["kept"])]),
        lambda history: history.get_messages("a"),
    ),
    "Agent Framework's sessions": (
        "agent_session:a",
        agent_framework.SessionStore,
        lambda sessions: sessions.set("a", AgentSession(session_id="a")),
        lambda sessions: sessions.get("a"),
    ),
    "LangChain": (
        "langchain:a",
        lambda **options: langchain.ChatMessageHistory("a", **options),
        lambda history: history.aadd_messages([HumanMessage("kept")]),
        lambda history: history.aget_messages(),
    ),
}


@pytest.mark.parametrize("name", CASES)
async def test_a_read_is_a_use(
    name: str, redis_server: RedisServer, namespace: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    session_id, make, write, read = CASES[name]
    settings = Settings(shards=1)
    async with Memory.connect(redis_server.url, namespace=namespace, settings=settings, clock=clock) as memory:
        sent: list[int] = []
        run = memory.store.transport.run

        def count(commands: Any, *options: Any) -> Any:
            sent.append(len(commands))
            return run(commands, *options)

        async def expires_ms() -> int:
            return (await memory.session(session_id).info()).expires_ms

        await write(make(memory=memory, ttl=TTL_S))
        begun_ms = await expires_ms()
        monkeypatch.setattr(memory.store.transport, "run", count)
        for after_ms, renewed_ms in ((99_999, 0), (100_000, 100_000), (1_699_000, 1_699_000)):
            clock.now_ms = T0 + after_ms
            sent.clear()
            assert await read(make(memory=memory, ttl=TTL_S))
            assert len(sent) == 1, "the touch follows, and delays no reader"
            await memory.store.side_work.end(SOON_S)
            assert len(sent) == 1 + (renewed_ms > 0)
            assert await expires_ms() == begun_ms + renewed_ms
        clock.now_ms += 1_500_000
        await read(make(memory=memory))
        await memory.store.side_work.end(SOON_S)
        assert await expires_ms() == begun_ms + 1_699_000, "a handle for ten years renews nothing"


@pytest.mark.parametrize("is_blocking", [False, True])
async def test_the_age_is_that_by_the_servers_clock(
    redis_server: RedisServer, namespace: str, is_blocking: bool
) -> None:
    async with Memory.connect(redis_server.url, namespace=namespace, settings=Settings(shards=1)) as memory:
        key = memory.store.keys.session("langchain:a").state
        await langchain.ChatMessageHistory("a", memory, ttl=TTL_S).aadd_messages([HumanMessage("kept")])
        async with redis.asyncio.Redis(port=redis_server.port) as raw:
            await raw.pexpire(key, TTL_S * 900)
            if is_blocking:
                with blocking.Memory.connect(
                    redis_server.url, namespace=namespace, settings=Settings(shards=1)
                ) as other:
                    assert langchain.ChatMessageHistory("a", other, ttl=TTL_S).messages
            else:
                assert await langchain.ChatMessageHistory("a", memory, ttl=TTL_S).aget_messages()
                await memory.store.side_work.end(SOON_S)
            assert await raw.pttl(key) > TTL_S * 990
