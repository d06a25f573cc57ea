"""Turns over HTTP: begin, follow and stop one on any server, and repeat one without a second model call."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import httpx
import pytest
from support.checks import until
from support.http_service import RunningService, open_stream, read_events, serve_chat
from support.provider_answers import PIECES, TEXT
from support.provider_server import ProviderServer as Provider
from support.service_process import start_services

from redismem import Memory, Settings

PATH = "/v1/sessions/s/turns"
CURRENT = f"{PATH}/current"
ASKED = {"message": "Where is my parcel?"}
Servers = tuple[RunningService, RunningService]


@pytest.fixture
async def servers(redis_server: Any, namespace: str, provider: Provider) -> AsyncIterator[Servers]:
    """Two servers on one Redis, whose chats ask the same provider."""
    settings = Settings(threshold=12, recent_limit=4, keep_originals=True, tick_s=0.1, live_lease_s=1)
    connect = partial(Memory.connect, redis_server.url, namespace=namespace, settings=settings)
    async with (
        connect(workers=True) as one,
        connect() as two,
        serve_chat(one, provider) as first,
        serve_chat(two, provider) as second,
    ):
        yield first, second


def key(turn_id: str) -> dict[str, Any]:
    return {"headers": {"Idempotency-Key": turn_id}}


def read_text(events: list[Any]) -> str:
    return "".join(each.document["delta"] for each in events if each.event == "text")


async def test_a_turn_streams_its_events_and_is_stored(servers: Servers) -> None:
    first, second = servers
    events = await read_events(first.client, PATH, json=ASKED, **key("t1"))
    assert [events[0].document, read_text(events)] == [{"type": "message", "first_seq": 1, "last_seq": 1}, TEXT]
    assert events[-1].document == {"type": "end", "outcome": "done", "reason": "", "seq": 2, "usage": None}
    stored = (await second.ask("GET", "/v1/sessions/s/messages")).json()["messages"]
    assert [each["message"]["content"] for each in stored] == [ASKED["message"], TEXT]
    assert [each["beside"]["metadata"] for each in stored] == [{"turn": "t1"}, {"turn": "t1"}]


async def test_each_of_30_turns_gets_its_own_answer_when_it_is_repeated(servers: Servers, provider: Provider) -> None:
    """In random order, on both servers, after failures, and after summaries have taken their messages."""
    answers: dict[str, Any] = {}
    for number in range(30):
        provider.modes.append("break" if number % 5 == 3 else "500" if number == 17 else "ok")
        provider.pieces = [f"Answer {number} ", "is ", "this."]
        events = await read_events(
            servers[number % 2].client, PATH, json={"message": f"Question {number}"}, **key(f"t{number}")
        )
        answers[f"t{number}"] = read_text(events), events[-1].document["outcome"], events[-1].document["seq"]
    assert sum(outcome == "failed" for _, outcome, _ in answers.values()) == 7

    async def is_summarised() -> bool:
        return (await servers[0].ask("GET", "/v1/sessions/s")).json()["summaries_count"] > 0

    await until(is_summarised)
    provider.pieces = ["another answer"]
    for turn_id in random.Random(1).sample(sorted(answers), 30):
        message = {"message": f"Question {turn_id[1:]}"}
        for http in servers:
            again = await read_events(http.client, PATH, json=message, **key(turn_id))
            assert (read_text(again), again[-1].document["outcome"], again[-1].document["seq"]) == answers[turn_id]
        other = await servers[0].ask("POST", PATH, json={"message": "Another one"}, **key(turn_id))
        assert (other.status_code, other.json()["code"]) == (422, "invalid")
    assert len(provider.asked) == 30


async def test_a_failed_turn_without_an_answer_begins_again(servers: Servers, provider: Provider) -> None:
    provider.modes.append("500")
    events = await read_events(servers[0].client, PATH, json=ASKED, **key("t1"))
    assert events[-1].document["outcome"] == "failed"
    assert [each.document["code"] for each in events if each.event == "notice"] == ["model_failed"]
    assert read_text(await read_events(servers[1].client, PATH, json=ASKED, **key("t1"))) == TEXT


async def test_another_server_resumes_and_stops_a_turn(servers: Servers, provider: Provider) -> None:
    first, second = servers
    provider.mode = "hang"
    async with open_stream(first.client, "POST", PATH, json=ASKED, **key("t1")) as events:
        begun = [await anext(events)]
        while read_text(begun) != "".join(PIECES[:2]):
            begun.append(await anext(events))
    text, half = read_text(begun), begun[1]
    async with (
        open_stream(second.client, "GET", CURRENT) as whole,
        open_stream(second.client, "GET", CURRENT, headers={"Last-Event-ID": half.id}) as rest,
    ):
        assert (await anext(whole)).event == "message"
        for other in ("another", "t2"):
            refused = await second.ask("POST", f"{CURRENT}/stop", json={"turn": other})
            assert refused.json() == {"stopped": False}
        stopped = await second.ask("POST", f"{CURRENT}/stop", json={"reason": "enough", "turn": "t1"})
        assert stopped.json() == {"stopped": True}
        seen = [each async for each in rest]
        end = {"type": "end", "outcome": "stopped", "reason": "enough", "seq": 2, "usage": None}
        assert [each.document for each in seen[-2:]] == [{"type": "message", "first_seq": 2, "last_seq": 2}, end]
        assert half.document["delta"] + read_text(seen) == read_text([each async for each in whole]) == text
    for http in servers:
        assert (await http.ask("GET", CURRENT)).status_code == 204
        assert read_text([each async for each in _follow(http, turn="t1")]) == text


async def _follow(http: RunningService, headers: Any = None, **params: str) -> AsyncIterator[Any]:
    async with open_stream(http.client, "GET", CURRENT, params=params, headers=headers) as events:
        async for each in events:
            yield each


async def test_while_a_turn_runs_another_is_refused_waits_or_interrupts(servers: Servers, provider: Provider) -> None:
    first, second = servers
    provider.modes.extend(["hang", "ok", "hang", "ok"])
    in_background = {"Prefer": "respond-async"}
    begun = await first.ask("POST", PATH, json=ASKED, headers={"Idempotency-Key": "t1", **in_background})
    assert (begun.status_code, begun.json()) == (202, {"session_id": "s", "turn": "t1"})
    assert begun.headers["turn-id"] == "t1"
    busy = await second.ask("POST", PATH, json={"message": "and?"}, **key("t2"))
    assert (busy.status_code, busy.json()["code"]) == (409, "turn_running")
    assert 0 <= busy.json()["left_ms"] <= 1_000
    assert "turn" not in busy.json(), "the id of a turn has this name"
    assert busy.headers["retry-after"] == "1"
    waiting = asyncio.create_task(
        read_events(second.client, PATH, json={"message": "and?", "when_busy": "wait"}, **key("t2"))
    )
    assert (await first.ask("POST", f"{CURRENT}/stop")).json() == {"stopped": True}
    assert read_text(await waiting) == TEXT
    assert "stopped" in (await second.ask("GET", begun.headers["location"])).text
    await first.ask("POST", PATH, json=ASKED, headers={"Idempotency-Key": "t3", **in_background})
    interrupting = {"message": "no", "when_busy": "interrupt"}
    assert read_text(await read_events(second.client, PATH, json=interrupting, **key("t4"))) == TEXT
    assert [each async for each in _follow(first, turn="t3")][-1].document["reason"] == "interrupted"


async def test_a_turn_whose_log_is_gone_is_told_from_its_reply(servers: Servers, provider: Provider) -> None:
    first, second = servers
    events = await read_events(first.client, PATH, json=ASKED, **key("t1"))
    memory = next(iter(first.service.memories.values()))
    await memory.store.transport.run([("DEL", memory.store.keys.session("s").live)], 5)
    told = [each async for each in _follow(second, turn="t1")]
    assert (read_text(told), told[-1].document["seq"]) == (TEXT, 2)
    assert read_text(await read_events(second.client, PATH, json=ASKED, **key("t1"))) == TEXT
    told = [each async for each in _follow(second, headers={"Last-Event-ID": events[1].id})]
    assert [told[0].event, read_text(told)] == ["reset", TEXT]
    assert len(provider.asked) == 1


async def test_what_is_not_there_is_refused(servers: Servers) -> None:
    first, _ = servers
    assert (await first.ask("GET", CURRENT)).status_code == 204
    assert (await first.ask("POST", f"{CURRENT}/stop", json={})).json() == {"stopped": False}
    for where, status in (
        ({"params": {"turn": "none"}}, 404),
        ({"headers": {"Last-Event-ID": "nonsense"}}, 400),
        ({"headers": {"Last-Event-ID": "1-0a1b2c3d.17"}}, 204),
        ({"params": {"format": "unknown"}}, 422),
    ):
        assert (await first.ask("GET", CURRENT, **where)).status_code == status, where
    bodies: list[Any] = [
        {},
        {"message": ""},
        {"message": []},
        {"message": "x", "when_busy": "later"},
        {"message": {"x": 1}},
    ]
    for body in bodies:
        assert (await first.ask("POST", PATH, json=body)).status_code == 422, body


async def test_a_cleared_session_ends_its_turn(servers: Servers, provider: Provider) -> None:
    first, second = servers
    provider.mode = "hang"
    async with open_stream(first.client, "POST", PATH, json=ASKED, **key("t1")) as events:
        while (await anext(events)).event != "text":
            pass
        assert (await second.ask("DELETE", "/v1/sessions/s")).status_code == 204
        end = [each.document async for each in events][-1]
        assert (end["type"], end["reason"]) == ("end", "cleared")
    assert (await first.ask("GET", "/v1/sessions/s")).status_code == 404
    assert (await first.ask("GET", CURRENT, params={"turn": "t1"})).status_code == 404


async def test_a_server_that_stops_sends_the_listeners_of_other_servers_to_these(
    servers: Servers, provider: Provider
) -> None:
    first, second = servers
    provider.mode = "hang"
    headers = {"Idempotency-Key": "t1", "Prefer": "respond-async"}
    assert (await first.ask("POST", PATH, json=ASKED, headers=headers)).status_code == 202
    heard: list[Any] = []

    async def listen() -> None:
        async for each in _follow(second):
            heard.append(each)
            if read_text(heard) == "".join(PIECES[:2]):
                second.stop_event.set()

    with pytest.raises(httpx.RemoteProtocolError):
        await listen()
    provider.release()
    rest = [each async for each in _follow(first, headers={"Last-Event-ID": heard[-1].id})]
    assert (read_text(heard) + read_text(rest), rest[-1].document["outcome"]) == (TEXT, "done")


async def test_a_turn_of_a_killed_server_is_ended_and_its_text_is_stored(
    redis_server: Any, namespace: str, provider: Provider
) -> None:
    provider.mode = "hang"
    settings = Settings(live_lease_s=0.6)
    async with (
        Memory.connect(redis_server.url, namespace=namespace, settings=settings) as memory,
        serve_chat(memory, provider) as http,
    ):
        async with start_services(redis_server, namespace, provider, 0.6) as (running,):
            begun = await http.client.post(f"{running.url}{PATH}", json=ASKED, headers={"Prefer": "respond-async"})
            assert begun.status_code == 202

            async def has_text() -> bool:
                log = await memory.store.transport.run([("GET", memory.store.keys.session("s").live)], 5)
                return PIECES[1].encode() in (log[0] or b"")

            await until(has_text)
            async with open_stream(http.client, "GET", CURRENT) as events:
                assert (await anext(events)).event == "message"
                running.kill()
                async with asyncio.timeout(1.5 * 0.6 + 2 + 5):
                    seen = [each async for each in events]
        assert (seen[-1].document["outcome"], seen[-1].document["seq"]) == ("lost", 2)
        reply = (await memory.session("s").messages())[-1]
        assert (reply.content, reply.metadata["incomplete"]) == (read_text(seen), "lost")
