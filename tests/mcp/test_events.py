"""The event store: a broken stream goes on in another process, nothing twice, nothing lost, for its session alone."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp import Client
from mcp.types import JSONRPCNotification, JSONRPCResponse
from support.commands import wait_for_line
from support.forks import Fork
from support.proxy import Proxy
from support.redis_server import RedisServer
from support.stored import read_namespace
from support.stores import PATIENCE, short_deadlines

from redismem import InvalidSettings, Memory, Settings
from redismem.mcp import EventStore, create_server
from redismem.mcp.events import _event_id, _parse_event_id

VERSION = "2025-11-25"
HEADERS = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": VERSION}
GO = {"role": "user", "content": "go"}
Event = tuple[str, Any]


@contextlib.asynccontextmanager
async def servers(
    redis_server: RedisServer, namespace: str
) -> AsyncIterator[tuple[httpx.AsyncClient, httpx.AsyncClient]]:
    """Two processes of a server that share a Redis: a client of each."""
    async with contextlib.AsyncExitStack() as stack:
        clients = []
        words = ("support.steps_server", redis_server.url, namespace)
        started = [Fork(*words, environment={}, stderr="ours") for _ in range(2)]
        for each in started:
            stack.enter_context(each)
            stack.callback(each.kill)
        for each in started:
            port = wait_for_line(each.stdout, "port").split()[1]
            client = httpx.AsyncClient(
                base_url=f"http://127.0.0.1:{port}", headers=HEADERS, trust_env=False, timeout=60
            )
            clients.append(await stack.enter_async_context(client))
        yield clients[0], clients[1]


async def begin_session(client: httpx.AsyncClient) -> dict[str, str]:
    """Begin a session, and return the headers of its requests."""
    about = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": about}
    answer = await client.post("/mcp", json=hello)
    headers = {"Mcp-Session-Id": answer.headers["mcp-session-id"]}
    await client.post("/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=headers)
    return headers


async def events_of(response: httpx.Response, count: int | None = None) -> list[Event]:
    """Return the events of a stream, each with its id: the first `count`, or all to the end of the stream."""
    events: list[Event] = []
    event_id = ""
    async for line in response.aiter_lines():
        name, _, value = line.partition(": ")
        if name == "id":
            event_id = value
        elif name == "data":
            events.append((event_id, json.loads(value) if value else None))
            if len(events) == count:
                break
    return events


async def walk(client: httpx.AsyncClient, headers: dict[str, str], count: int) -> list[Event]:
    """Call the tool, and leave the stream after the event that begins it and the first two steps."""
    params = {"name": "walk", "arguments": {"count": count}, "_meta": {"progressToken": "t"}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    async with client.stream("POST", "/mcp", json=body, headers=headers) as response:
        return await events_of(response, 3)


async def resume(client: httpx.AsyncClient, headers: dict[str, str], after: str) -> list[Event]:
    async with client.stream("GET", "/mcp", headers=headers | {"Last-Event-ID": after}) as response:
        return await events_of(response) if response.status_code == 200 else []


def steps(events: list[Event]) -> list[Any]:
    """Return the steps that were reported, then the result."""
    return [
        each["params"]["progress"] if "method" in each else each["result"]["content"][0]["text"] for _, each in events
    ]


async def test_a_broken_stream_goes_on_in_another_process(redis_server: RedisServer, namespace: str) -> None:
    async with (
        servers(redis_server, namespace) as (one, other),
        Memory.connect(redis_server.url, namespace=namespace, settings=Settings(**PATIENCE)) as memory,
    ):
        mine, theirs = await begin_session(one), await begin_session(other)
        begun, first, second = await walk(one, mine, 50)
        assert (begun[1], steps([first, second])) == (None, [0, 1])
        await walk(other, theirs, 120)  # a stream of the same name, in another session
        resumed = [
            asyncio.create_task(resume(client, mine, after[0]))
            for client, after in ((other, first), (one, second), (other, begun))
        ]
        await memory.session("go").append(GO, GO)
        for task, missed in zip(resumed, (1, 2, 0), strict=True):
            assert steps(await task) == [*range(missed, 52), "arrived"]
        # After the end of the stream, and with the id of an event of another session.
        answered = (await resume(other, mine, begun[0]))[-1]
        assert await resume(one, mine, answered[0]) == []
        assert steps(await resume(other, theirs, "1.1"))[-1] == "arrived"
        # Only the newest hundred are kept.
        assert steps(await resume(one, theirs, begun[0])) == [*range(23, 122), "arrived"]
        # An unknown session, and one that its client has ended.
        assert await resume(other, {"Mcp-Session-Id": "unknown"}, first[0]) == []
        assert len((await memory.records("mcp-events:")).records) == 2
        assert (await one.delete("/mcp", headers=mine)).status_code == 200
        assert await resume(other, mine, first[0]) == []
        assert len((await memory.records("mcp-events:")).records) == 1


def note(number: int, text: str = "") -> JSONRPCNotification:
    return JSONRPCNotification(jsonrpc="2.0", method="notifications/progress", params={"n": number, "text": text})


class Served:
    """A session whose events a test stores itself, as the SDK's transport does."""

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._orders: asyncio.Queue[Any] = asyncio.Queue()
        self._app = store.wrap(self._answer)

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"mcp-session-id", scope["session"])]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        scope["result"] = await scope["act"](self._store)

    async def act(self, function: Any, session: bytes = b"", method: str = "POST") -> Any:
        """Run a function of the store within a request. Without a session, the request opens the session `s`."""

        async def send(message: Any) -> None: ...

        scope: Any = {"type": "http", "method": method, "act": function, "session": session or b"s"}
        scope["headers"] = [(b"mcp-session-id", session)] if session else []
        await asyncio.create_task(self._app(scope, send, send))  # type: ignore[arg-type]
        return scope["result"]


