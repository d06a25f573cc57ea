"""Recall over HTTP: by a route, in an append, and in the answers of the server's model; never of another owner."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from support.http_service import RunningService, numbered_message, read_events, serve_chat, serve_memory
from support.provider_server import ProviderServer

from redismem import Memory
from redismem.models import open_extractive
from redismem.web.chat.chat import Chat
from redismem.workers.strategies import Summarize
from redismem.workers.summaries import Worker

OLD = "My blue kettle leaks, order O-4711."
REFUSED = ("recall=5", "read=true&recall=x", "read=true&recall_scope=owner", "read=true&recall=5&recall_scope=owner")
ASKED = "Which order was the kettle?"


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


async def begin(memory: Memory, name: str, owner: str | None, text: str = OLD) -> None:
    """Begin a session with a text that only its originals have."""
    await memory.session(name, owner=owner).append(user(text), *map(numbered_message, range(30)))
    await Worker(memory.store, Summarize(open_extractive())).drain()
    assert text not in repr([each.content for each in (await memory.session(name).read()).messages])


async def test_a_route_recalls(http: RunningService, memory: Memory) -> None:
    await begin(memory, "a", None)
    answer = await http.ask("POST", "/v1/sessions/a/recall", json={"query": ASKED, "max_tokens": 100})
    assert answer.status_code == 200, answer.text
    document = answer.json()
    (found,) = [each for each in document["messages"] if each["seq"] == 1]
    assert found["message"] == user(OLD)
    assert found["session_id"] == "a"
    assert found["day"] == datetime.fromtimestamp(found["stored_ms"] / 1000, UTC).date().isoformat()
    assert 0 < document["tokens"] <= 100
    nothing = await http.ask("POST", "/v1/sessions/a/recall", json={"query": ASKED, "max_tokens": 0})
    assert nothing.json() == {"messages": [], "tokens": 0, "unsearched": 0}
    unowned = await http.ask("POST", "/v1/sessions/a/recall", json={"query": ASKED, "scope": "owner"})
    assert (unowned.status_code, unowned.json()["code"]) == (422, "invalid")


async def test_an_append_recalls(http: RunningService, memory: Memory) -> None:
    await begin(memory, "a", None)
    path = "/v1/sessions/a/messages"
    answer = await http.ask("POST", path, params={"read": "true", "recall": "100"}, json=user(ASKED))
    document = answer.json()
    assert 1 in document["recalled"]["seqs"]
    assert OLD in repr(document["request"])
    plain = (await http.ask("POST", path, params={"read": "true"}, json=user(ASKED))).json()
    assert "recalled" not in plain
    for query in REFUSED:
        refused = await http.ask("POST", f"{path}?{query}", json=user("never stored"))
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid"), query
    assert "never stored" not in (await http.ask("GET", path)).text


async def test_recall_over_the_conversations_of_an_owner_finds_none_of_another(memory: Memory) -> None:
    await begin(memory, "a", "ann")
    await begin(memory, "b", "bob", "My red kettle of bob leaks, order O-9999.")
    await begin(memory, "n", None, "My green kettle of nobody leaks, order O-8888.")
    async with serve_memory(memory) as http:
        asked = {"query": ASKED, "scope": "owner"}
        for owner, own in (("ann", "O-4711"), ("bob", "O-9999")):
            params = {"owner": owner}
            routed = await http.ask("POST", f"/v1/sessions/new-{owner}/recall", params=params, json=asked)
            reads = {**params, "read": "true", "recall": "700", "recall_scope": "owner"}
            appended = await http.ask("POST", f"/v1/sessions/new-{owner}/messages", params=reads, json=user(ASKED))
            for answer in (routed, appended):
                assert {word for word in ("O-4711", "O-9999", "O-8888") if word in answer.text} == {own}
            assert set(appended.json()["recalled"]["sessions"]) == {owner[0]}


@pytest.mark.parametrize("path", ["/v1/sessions/a/turns", "/api/chat"])
async def test_an_answer_recalls_and_its_stream_says_what(memory: Memory, provider: ProviderServer, path: str) -> None:
    await begin(memory, "a", None)
    async with serve_chat(memory, provider) as http:
        body: dict[str, Any] = {"message": ASKED} | ({"session_id": "a"} if path == "/api/chat" else {})
        events = await read_events(http.client, path, json=body)
        (told,) = [each.document for each in events if "seqs" in repr(each.document)]
        numbers = told if path == "/api/chat" else told["data"]
        assert 1 in numbers["seqs"]
        assert set(numbers["sessions"]) == {"a"}
        assert numbers["tokens"] <= 700
        assert OLD not in repr(told)
        stored = (await http.ask("GET", "/v1/sessions/a/messages")).json()["messages"][-1]
        # All messages are of this session, and all were searched.
        kept = {name: value for name, value in numbers.items() if name not in ("sessions", "unsearched")}
        assert stored["beside"]["metadata"]["recalled"] == kept
        assert f"user: {OLD}" in repr(provider.bodies[-1]).partition("<recalled>")[2]
        http.service.chat.recall = 0
        events = await read_events(http.client, path, json=body)
        assert "seqs" not in repr(events)


async def test_an_answer_without_a_model_recalls(memory: Memory) -> None:
    await begin(memory, "a", None)
    async with serve_memory(memory, chat=Chat()) as http:
        asked = {"session_id": "a", "message": "What about the kettle?"}
        events = await read_events(http.client, "/api/chat", json=asked)
        assert "O-4711" in "".join(each.document["text"] for each in events if each.event == "text")
        silent = {"message": "What about the kettle?", "recall": 0}
        events = await read_events(http.client, "/v1/sessions/a/turns", json=silent)
        assert not [each for each in events if each.event == "data"]
