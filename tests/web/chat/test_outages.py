"""Redis fails while a model answers: the answer is told at once and stored once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
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
) -> AsyncIterator[StreamEvent]:
    """Yield the events of an answer during which Redis fails."""
    provider.hold()
    provider.mode = "hang"
    async with open_stream(http.client, "POST", "/api/chat", json=ASKED) as events:
        async for seen in events:
            yield seen
            if seen.event == "text":
                break
        with short_deadlines(memory):
            break_redis(server)
            provider.release()
            async for seen in events:
                yield seen


async def collect(events: AsyncIterator[StreamEvent], into: list[StreamEvent]) -> None:
    async for each in events:
        into += [each]


async def until_replayed(memory: Memory) -> None:
    async def is_replayed() -> bool:
        health = memory.health()
        return health.state == "closed" and health.backlog_message_count == 0

    await until(is_replayed)


@pytest.mark.parametrize("fallback", [True, False])
@pytest.mark.parametrize("break_redis", BREAKS)
async def test_an_answer_during_a_short_outage_is_told_at_once_and_stored_once(
    server: RedisServer, provider: Provider, break_redis: Break, fallback: bool
) -> None:
    async with connect(server, provider, fallback=fallback) as (memory, http):
        await read_events(http.client, "/api/chat", json=ASKED)
        seen: list[StreamEvent] = []
        async for each in answer_during_failure(memory, http, provider, server, break_redis):
            seen.append(each)
            if joined_text(seen) == TEXT and each.event == "text":
                restore(server)
        assert (joined_text(seen), notice_codes(seen)) == (TEXT, [])
        assert seen[-1].document == {"complete": True, "reason": "done", "seq": 4, "waiting_for": None}
        assert message_rows(await memory.session("s").messages()) == BOTH + BOTH


@pytest.mark.parametrize("fallback", [True, pytest.param(False, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("break_redis", BREAKS)
async def test_the_stream_breaks_off_in_a_long_outage_and_tells_the_end_later(
    server: RedisServer, provider: Provider, break_redis: Break, fallback: bool
) -> None:
    """The answer is stored as far as Redis had it, once, as a turn that is lost."""
    async with connect(server, provider, fallback=fallback, live_lease_s=0.3) as (memory, http):
        seen: list[StreamEvent] = []
        events = answer_during_failure(memory, http, provider, server, break_redis)
        with pytest.raises(httpx.RemoteProtocolError):
            await collect(events, seen)
        assert joined_text(seen) == TEXT
        restore(server)

        async def answers() -> bool:
            answer = await http.ask("GET", "/v1/sessions/s/state")
            return answer.status_code == 200 and not answer.json()["degraded"]

        await until(answers)
        headers = {"Last-Event-ID": seen[-1].id}
        rest = await read_events(http.client, "/api/chat", json=ASKED, headers=headers)
        assert joined_text(rest) == ""
        end = rest[-1].document
        assert (end["complete"], end["seq"]) in ((False, 2), (True, 2))
        stored = message_rows(await memory.session("s").messages())
        assert [role for role, _, _ in stored] == ["user", "assistant"]
        assert TEXT.startswith(stored[1][1])


async def test_confirmed_appends_continue_during_an_outage_with_notices(provider: Provider, tmp_path: Path) -> None:
    servers = Replicated(tmp_path)
    try:
        await servers.wait_until_ready()
        async with connect(servers.primary, provider, confirm=2, confirm_timeout_s=20) as (memory, http):
            await read_events(http.client, "/api/chat", json=ASKED)
            with short_deadlines(memory):
                servers.primary.stop_process()
                again = await read_events(http.client, "/api/chat", json=ASKED)
            assert (joined_text(again), notice_codes(again)) == (TEXT, ["unconfirmed", "degraded"])
            asked = [each["content"] for each in provider.bodies[-1]["messages"]]
            assert asked[1:] == [ASKED["message"], TEXT, ASKED["message"]]
            restore(servers.primary)
            await until_replayed(memory)
            assert message_rows(await memory.session("s").messages()) == BOTH + BOTH
    finally:
        servers.stop()