async def replayed(store: EventStore, after: str) -> list[Any]:
    found: list[Any] = []

    async def keep(event: Any) -> None:
        found.append(event.message.params["n"] if hasattr(event.message, "params") else "answer")

    await store.replay_events_after(after, keep)
    return found


async def test_the_events_of_a_session_are_bounded_in_number_size_and_time(memory: Memory) -> None:
    store = EventStore(memory, max_events=20, max_bytes=3_000, ttl_s=60)
    answer = JSONRPCResponse(jsonrpc="2.0", id=1, result={})

    async def fill(store: EventStore) -> None:
        for number in range(1, 31):
            await store.store_event("1", note(number))
        await store.store_event("2", note(31, "x" * 2_000))
        await store.store_event("2", note(32, "x" * 4_000))  # larger than all that may be kept
        await store.store_event("1", answer)

    served = Served(store)
    await served.act(fill)
    (entry,) = (await memory.records("mcp-events:")).records
    record = memory.record(entry.id, ttl_s=60)
    kept = await record.page(limit=100)
    assert sum(len(found.value or b"") for found in kept.found) <= 3_000
    assert await served.act(lambda store: replayed(store, "0.1"), b"s") == ["answer"]


async def test_what_was_cleared_or_forgotten_is_in_no_event(memory: Memory, raw: Any, namespace: str) -> None:
    """Other events go too, because any may quote it; later ones can be resumed, also in another process."""
    store = EventStore(memory)
    served = Served(store)
    server = create_server(memory, events=store)
    answer = JSONRPCResponse(jsonrpc="2.0", id=1, result={})

    async def clear_session() -> None:
        async with Client(server) as client:
            await client.call_tool("clear_session", {"session_id": "s"})

    async def forget() -> None:
        await memory.forget(prefix="s")

    for at, remove in enumerate((clear_session, forget, store.clear)):
        session = b"s" if at else b""
        await memory.session("s").append({"role": "user", "content": "CANARY"})
        await served.act(lambda store: store.store_event("1", note(1, "CANARY")), session)
        assert "CANARY" in repr(await read_namespace(raw, namespace))
        await memory.session("s").clear() if at == 2 else None
        await remove()
        assert "CANARY" not in repr(await read_namespace(raw, namespace))
        await served.act(lambda store: store.store_event("1", answer), b"s")
        assert await served.act(lambda store: replayed(store, "0.1"), b"s") == ["answer"]
        (entry,) = (await memory.records("mcp-events:")).records
        assert await memory.record(entry.id).get(b"caller") != [None], "another process can tell whose it is"
        await store.clear()


@pytest.mark.parametrize("limits", [{"max_events": 0}, {"max_bytes": 0}, {"ttl_s": 0}])
async def test_a_mistake_is_refused_at_once(memory: Memory, limits: Any) -> None:
    with pytest.raises(InvalidSettings, match="must be positive"):
        EventStore(memory, **limits)
    with pytest.raises(InvalidSettings, match=r"EventStore\.wrap"):
        await EventStore(memory).store_event("1", note(1))
    with pytest.raises(InvalidSettings, match="memory must be a"):
        EventStore("redis://")  # type: ignore[arg-type]


async def test_while_redis_is_away_events_are_sent_and_not_stored(proxy: Proxy, namespace: str, caplog: Any) -> None:
    async with Memory.connect(proxy.url, namespace=namespace, settings=Settings(**PATIENCE)) as memory:
        await memory.session("s").append(GO)
        await proxy.refuse()
        store = EventStore(memory)
        with short_deadlines(memory):
            event_id = await Served(store).act(lambda store: store.store_event("1", note(1, "canary")))
        assert event_id == "1.1"
    assert "could not be stored, so an event cannot be sent again: StoreUnavailable" in caplog.text
    assert "canary" not in caplog.text


@given(st.integers(0, 2**63), st.text(st.characters(exclude_categories=["Cs"])))
def test_an_event_id_is_one_line_and_comes_back(number: int, stream_id: str) -> None:
    event_id = _event_id(number, stream_id)
    assert len(event_id.splitlines()) == 1
    assert event_id.isascii()
    assert _parse_event_id(event_id) == (number, stream_id)


@given(st.text(st.characters(max_codepoint=255)))
def test_any_header_is_an_event_id_or_none(header: str) -> None:
    number, _ = _parse_event_id(header)
    assert number is None or number >= 0
