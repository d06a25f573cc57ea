"""Streams and answers: no key takes the places of the others, and a revoked key loses its streams."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.checks import until
from support.http_service import ASKED, RunningService, open_stream, read_events, run_service
from support.provider_server import ProviderServer

from redismem.models.streaming import open_streaming
from redismem.web import watching
from redismem.web.access import Access, Caller, new_key
from redismem.web.api import streams
from redismem.web.chat.chat import Chat
from redismem.web.http.problems import Problem
from redismem.web.open_streams import OpenStream, OpenStreams, StreamKind
from redismem.web.service import Limits, Service

EVENTS = "/v1/sessions/s/events"
CALLERS = [Caller(f"{tenant}-{number}", tenant, frozenset()) for tenant in ("shop", "bank") for number in range(3)]
ACCESS = Access(CALLERS)
KINDS = st.sampled_from(StreamKind)


def take_all(places: OpenStreams, caller: Caller, kind: StreamKind, access: Access = ACCESS) -> list[OpenStream]:
    """Take places until one is refused."""
    taken: list[OpenStream] = []
    with contextlib.suppress(Problem):
        while True:
            taken.append(places.take(caller, kind, access))
    return taken


def refusal(places: OpenStreams, caller: Caller, kind: StreamKind, access: Access = ACCESS) -> str | None:
    try:
        places.take(caller, kind, access).leave()
    except Problem as refused:
        return refused.code
    return None


async def test_a_greedy_key_leaves_places_to_every_other_key() -> None:
    places = OpenStreams(1_000)
    assert len(take_all(places, CALLERS[0], StreamKind.EVENTS)) == 500
    assert refusal(places, CALLERS[0], StreamKind.EVENTS) == "too_many_requests"
    for other in CALLERS[1:]:
        assert refusal(places, other, StreamKind.EVENTS) is None
    for caller in CALLERS:
        assert len([places.take(caller, StreamKind.CHAT, ACCESS) for _ in range(20)]) == 20


async def test_event_streams_take_no_place_of_a_chat() -> None:
    places = OpenStreams(1_000)
    one = Access(CALLERS[:1])
    assert len(take_all(places, CALLERS[0], StreamKind.EVENTS, one)) == 1_000
    assert refusal(places, CALLERS[0], StreamKind.EVENTS, one) == "overloaded"
    assert len(take_all(places, CALLERS[0], StreamKind.CHAT, one)) == 1_000


async def test_a_single_key_needs_no_share() -> None:
    places = OpenStreams(100)
    assert len(take_all(places, CALLERS[0], StreamKind.CHAT, Access(CALLERS[:1]))) == 100
    assert refusal(places, CALLERS[0], StreamKind.CHAT, Access(CALLERS[:1])) == "overloaded"


@given(steps=st.lists(st.tuples(st.sampled_from(CALLERS), KINDS, st.booleans()), max_size=200))
def test_whoever_holds_nothing_gets_a_place_and_none_is_lost(steps: list[tuple[Caller, StreamKind, bool]]) -> None:
    async def play() -> None:
        places, held = OpenStreams(24), list[OpenStream]()
        for caller, kind, leaves in steps:
            if leaves and held:
                place = held.pop()
                place.leave()
                place.leave()
            else:
                own = [each for each in held if (each.kind, each.caller) == (kind, caller)]
                with contextlib.suppress(Problem):
                    held.append(places.take(caller, kind, ACCESS))
                    continue
                assert own, "a key without a place was refused"
        for place in held:
            place.leave()
        assert places.streams_count == 0
        assert not any(places._places.values())

    asyncio.run(play())


class Tenants:
    """A running service with keys of two tenants: shop has two keys, bank one."""

    def __init__(self, namespace: str) -> None:
        keys = {
            name: new_key(name, f"{namespace}-{name[:4]}", ("read", "write")) for name in ("shop-1", "shop-2", "bank-1")
        }
        self.headers = {name: {"Authorization": f"Bearer {key}"} for name, (key, _) in keys.items()}
        self.lines = {name: line for name, (_, line) in keys.items()}
        self.http: RunningService

    def access(self, *names: str) -> Access:
        return Access.of("\n".join(self.lines[name] for name in names or self.lines))

    async def open_events(self, stack: contextlib.AsyncExitStack, name: str) -> Any:
        return await stack.enter_async_context(open_stream(self.http.client, "GET", EVENTS, headers=self.headers[name]))

    def revoke(self, *left: str) -> None:
        self.http.service.access = self.access(*left)
        self.http.service.streams.revoke(self.http.service.access)


@pytest.fixture
async def tenants(store: Any, namespace: str, provider: ProviderServer) -> AsyncIterator[Tenants]:
    found = Tenants(namespace)
    model: Any = open_streaming("openai", "m", base_url=provider.base_url, allow_http=True)
    limits = Limits(request_s=60, idle_s=60, stream_write_s=60, streams_count=16)
    async with contextlib.AsyncExitStack() as stack:
        memories = {name: await stack.enter_async_context(store.memory(name)) for name in found.access().namespaces}
        service = Service(memories, found.access(), limits, chat=Chat(model))
        found.http = await stack.enter_async_context(run_service(service))
        yield found


async def test_idle_event_streams_of_one_key_deny_nothing_to_others(tenants: Tenants) -> None:
    http = tenants.http
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(8):
            await tenants.open_events(stack, "shop-1")
        refused = await http.ask("GET", EVENTS, headers=tenants.headers["shop-1"])
        assert (refused.status_code, refused.json()["code"]) == (429, "too_many_requests")
        assert refused.headers["retry-after"] == "1"
        for name in ("shop-2", "bank-1"):
            assert (await anext(await tenants.open_events(stack, name))).event == "changed"
        for name, headers in tenants.headers.items():
            events = await read_events(http.client, "/api/chat", json={"message": name}, headers=headers)
            assert events[-1].document["reason"] == "done"
    await until(lambda: http.service.streams.streams_count == 0)


async def test_answers_whose_listeners_have_left_count(tenants: Tenants, provider: ProviderServer) -> None:
    """A client that leaves each chat at once would otherwise start any number of answers."""
    provider.mode = "hang"
    codes = set()
    for number in range(12):
        async with tenants.http.client.stream(
            "POST", "/api/chat", json={"message": str(number)}, headers=tenants.headers["shop-1"]
        ) as answer:
            codes.add(answer.status_code)
    assert codes == {200, 429}
    async with open_stream(
        tenants.http.client, "POST", "/api/chat", json=ASKED, headers=tenants.headers["bank-1"]
    ) as events:
        assert (await anext(events)).event == "start"
        provider.release()
        assert [each async for each in events][-1].document["reason"] == "done"


async def test_the_streams_of_a_revoked_key_end(tenants: Tenants, provider: ProviderServer) -> None:
    provider.mode = "hang"
    async with contextlib.AsyncExitStack() as stack:
        gone, stays = await tenants.open_events(stack, "shop-1"), await tenants.open_events(stack, "shop-2")
        chat = await stack.enter_async_context(
            open_stream(tenants.http.client, "POST", "/api/chat", json=ASKED, headers=tenants.headers["shop-1"])
        )
        for events in (gone, stays, chat):
            await anext(events)
        tenants.revoke("shop-2", "bank-1")
        end = [each async for each in gone][-1]
        assert (end.event, end.document) == ("end", {"reason": "the key is no longer valid"})
        end = [each async for each in chat][-1]
        assert (end.event, end.document["complete"], end.document["reason"]) == (
            "end",
            False,
            "the key is no longer valid",
        )
        await tenants.http.ask("PATCH", "/v1/sessions/s/state", json={"plan": 1}, headers=tenants.headers["shop-2"])
        assert (await anext(stays)).event == "changed"
        assert tenants.http.service.streams.streams_count == 1
        provider.release()
    refused = await tenants.http.ask("GET", EVENTS, headers=tenants.headers["shop-1"])
    assert (refused.status_code, refused.json()["code"]) == (401, "no_key")


async def test_a_key_whose_scopes_changed_loses_its_streams(tenants: Tenants) -> None:
    async with contextlib.AsyncExitStack() as stack:
        events = await tenants.open_events(stack, "shop-1")
        await anext(events)
        tenants.lines["shop-1"] = tenants.lines["shop-1"].replace("read,write", "write")
        tenants.revoke()
        assert [each async for each in events][-1].event == "end"


async def test_a_revoked_client_that_reads_nothing_is_cut_off(
    tenants: Tenants, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has a second, not the 60 of `stream_write_s`."""
    monkeypatch.setattr(streams, "_LAST_WRITE_S", 0.01)

    async def flood() -> Any:
        while True:
            yield b": " + b"x" * 1_000_000 + b"\n\n"

    monkeypatch.setattr(watching.Watch, "frames", lambda *_: flood())
    url, key = tenants.http.client.base_url, tenants.headers["shop-1"]["Authorization"]
    reader, writer = await asyncio.open_connection(url.host, url.port, limit=1_000)
    writer.write(f"GET {EVENTS} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {key}\r\n\r\n".encode())
    await writer.drain()
    cut_off: Any = tenants.http.service.cut_off
    await until(lambda: any(each.flow.write_paused for each in cut_off.args[0].server_state.connections))
    tenants.revoke("shop-2")
    await until(lambda: tenants.http.service.streams.streams_count == 0, deadline_s=30)
    with contextlib.suppress(ConnectionError):
        while await reader.read(1_000_000):
            pass  # the data sent before the cut
    writer.close()


async def test_a_client_that_does_not_read_the_end_is_cut_off(
    tenants: Tenants, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last write had no time limit, so such a client held its place for good."""

    async def last_frames() -> Any:
        yield b": " + b"x" * 10_000_000 + b"\n\n"
        ended.append(True)

    ended: list[bool] = []
    monkeypatch.setattr(watching.Watch, "frames", lambda *_: last_frames())
    url, key = tenants.http.client.base_url, tenants.headers["shop-1"]["Authorization"]
    tenants.http.service.limits = replace(tenants.http.service.limits, stream_write_s=0.05)
    _, writer = await asyncio.open_connection(url.host, url.port, limit=1_000)
    writer.write(f"GET {EVENTS} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {key}\r\n\r\n".encode())
    await writer.drain()
    await until(lambda: ended)
    await until(lambda: tenants.http.service.streams.streams_count == 0, deadline_s=30)
    writer.close()
