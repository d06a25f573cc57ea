"""The server over HTTP with two keys: their rate, their shares of streams and sessions, and a revoked one."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from mcp.server.mcpserver import Context, MCPServer
from support.checks import until
from support.redis_server import RedisServer
from support.stores import PATIENCE

from redismem import Memory, Settings
from redismem.mcp import http as mcp_http
from redismem.web.access import Access, new_key
from redismem.web.server import listen
from redismem.web.service import Limits, Service

PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
BEGIN = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}},
}
ACCEPT = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25"}


@dataclass(slots=True)
class Served:
    """A running server with the keys `a` and `b`, and a client of each."""

    service: Service
    server: MCPServer[Any]
    a: httpx.AsyncClient
    b: httpx.AsyncClient


Serve = Callable[..., contextlib.AbstractAsyncContextManager[Served]]


@pytest.fixture
def serve(redis_server: RedisServer, namespace: str) -> Serve:
    @contextlib.asynccontextmanager
    async def served(limits: Limits, *, resumable: bool = True) -> AsyncIterator[Served]:
        keys = {name: new_key(name, namespace, ("read", "write")) for name in "ab"}
        access = Access.of("\n".join(line for _, line in keys.values()))
        stop = asyncio.Event()
        async with contextlib.AsyncExitStack() as stack:
            connecting = Memory.connect(redis_server.url, namespace=namespace, settings=Settings(**PATIENCE))
            service = Service({namespace: await stack.enter_async_context(connecting)}, access, limits)
            made = mcp_http.create_app(service, frozenset(), "127.0.0.1", resumable=resumable)
            listening = stack.enter_context(listen("127.0.0.1", 0))
            serving = asyncio.create_task(mcp_http.serve_http(service, made, listening, stop, 1))
            url = f"http://127.0.0.1:{listening.getsockname()[1]}"
            clients = [
                httpx.AsyncClient(
                    base_url=url, headers=ACCEPT | {"Authorization": f"Bearer {key}"}, trust_env=False, timeout=60
                )
                for key, _ in keys.values()
            ]
            yield Served(service, made[0], *[await stack.enter_async_context(client) for client in clients])
            stop.set()
            await serving

    return served


async def begin(client: httpx.AsyncClient) -> dict[str, str]:
    answer = await client.post(mcp_http.PATH, json=BEGIN)
    assert answer.status_code == 200, answer.text
    return {"Mcp-Session-Id": answer.headers["mcp-session-id"]}


def follow(client: httpx.AsyncClient, session: dict[str, str]) -> Any:
    """Ask for the rest of a stream that never ends."""
    return client.stream("GET", mcp_http.PATH, headers=session | {"Last-Event-ID": "0.99"})


async def test_the_rate_of_a_key_is_limited(serve: Serve) -> None:
    async with serve(Limits(rate_per_s=0.01, rate_burst_count=2), resumable=False) as served:
        assert [(await served.a.post(mcp_http.PATH, json=PING)).status_code for _ in range(3)] == [200, 200, 429]
        refused = await served.a.post(mcp_http.PATH, json=PING)
        assert (refused.json()["code"], int(refused.headers["retry-after"]) > 1) == ("too_many_requests", True)
        assert (await served.b.post(mcp_http.PATH, json=PING)).status_code == 200


async def test_a_key_leaves_streams_to_others_and_loses_its_own_when_it_is_revoked(serve: Serve, caplog: Any) -> None:
    async with serve(Limits(streams_count=4)) as served, contextlib.AsyncExitStack() as stack:
        mine, theirs = await begin(served.a), await begin(served.b)
        streams = [await stack.enter_async_context(follow(served.a, mine)) for _ in range(3)]
        assert [each.status_code for each in streams] == [200, 200, 429]
        assert streams[2].headers["retry-after"] == "1"
        other = await stack.enter_async_context(follow(served.b, theirs))
        assert other.status_code == 200
        access = served.service.access
        served.service.access = Access([each for each in access._callers if each.name == "b"])
        served.service.streams.revoke(served.service.access)
        async with asyncio.timeout(5):
            for stream in streams[:2]:
                await stream.aread()
        assert served.service.streams.streams_count == 1
        assert (await served.a.post(mcp_http.PATH, json=PING)).status_code == 401
    await until(lambda: served.service.streams.streams_count == 0)
    assert [each for each in caplog.records if each.levelname in ("ERROR", "WARNING")] == []


async def test_a_call_of_a_revoked_key_is_refused(serve: Serve) -> None:
    begun = asyncio.Event()
    async with serve(Limits(), resumable=False) as served:

        @served.server.tool()
        async def wait() -> None:
            begun.set()
            await asyncio.Event().wait()

        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "wait", "arguments": {}}}
        asked = asyncio.create_task(served.a.post(mcp_http.PATH, json=call))
        await begun.wait()
        served.service.streams.revoke(Access([]))
        assert (await asked).status_code == 401


async def test_a_key_leaves_sessions_to_others(serve: Serve) -> None:
    """A session that its client has ended makes room for the next; a request that begins none needs no place."""
    async with serve(Limits(streams_count=1)) as served:
        sessions = [await begin(served.a) for _ in range(5)]
        assert (await served.a.post(mcp_http.PATH, json=BEGIN)).status_code == 429
        assert (await served.a.post(mcp_http.PATH, json=PING, headers=sessions[0])).status_code == 200
        await begin(served.b)
        assert (await served.a.delete(mcp_http.PATH, headers=sessions[0])).status_code == 200
        for _ in range(3):
            assert (await served.a.post(mcp_http.PATH, json=PING)).status_code == 400
        await begin(served.a)
        assert (await served.a.post(mcp_http.PATH, json=BEGIN)).status_code == 429


async def read_stream(
    client: httpx.AsyncClient, session: dict[str, str], call: Any, last: str
) -> tuple[str, list[Any]]:
    """Make a call, or resume its stream after the event `last`. Return the last event's id, and the messages."""
    found: list[Any] = []
    headers = session | ({"Last-Event-ID": last} if last else {})
    async with client.stream(
        "GET" if last else "POST", mcp_http.PATH, headers=headers, **({} if last else {"json": call})
    ) as stream:
        async for line in stream.aiter_lines():
            name, _, value = line.partition(": ")
            last = value if name == "id" else last
            found += [json.loads(value)] if name == "data" and value else []
    return last, found


async def test_a_tool_that_closes_its_stream_twice_severs_it_once(serve: Serve) -> None:
    resumed = asyncio.Event()
    async with serve(Limits()) as served:

        @served.server.tool()
        async def poll(ctx: Context[Any, Any]) -> str:
            await ctx.close_sse_stream()
            await ctx.report_progress(1)
            await resumed.wait()
            await ctx.close_sse_stream()
            await ctx.report_progress(2)
            return "done"

        session = await begin(served.a)
        params = {"name": "poll", "arguments": {}, "_meta": {"progressToken": "t"}}
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        last, found = await read_stream(served.a, session, call, "")
        rest = asyncio.create_task(read_stream(served.a, session, call, last))
        await until(lambda: served.service.streams.streams_count == 1)
        resumed.set()
        messages = [*found, *(await rest)[1]]
        assert [each["params"]["progress"] for each in messages[:-1]] == [1, 2]
        assert messages[-1]["result"]["content"][0]["text"] == "done"
