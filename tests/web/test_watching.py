"""Streams of changes: they show changes by any server, cut off slow clients, and scale to hundreds."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import pytest
from support.checks import until
from support.http_service import RunningService, numbered_message, open_stream, serve_memory
from support.proxy import Proxy
from support.stores import LONG_DEADLINES, short_deadlines

from redismem import Memory, Settings
from redismem.inspection.watching import changes_of
from redismem.web import watching
from redismem.web.api import streams
from redismem.web.service import Limits

EVENTS = "/v1/sessions/s/events"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching.Watch.__init__, "__defaults__", (0.02,))


async def next_with(events: Any, **members: Any) -> Any:
    """Return the next event whose document has these members. Two polls may report one change."""
    async for seen in events:
        if members.items() <= seen.document.items():
            return seen
    raise AssertionError(f"the stream ended before {members}")


async def test_a_stream_shows_changes_by_another_server(store: Any, namespace: str) -> None:
    async with (
        store.memory(namespace) as here,
        store.memory(namespace) as there,
        serve_memory(here) as http,
        serve_memory(there) as other,
        open_stream(http.client, "GET", EVENTS) as events,
    ):
        first = await anext(events)
        assert (first.event, first.document) == ("changed", {"session_id": "s", "exists": False})
        await other.ask("POST", "/v1/sessions/s/messages", json=[numbered_message(1), numbered_message(2)])
        seen = await next_with(events, exists=True, total_messages=2)
        assert seen.document["waiting_for_param"] is None
        await other.ask("PATCH", "/v1/sessions/s/state", json={"waiting_for_param": "size", "params": {"x": "canary"}})
        seen = await next_with(events, waiting_for_param="size")
        assert seen.document["params_keys"] == ["x"]
        assert "canary" not in json.dumps(seen.document)
        await other.ask("PATCH", "/v1/sessions/s/state", json={"params": {"x": "other"}})
        await next_with(events, params_keys=["x"])
        policy = {"keep_whole": False, "idle_timeout_s": 900.0, "exempt": True, "zone": None}
        for rules in (
            policy,
            policy | {"idle_timeout_s": 901.5},
            policy | {"idle_timeout_s": None, "exempt": False, "zone": None},
        ):
            await other.ask("PUT", "/v1/sessions/s/policy", json=rules)
            await next_with(events, policy=rules)
        await other.ask("DELETE", "/v1/sessions/s")
        await next_with(events, exists=False)


@pytest.mark.parametrize(("method", "path"), [("GET", EVENTS), ("POST", "/api/chat")])
async def test_a_proxy_is_told_to_pass_a_stream_on_at_once(http: RunningService, method: str, path: str) -> None:
    """Without this header nginx collects the answer and sends it in one piece."""
    body = {"message": "hello"} if method == "POST" else None
    async with http.client.stream(method, path, json=body) as answer:
        assert answer.headers["x-accel-buffering"] == "no"


async def test_a_stream_shows_a_summary_that_swaps_in(store: Any, namespace: str) -> None:
    settings = Settings(threshold=4, recent_limit=2, tick_s=0.05)
    async with (
        store.memory(namespace, settings, workers=True) as memory,
        serve_memory(memory) as http,
        open_stream(http.client, "GET", EVENTS) as events,
    ):
        await http.ask("POST", "/v1/sessions/s/messages", json=[numbered_message(number) for number in range(8)])
        seen = await next_with(events, summaries_count=1)
        assert seen.document["summary_version"] != ""


async def test_only_changed_sessions_are_returned(memory: Memory) -> None:
    session = memory.session("s")
    await session.append(numbered_message(1))
    seen = await changes_of(memory.store, {"s": None, "none": None})
    assert seen["s"].info is not None
    assert seen["none"].info is None
    assert await changes_of(memory.store, dict(seen)) == {}
    await session.touch()
    assert await changes_of(memory.store, dict(seen)) == {}
    await session.merge({"x": 1})
    assert set(await changes_of(memory.store, dict(seen))) == {"s"}
    assert await changes_of(memory.store, {}) == {}


async def test_large_sessions_are_polled_in_smaller_groups_and_less_often(memory: Memory) -> None:
    """375 idle streams on sessions with 100 KB of state would otherwise read 75 MB per second."""
    await memory.session("large").merge({f"x{number}": "y" * 60_000 for number in range(4)})
    await memory.session("small").merge({"x": 1})
    large, small = (await changes_of(memory.store, {"large": None, "small": None})).values()
    assert 1_000 > small.stored_bytes > 10
    assert 241_000 > large.stored_bytes > 240_000
    assert watching.pause_s({"a": small, "b": None}, 0.5) == 0.5
    assert watching.pause_s({str(number): large for number in range(375)}, 0.5) == 375 * large.stored_bytes / (4 << 20)
    assert watching.batches({}) == []
    assert [len(group) for group in watching.batches({str(number): small for number in range(120)})] == [50, 50, 20]
    groups = watching.batches({str(number): large for number in range(20)})
    assert [len(group) for group in groups] == [5, 5, 5, 5]
    assert [session_id for group in groups for session_id in group] == [str(number) for number in range(20)]


async def test_a_stream_reports_an_outage_and_the_recovery(proxy: Proxy, namespace: str) -> None:
    async with (
        Memory.connect(proxy.url, namespace=namespace, settings=LONG_DEADLINES) as memory,
        serve_memory(memory) as http,
        open_stream(http.client, "GET", EVENTS) as events,
    ):
        assert (await anext(events)).event == "changed"
        with short_deadlines(memory):
            await proxy.refuse()
            while (await anext(events)).event != "degraded":
                pass
            await proxy.accept_again()
        while (await anext(events)).event != "changed":
            pass


async def test_a_defect_in_a_poll_does_not_silence_the_streams(
    http: RunningService, memory: Memory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: Any) -> Any:
        raise RuntimeError("canary")

    async with open_stream(http.client, "GET", EVENTS) as events:
        await anext(events)
        with monkeypatch.context() as patch:
            patch.setattr(watching, "changes_of", broken)
            assert (await anext(events)).event == "degraded"
        await memory.session("s").append(numbered_message(1))
        await next_with(events, exists=True, total_messages=1)
    (record,) = [record for record in caplog.records if getattr(record, "op", "") == "watch"]
    assert (record.levelname, record.getMessage()) == ("ERROR", "cannot poll the watched sessions: RuntimeError")


async def test_a_stream_ends_with_the_server_and_frees_its_place(memory: Memory) -> None:
    async with serve_memory(memory) as http:
        async with open_stream(http.client, "GET", EVENTS) as events:
            await anext(events)
            assert http.service.streams.streams_count == 1
        await until(lambda: http.service.streams.streams_count == 0)
        async with open_stream(http.client, "GET", EVENTS) as events:
            http.stop_event.set()
            assert [seen async for seen in events][-1].event == "end"


async def test_the_number_of_streams_is_limited(memory: Memory) -> None:
    limits = Limits(request_s=60, streams_count=1)
    async with serve_memory(memory, limits=limits) as http, open_stream(http.client, "GET", EVENTS) as events:
        await anext(events)
        refused = await http.ask("GET", EVENTS)
        assert (refused.status_code, refused.json()["code"]) == (503, "overloaded")


async def test_a_quiet_stream_sends_heartbeats(http: RunningService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "HEARTBEAT_S", 0.05)
    async with http.client.stream("GET", EVENTS) as answer:
        async for line in answer.aiter_lines():
            if line == ": still here":
                break


async def test_a_client_that_reads_nothing_is_cut_off(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server buffers only the newest look and what fits in the connection."""

    async def flood() -> Any:
        while True:
            yield b": " + b"x" * 100_000 + b"\n\n"

    async with serve_memory(memory, limits=Limits(request_s=60, stream_write_s=0.3)) as http:
        monkeypatch.setattr(watching.Watch, "frames", lambda *_: flood())
        url = http.client.base_url
        reader, writer = await asyncio.open_connection(url.host, url.port, limit=1_000)
        writer.write(f"GET {EVENTS} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        await writer.drain()
        await until(lambda: http.service.streams.streams_count == 1)
        await until(lambda: http.service.streams.streams_count == 0)
        with contextlib.suppress(ConnectionError):
            while await reader.read(100_000):
                pass  # the data sent before the cut
        writer.close()
        assert (await http.ask("GET", "/livez")).status_code == 200


async def test_200_streams_each_show_their_change(memory: Memory) -> None:
    """One poll covers all of them, and other requests are answered meanwhile."""
    async with serve_memory(memory) as http, contextlib.AsyncExitStack() as stack:
        url = http.client.base_url
        readers = []
        for number in range(200):
            reader, writer = await asyncio.open_connection(url.host, url.port)
            stack.callback(writer.close)
            writer.write(f"GET /v1/sessions/s-{number}/events HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            readers.append(reader)
        for reader in readers:
            await reader.readuntil(b'"exists":false}')
        for number in range(0, 200, 50):
            answer = await http.ask("POST", f"/v1/sessions/s-{number}/messages", json=numbered_message(1))
            assert answer.status_code == 201
            await readers[number].readuntil(b'"exists":true')


async def test_a_failure_in_a_stream_ends_only_that_stream(
    http: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken() -> Any:
        yield b": begun\n\n"
        raise RuntimeError("canary")

    monkeypatch.setattr(watching.Watch, "frames", lambda *_: broken())
    with contextlib.suppress(Exception):
        await http.ask("GET", EVENTS)
    assert http.service.streams.streams_count == 0
    assert (await http.ask("GET", "/livez")).status_code == 200
