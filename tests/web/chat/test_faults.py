"""Failures of the chat, clear and stop, and sensitive values that it must not show."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
from support.checks import Panic, until
from support.http_service import (
    ASKED,
    SLOTS,
    joined_text,
    message_rows,
    notice_codes,
    open_stream,
    read_events,
    serve_chat,
    serve_memory,
)
from support.provider_answers import TEXT
from support.provider_server import ProviderServer as Provider
from support.proxy import Proxy
from support.stores import LONG_DEADLINES, short_deadlines

from redismem import Memory, Session, Settings
from redismem.errors import ModelFailed
from redismem.live.beginning import Beginning
from redismem.live.log import parse_event_id
from redismem.slots import Slots
from redismem.web.chat.chat import Chat
from redismem.workers.scheduler import Scheduler


class RaisingModel:
    """A model that raises a foreign error in the middle of an answer."""

    provider, name = "own", "m"

    def __init__(self, failure: BaseException | None) -> None:
        self.failure = failure

    async def stream(self, messages: Any, *, max_tokens: int) -> AsyncIterator[str]:
        del messages, max_tokens
        yield "half an "
        if self.failure is not None:
            raise self.failure
        yield "answer"

    async def aclose(self) -> None: ...


@pytest.mark.parametrize("kind", [KeyError, asyncio.CancelledError, Panic])
async def test_a_notice_reports_a_model_that_raises_and_its_text_is_stored(
    memory: Memory, caplog: pytest.LogCaptureFixture, kind: type[BaseException]
) -> None:
    model = RaisingModel(kind("canary-text"))
    async with serve_memory(memory, chat=Chat(model)) as http:
        events = await read_events(http.client, "/api/chat", json=ASKED)
        (notice,) = [each.document for each in events if each.event == "notice"]
        said = "The model broke off. Your message is stored. You can send it again, or go on."
        assert notice == {"code": "model_failed", "text": said}
        assert (joined_text(events), events[-1].event) == ("half an ", "end")
        assert events[-1].document == {"complete": False, "reason": "the model failed", "seq": 2, "waiting_for": None}
        assert message_rows(await memory.session("s").messages())[1] == ("assistant", "half an ", "the model failed")
        model.failure = None
        assert joined_text(await read_events(http.client, "/api/chat", json=ASKED)) == "half an answer"
    (record,) = [each for each in caplog.records if getattr(each, "op", "") == "chat"]
    assert (record.__dict__["error"], "raise self.failure" in caplog.text) == (kind.__name__, True)
    assert "canary-text" not in caplog.text


async def test_a_server_that_stops_stores_the_text_so_far(memory: Memory, provider: Provider) -> None:
    provider.mode = "hang"
    async with (
        serve_chat(memory, provider, stop_s=0.2) as http,
        open_stream(http.client, "POST", "/api/chat", json=ASKED) as events,
    ):
        while (await anext(events)).event != "text":
            pass
        http.stop_event.set()
        seen = [each async for each in events]
        assert seen[-1].document["reason"] == "the server stopped"
    assert message_rows(await memory.session("s").messages())[1][2] == "the server stopped"


@pytest.mark.parametrize("path", ["/api/chat/clear", "/v1/sessions/s"])
async def test_a_clear_while_the_question_is_being_stored_leaves_nothing_of_the_turn(
    memory: Memory, provider: Provider, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    begins, cleared = asyncio.Event(), asyncio.Event()
    begin, stop = Beginning.begin, Session.stop

    async def begin_later(beginning: Beginning) -> Any:
        begins.set()
        await cleared.wait()
        return await begin(beginning)

    async def note_clear(session: Session, *given: Any) -> bool:
        asyncio.get_running_loop().call_soon(cleared.set)
        return await stop(session, *given)

    monkeypatch.setattr(Beginning, "begin", begin_later)
    monkeypatch.setattr(Session, "stop", note_clear)
    provider.mode = "hang"
    async with serve_chat(memory, provider) as http:
        turn = asyncio.create_task(read_events(http.client, "/api/chat", json=ASKED))
        await begins.wait()
        options = {"json": {"session_id": "s"}} if path.startswith("/api") else {}
        answer = await http.ask("POST" if options else "DELETE", path, **options)
        assert answer.status_code == (200 if options else 204)
        events = await turn
        assert (events[-1].document["reason"], events[-1].document["seq"]) == ("cleared", None)
        assert not await memory.session("s").exists()


async def test_an_answer_does_not_revive_a_session_that_was_cleared_meanwhile(
    memory: Memory, provider: Provider
) -> None:
    provider.mode = "hang"
    async with serve_chat(memory, provider) as http:
        async with open_stream(http.client, "POST", "/api/chat", json=ASKED) as events:
            while (await anext(events)).event != "text":
                pass
            await memory.session("s").clear()
            seen = [each async for each in events]
        assert notice_codes(seen) == ["cleared"]
        assert not await memory.session("s").exists()
        provider.release()
        await read_events(http.client, "/api/chat", json=ASKED)
        cleared = await http.ask("POST", "/api/chat/clear", json={"session_id": "s"})
        assert cleared.json() == {"cleared": True}
        assert not await memory.session("s").exists()


async def test_an_answer_to_a_removed_session_ends(memory: Memory, provider: Provider) -> None:
    """Its text may quote what was removed, and any client that knows its id could still read it."""
    provider.mode = "hang"
    async with serve_chat(memory, provider) as http:
        async with open_stream(http.client, "POST", "/api/chat", json=ASKED) as events:
            while (seen := await anext(events)).event != "text":
                pass
            assert (await http.ask("DELETE", "/v1/sessions/s")).status_code == 204
            assert [each async for each in events][-1].document["reason"] == "cleared"
        assert not await memory.session("s").exists()
        again = await http.ask("POST", "/api/chat", json=ASKED, headers={"Last-Event-ID": seen.id})
        assert (again.status_code, again.json()["code"]) == (404, "not_found")


async def test_an_answer_is_stored_after_other_messages(memory: Memory, provider: Provider) -> None:
    provider.mode = "hang"
    async with (
        serve_chat(memory, provider) as http,
        open_stream(http.client, "POST", "/api/chat", json=ASKED) as events,
    ):
        while (await anext(events)).event != "text":
            pass
        await memory.session("s").append({"role": "user", "content": "from elsewhere"})
        provider.release()
        assert [each async for each in events][-1].document["seq"] == 3


async def test_without_its_store_the_chat_continues_with_a_notice(
    proxy: Proxy, namespace: str, provider: Provider
) -> None:
    async with (
        Memory.connect(proxy.url, namespace=namespace, settings=LONG_DEADLINES) as memory,
        serve_chat(memory, provider) as http,
    ):
        await read_events(http.client, "/api/chat", json=ASKED)
        with short_deadlines(memory):
            await proxy.refuse()
            events = await read_events(http.client, "/api/chat", json={"session_id": "s", "message": "still there?"})
        assert joined_text(events) == TEXT
        assert notice_codes(events) == ["memory_unavailable"]
        assert [each["content"] for each in provider.bodies[1]["messages"]][1:] == ["still there?"]
        await proxy.accept_again()
        assert notice_codes(await read_events(http.client, "/api/chat", json=ASKED)) in ([], ["memory_unavailable"])


async def test_a_notice_reports_a_full_window(store: Any, namespace: str) -> None:
    full = Settings(max_window_count=10, strategy="none")
    async with store.memory(namespace, full) as memory, serve_chat(memory, None) as http:
        await memory.session("s").append(*({"role": "user", "content": "x"} for _ in range(10)))
        events = await read_events(http.client, "/api/chat", json=ASKED)
        assert "memory_full" in notice_codes(events)


async def test_a_notice_reports_a_dead_summary(store: Any, namespace: str) -> None:
    class Fails:
        async def compact(self, messages: Any, previous: Any) -> Any:
            raise ModelFailed("it does not want to", permanent=True)

    settings = Settings(threshold=4, recent_limit=2, tick_s=0.05, extractive_after_s=0)
    options: Any = {"workers": partial(Scheduler, strategy=Fails())}
    async with store.memory(namespace, settings, **options) as memory, serve_chat(memory, None) as http:
        session = memory.session("s")
        await session.append(*({"role": "user", "content": f"{number}"} for number in range(8)))

        async def is_dead() -> bool:
            return (await session.info()).queued == "dead"

        await until(is_dead)
        events = await read_events(http.client, "/api/chat", json=ASKED)
        assert notice_codes(events) == ["summary_failed"]
        assert events[-1].document["complete"] is True


async def test_the_chat_asks_for_slots_and_shows_sensitive_answers_nowhere(
    memory: Memory, provider: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "redismem")
    async with serve_chat(memory, provider, chat={"slots": Slots.from_toml(SLOTS)}) as http:
        asked = await read_events(http.client, "/api/chat", json={"session_id": "s", "message": "I want to pay"})
        assert (joined_text(asked), asked[-1].document["waiting_for"]) == ("Which card?", "card")
        again = await read_events(http.client, "/api/chat", json={"session_id": "s", "message": "87 65 43 21"})
        assert joined_text(again) == "Which card? For example: 12345678"
        headers = {"Idempotency-Key": "the-card"}
        for text in ("87654321", "87654321", "[card]"):  # after a reload, the page knows only the placeholder
            message = {"session_id": "s", "message": text}
            resumed = await read_events(http.client, "/api/chat", json=message, headers=headers)
        assert (joined_text(resumed), resumed[-1].document["waiting_for"]) == (TEXT, None)
        assert len(provider.bodies) == 1
        pages = [
            (await http.ask("GET", f"/v1/sessions/s{rest}")).text
            for rest in ("", "/messages", "/context", "/state", "/messages?include_originals=true")
        ]
        told = "".join(pages) + str(provider.bodies) + caplog.text + str([asked, again, resumed])
        assert "87654321" not in told
        assert "87 65 43 21" not in told
        shown = (await http.ask("GET", "/v1/sessions/s/state")).json()
        assert (shown["params"], shown["hidden_params"]) == ({"card": None}, ["card"])
        revealed = (await http.ask("GET", "/v1/sessions/s/state?include_hidden=true")).json()
        assert revealed["params"] == {"card": "87654321"}
        assert (await memory.session("s").params())["card"] == "87654321"


CARD = {"session_id": "s", "message": "87654321"}


@pytest.mark.parametrize("fallback", [False, True])
async def test_during_an_outage_a_sensitive_answer_is_not_sent_to_the_model(
    proxy: Proxy, direct_memory: Memory, namespace: str, provider: Provider, fallback: bool
) -> None:
    """The fallback does not answer either: it cannot know which slot another process has asked for."""
    async with (
        Memory.connect(proxy.url, namespace=namespace, settings=LONG_DEADLINES, fallback=fallback) as memory,
        serve_chat(memory, provider, chat={"slots": Slots.from_toml(SLOTS)}) as http,
        serve_chat(direct_memory, provider, chat={"slots": Slots.from_toml(SLOTS)}) as other,
    ):
        await read_events(http.client, "/api/chat", json=ASKED)
        asked = await read_events(other.client, "/api/chat", json={"session_id": "s", "message": "I want to pay"})
        assert asked[-1].document["waiting_for"] == "card"
        with short_deadlines(memory):
            await proxy.refuse()
            events = await read_events(http.client, "/api/chat", json=CARD)
        end = {"complete": False, "reason": "the memory did not take it", "seq": None, "waiting_for": None}
        assert (notice_codes(events), joined_text(events), events[-1].document) == (["memory_unavailable"], "", end)
        await proxy.accept_again()
        assert joined_text(await read_events(other.client, "/api/chat", json=CARD)) == TEXT
    assert "87654321" not in str(provider.bodies)
    assert "87654321" not in str([each.to_openai() for each in await direct_memory.session("s").messages()])


async def test_a_slot_that_could_not_be_stored_is_not_asked_for(store: Any, namespace: str, provider: Provider) -> None:
    """Otherwise the answer to the slot would be stored as an ordinary message."""
    full = Settings(max_window_count=10, strategy="none")
    slots = Slots.from_toml(SLOTS)
    async with store.memory(namespace, full) as memory, serve_chat(memory, provider, chat={"slots": slots}) as http:
        await memory.session("s").append(*({"role": "user", "content": "x"} for _ in range(10)))
        for text in ("I want to pay", "87654321"):
            events = await read_events(http.client, "/api/chat", json={"session_id": "s", "message": text})
            assert (notice_codes(events), joined_text(events)) == (["memory_full"], "")
            assert events[-1].document["waiting_for"] is None
    assert provider.bodies == []


async def test_a_malformed_chat_message_is_refused(memory: Memory) -> None:
    async with serve_chat(memory, None) as http:
        for body in ({}, {"message": ""}, {"message": "x", "other": 1}, {"message": "x", "session_id": "\n"}):
            assert (await http.ask("POST", "/api/chat", json=body)).status_code in (400, 422), body
        for wrong in ("x", "a.b", ".5", "é.5".encode()):
            answer = await http.ask("POST", "/api/chat", json=ASKED, headers={"Last-Event-ID": wrong})
            assert answer.status_code in (400, 404), wrong


def test_an_event_id_is_turn_and_offset() -> None:
    assert parse_event_id("turn-1.17") == ("turn-1", 17)
    assert [parse_event_id(wrong) for wrong in ("", "x", ".1", "a.", "a.-1", "a.x", "a." + "9" * 50)] == [None] * 7
