"""The chat when Redis goes away while a model answers: what people have seen is kept, once, or they are told."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.chats import ASKED, chatting, stored
from support.checks import until
from support.http_service import Served
from support.provider_answers import TEXT
from support.provider_server import ProviderServer as Provider
from support.redis_server import RedisServer
from support.replicated import Replicated
from support.sse import Seen, heard, listening, notices_of, text_of

from redismem import Memory, Settings

HASTY: dict[str, Any] = {"deadline_s": 2, "reply_timeout_s": 1}
BOTH = [("user", ASKED["message"], None), ("assistant", TEXT, None)]
Break = Callable[[RedisServer], None]
BREAKS = [RedisServer.kill, RedisServer.stop_process]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    always = ("--appendfsync", "always")  # what it has answered outlives it
    server = RedisServer(tmp_path / "redis", aof=True, options=always).start()
    yield server
    server.stop()


def mend(server: RedisServer) -> None:
    if server.is_stopped:
        server.go_on()
    else:
        server.start()


@asynccontextmanager
async def connected(server: RedisServer, provider: Provider, **changed: Any) -> AsyncIterator[tuple[Memory, Served]]:
    """A memory that goes on without Redis, unless `changed` says otherwise, and a service of it."""
    settings = Settings(**{**HASTY, "fallback": True, **changed})
    async with (
        Memory.connect(server.url, namespace="outages", settings=settings) as memory,
        chatting(memory, provider) as http,
    ):
        yield memory, http


async def broken_off(http: Served, provider: Provider, server: RedisServer, ending: Break) -> list[Seen]:
    """All events of an answer in the middle of which Redis goes away."""
    provider.hold()
    provider.mode = "hang"
    async with listening(http.client, "POST", "/api/chat", json=ASKED) as events:
        seen: list[Seen] = []
        while not seen or seen[-1].event != "text":
            seen.append(await anext(events))
        ending(server)
        provider.release()
        return seen + [each async for each in events]


async def until_replayed(memory: Memory) -> None:
    async def replayed() -> bool:
        health = memory.health()
        return health.state == "closed" and health.backlog_message_count == 0

    await until(replayed)


@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize("ending", BREAKS)
async def test_an_answer_that_redis_did_not_live_to_take_is_kept_once(
    server: RedisServer, provider: Provider, ending: Break, is_new: bool
) -> None:
    async with connected(server, provider) as (memory, http):
        before = [] if is_new else BOTH
        if not is_new:
            await heard(http.client, "/api/chat", json=ASKED)
        events = await broken_off(http, provider, server, ending)
        assert (text_of(events), notices_of(events)) == (TEXT, ["degraded"])
        end = {"complete": True, "reason": "done", "seq": len(before) + 2, "waiting_for": None}
        assert events[-1].document == end
        mend(server)
        await until_replayed(memory)
        assert stored(await memory.session("s").messages()) == before + BOTH


@pytest.mark.parametrize("ending", BREAKS)
async def test_without_the_fallback_it_is_said_that_the_answer_is_not_kept(
    server: RedisServer, provider: Provider, ending: Break
) -> None:
    async with connected(server, provider, fallback=False) as (_, http):
        events = await broken_off(http, provider, server, ending)
        assert (text_of(events), notices_of(events)) == (TEXT, ["not_stored"])
        assert events[-1].document["seq"] is None
        mend(server)
    patient = Settings(deadline_s=60, reply_timeout_s=20)
    async with Memory.connect(server.url, namespace="outages", settings=patient) as memory:
        found = stored(await memory.session("s").messages())
        assert found in ([BOTH[:1]] if ending is RedisServer.kill else [BOTH[:1], BOTH]), "it may have been on its way"


async def test_an_answer_that_this_process_has_no_room_for_is_said_not_to_be_kept(
    server: RedisServer, provider: Provider
) -> None:
    provider.pieces = ["Your ", "parcel ", "is " * 1_000]
    async with connected(server, provider, max_backlog_bytes=1024) as (memory, http):
        events = await broken_off(http, provider, server, RedisServer.kill)
        assert notices_of(events) == ["not_stored"]
        assert events[-1].document["seq"] is None
        mend(server)
        await until_replayed(memory)
        assert stored(await memory.session("s").messages()) == BOTH[:1]


async def test_what_replicas_were_to_confirm_is_kept_in_an_outage_and_said(provider: Provider, tmp_path: Path) -> None:
    servers = Replicated(tmp_path)
    try:
        await servers.ready()
        async with connected(servers.primary, provider, confirm=2, confirm_timeout_s=1) as (memory, http):
            events = await broken_off(http, provider, servers.primary, RedisServer.stop_process)
            assert (text_of(events), notices_of(events)) == (TEXT, ["unconfirmed", "degraded"])
            assert events[-1].document["seq"] == 2
            again = await heard(http.client, "/api/chat", json=ASKED)
            assert (text_of(again), notices_of(again)) == (TEXT, ["unconfirmed", "degraded"])
            asked = [each["content"] for each in provider.bodies[-1]["messages"]]
            assert asked[1:] == [ASKED["message"], TEXT, ASKED["message"]]
            mend(servers.primary)
            await until_replayed(memory)
            assert stored(await memory.session("s").messages()) == BOTH + BOTH
    finally:
        servers.stop()
