"""Redis fails while a model answers: the answer is stored once, or a notice says that it is not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.checks import until
from support.http_service import (
    ASKED,
    RunningService,
    StreamEvent,
    joined_text,
    message_rows,
    notice_codes,
    open_stream,
    read_events,
    serve_chat,
)
from support.provider_answers import TEXT
from support.provider_server import ProviderServer as Provider
from support.redis_server import RedisServer
from support.replicated import Replicated
from support.stores import LONG_DEADLINES, short_deadlines

from redismem import Memory

BOTH = [("user", ASKED["message"], None), ("assistant", TEXT, None)]
Break = Callable[[RedisServer], None]
BREAKS = [RedisServer.kill, RedisServer.stop_process]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    unsynced = ("--appendfsync", "no")  # acknowledged writes survive a kill, and wait for no disk
    server = RedisServer(tmp_path / "redis", aof=True, options=unsynced).start()
    yield server
    server.stop()


def restore(server: RedisServer) -> None:
    if server.is_stopped:
        server.go_on()
    else:
        server.start()


@asynccontextmanager
async def connect(
    server: RedisServer, provider: Provider, **changed: Any
) -> AsyncIterator[tuple[Memory, RunningService]]:
    """Connect a memory with the fallback on, unless `changed` turns it off, and start a service on it."""
    settings = LONG_DEADLINES.model_copy(update={"fallback": True, **changed})
    async with (
        Memory.connect(server.url, namespace="outages", settings=settings) as memory,
        serve_chat(memory, provider) as http,
    ):
        yield memory, http


async def answer_during_failure(
    memory: Memory, http: RunningService, provider: Provider, server: RedisServer, break_redis: Break
) -> list[StreamEvent]:
    """Return all events of an answer during which Redis fails."""
    provider.hold()
    provider.mode = "hang"
    async with open_stream(http.client, "POST", "/api/chat", json=ASKED) as events:
        seen: list[StreamEvent] = []
        while not seen or seen[-1].event != "text":
            seen.append(await anext(events))
        with short_deadlines(memory):
            break_redis(server)
            provider.release()
            return seen + [each async for each in events]


async def until_replayed(memory: Memory) -> None:
    async def is_replayed() -> bool:
        health = memory.health()
        return health.state == "closed" and health.backlog_message_count == 0

    await until(is_replayed)


@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize("break_redis", BREAKS)
async def test_an_answer_that_ends_during_an_outage_is_stored_once(
    server: RedisServer, provider: Provider, break_redis: Break, is_new: bool
) -> None:
    async with connect(server, provider) as (memory, http):
        before = [] if is_new else BOTH
        if not is_new:
            await read_events(http.client, "/api/chat", json=ASKED)
        events = await answer_during_failure(memory, http, provider, server, break_redis)
        assert (joined_text(events), notice_codes(events)) == (TEXT, ["degraded"])
        end = {"complete": True, "reason": "done", "seq": len(before) + 2, "waiting_for": None}
        assert events[-1].document == end
        restore(server)
        await until_replayed(memory)
        assert message_rows(await memory.session("s").messages()) == before + BOTH


@pytest.mark.parametrize("break_redis", BREAKS)
async def test_without_the_fallback_a_notice_says_that_the_answer_is_not_stored(
    server: RedisServer, provider: Provider, break_redis: Break
) -> None:
    async with connect(server, provider, fallback=False) as (memory, http):
        events = await answer_during_failure(memory, http, provider, server, break_redis)
        assert (joined_text(events), notice_codes(events)) == (TEXT, ["not_stored"])
        assert events[-1].document["seq"] is None
        restore(server)
    async with Memory.connect(server.url, namespace="outages", settings=LONG_DEADLINES) as memory:
        found = message_rows(await memory.session("s").messages())
        # A stopped server may still run an append that was already sent.
        assert found in ([BOTH[:1]] if break_redis is RedisServer.kill else [BOTH[:1], BOTH])


async def test_a_notice_says_that_the_backlog_has_no_room_for_the_answer(
    server: RedisServer, provider: Provider
) -> None:
    provider.pieces = ["Your ", "parcel ", "is " * 1_000]
    async with connect(server, provider, max_backlog_bytes=1024) as (memory, http):
        events = await answer_during_failure(memory, http, provider, server, RedisServer.kill)
        assert notice_codes(events) == ["not_stored"]
        assert events[-1].document["seq"] is None
        restore(server)
        await until_replayed(memory)
        assert message_rows(await memory.session("s").messages()) == BOTH[:1]


async def test_confirmed_appends_continue_during_an_outage_with_notices(provider: Provider, tmp_path: Path) -> None:
    servers = Replicated(tmp_path)
    try:
        await servers.wait_until_ready()
        async with connect(servers.primary, provider, confirm=2, confirm_timeout_s=20) as (memory, http):
            events = await answer_during_failure(memory, http, provider, servers.primary, RedisServer.stop_process)
            assert (joined_text(events), notice_codes(events)) == (TEXT, ["unconfirmed", "degraded"])
            assert events[-1].document["seq"] == 2
            with short_deadlines(memory):
                again = await read_events(http.client, "/api/chat", json=ASKED)
            assert (joined_text(again), notice_codes(again)) == (TEXT, ["unconfirmed", "degraded"])
            asked = [each["content"] for each in provider.bodies[-1]["messages"]]
            assert asked[1:] == [ASKED["message"], TEXT, ASKED["message"]]
            restore(servers.primary)
            await until_replayed(memory)
            assert message_rows(await memory.session("s").messages()) == BOTH + BOTH
    finally:
        servers.stop()
