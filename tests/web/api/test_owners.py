"""Each route that names an owner refuses a session of another one, and tells nothing of it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from support.http_service import RunningService, numbered_message, open_stream, read_events, serve_chat
from support.provider_server import ProviderServer
from support.stored import read_namespace

from redismem import Memory
from redismem.formats.streams.responses import response_id
from redismem.formats.streams.stream import StreamTurn
from redismem.record import Change
from redismem.web import previews

BODIES: dict[tuple[str, str], Any] = {
    ("post", "/v1/sessions/{session_id}/messages"): numbered_message(1),
    ("put", "/v1/sessions/{session_id}/messages/{seq}"): numbered_message(1),
    ("put", "/v1/sessions/{session_id}/policy"): {
        "keep_whole": False,
        "idle_timeout_s": None,
        "exempt": True,
        "zone": None,
    },
    ("patch", "/v1/sessions/{session_id}/state"): {"params": {"a": 1}},
    ("post", "/v1/sessions/{session_id}/prune"): {"max_messages": 1},
    ("post", "/v1/sessions/{session_id}/forget"): {"seqs": [1]},
    ("post", "/v1/sessions/{session_id}/recall"): {"query": "message", "scope": "owner"},
    ("post", "/v1/sessions/{session_id}/find"): {"text": "message"},
    ("post", "/v1/sessions/{session_id}/turns"): {"message": "Hello"},
    ("post", "/v1/sessions/{session_id}/turns/current/stop"): {},
    ("post", "/ui/chat"): {
        "id": "a",
        "messages": [{"id": "t", "role": "user", "parts": [{"type": "text", "text": "Hello"}]}],
    },
    ("post", "/ag-ui"): {"threadId": "a", "runId": "t", "messages": [{"role": "user", "content": "Hello"}]},
    ("post", "/openai/responses"): {"conversation": "a", "input": "Hello"},
    ("post", "/api/chat"): {"message": "Hello"},
    ("post", "/api/chat/clear"): {},
    ("post", "/api/chat/stop"): {},
}
RESPONSE = response_id(StreamTurn("a", "t", "1-0a1b2c3d"))
OF_AN_OWNER = {("delete", "/v1/sessions"), ("get", "/v1/sessions"), ("post", "/v1/search"), ("get", "/v1/records")}
"""They remove, list and search what belongs to the owner that they name, and nothing else."""


def routes_of(document: Any) -> set[tuple[str, str]]:
    """Return the routes of one session, and all others that name an owner in their query or their body."""
    names = {
        name for name, schema in document["components"]["schemas"].items() if "owner" in schema.get("properties", ())
    }
    found = set()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            named = {each["name"] for each in operation.get("parameters", ())}
            body = set(re.findall(r"/schemas/(\w+)'", repr(operation.get("requestBody"))))
            if "owner" in named or body & names or "{session_id}" in path:
                found.add((method, path))
    return found - OF_AN_OWNER


@pytest.mark.parametrize("owner", ["ann", None])
async def test_every_route_of_a_session_refuses_another_owner(
    http: RunningService, memory: Memory, raw: Any, owner: str | None
) -> None:
    await memory.session("a", owner=owner).append(*map(numbered_message, range(1, 4)))
    await memory.record("a", owner=owner).write(Change(sets={b"record": b"{}", b"revision": b"1"}))
    before = await read_namespace(raw, memory.store.keys.namespace)
    routes = routes_of((await http.ask("GET", "/openapi.json")).json())
    assert len(routes) > 10
    for method, path in sorted(routes):
        body, options = BODIES.get((method, path)), dict[str, Any]()
        in_body = path.startswith("/api/")
        if not in_body:
            options["params"] = {"owner": "bob"}
        if body is not None:
            options["json"] = {**body, "session_id": "a", "owner": "bob"} if in_body else body
        at = path.format(session_id="a", seq=1, id="a", response_id=RESPONSE, kind="pydantic-ai", record_id="a")
        answer = await http.ask(method.upper(), at, **options)
        assert (answer.status_code, answer.json()["code"]) == (403, "other_owner"), (method, path)
        assert "ann" not in answer.text
    assert await read_namespace(raw, memory.store.keys.namespace) == before


@pytest.mark.parametrize("filters", [{}, {"contains": "a"}, {"text": "message"}, {"newest": True}])
async def test_a_list_has_the_sessions_of_its_owner_alone(
    http: RunningService, memory: Memory, filters: dict[str, Any]
) -> None:
    """Whatever it filters by, page by page, also if another owner begins a session anew."""
    for number in range(3):
        await memory.session(f"a-{number}", owner="ann").append(numbered_message("of ann"))
        await memory.session(f"a-bob-{number}", owner="bob").append(numbered_message("of bob"))
    await memory.session("a-nobody").append(numbered_message("of nobody"))
    await memory.session("a-0", owner="ann").set_title("Kettles")
    seen, cursor = list[Any](), None
    while not seen or cursor is not None:
        body = {**filters, "owner": "ann", "limit": 2, "cursor": cursor}
        document = (await http.ask("POST", "/v1/search", json=body)).json()
        seen += document["sessions"]
        cursor = document["cursor"]
    assert [row["session_id"] for row in seen] == ["a-2", "a-1", "a-0"]
    assert [row["title"] for row in seen] == ["message of ann", "message of ann", "Kettles"]
    assert {(row["last_role"], row["last_text"]) for row in seen} == {("user", "message of ann")}
    assert "bob" not in repr(seen)
    if "text" not in filters:
        params = {**filters, "owner": "ann"}
        assert (await http.ask("GET", "/v1/sessions", params=params)).json()["sessions"] == seen
    await memory.session("a-1").clear()
    await memory.session("a-1", owner="bob").append(numbered_message("of bob"))
    document = (await http.ask("POST", "/v1/search", json={**filters, "owner": "ann"})).json()
    assert [row["session_id"] for row in document["sessions"]] == ["a-2", "a-0"]


async def test_what_is_read_for_a_list_belongs_to_its_owner(memory: Memory) -> None:
    """A session may begin anew for another owner, after the list has found it."""
    await memory.session("a", owner="bob").append(numbered_message("of bob"))
    row = {"session_id": "a", "active_ms": 1}
    (told,) = await previews.describe_rows(memory, [row], "ann")
    assert told == row | {"owner": None, "title": None, "last_role": None, "last_text": ""}


async def test_the_owner_is_served_everywhere(http: RunningService, memory: Memory) -> None:
    await memory.session("a", owner="ann").append(numbered_message(1))
    for path in ("", "/messages", "/state", "/context"):
        assert (await http.ask("GET", f"/v1/sessions/a{path}", params={"owner": "ann"})).status_code == 200
        assert (await http.ask("GET", f"/v1/sessions/a{path}")).status_code == 200
    events = await read_events(http.client, "/api/chat", json={"session_id": "a", "owner": "ann", "message": "Hello"})
    assert events[-1].event == "end"


async def test_a_stream_ends_once_the_session_has_another_owner(http: RunningService, memory: Memory) -> None:
    await memory.session("a", owner="ann").append(numbered_message(1))
    async with open_stream(http.client, "GET", "/v1/sessions/a/events", params={"owner": "ann"}) as events:
        assert (await anext(events)).document["owner"] == "ann"
        await memory.session("a").clear()
        await memory.session("a", owner="bob").append(numbered_message(1))
        seen = [each async for each in events]
    assert seen[-1].event == "end"
    assert all("bob" not in repr(each) for each in seen)


async def test_a_turn_is_not_given_to_another_owner(memory: Memory, provider: ProviderServer) -> None:
    """While it runs, on the server that writes it too, and afterwards."""
    provider.mode = "hang"
    asked = {"session_id": "a", "owner": "bob", "message": "Hello"}
    turns: dict[str, Any] = {"params": {"owner": "bob"}}

    async def check(http: RunningService) -> None:
        for path in ("/v1/sessions/a/turns/current", "/v1/sessions/a/turns/current?turn=t", "/ui/chat/a/stream"):
            answer = await http.ask("GET", path + ("&" if "?" in path else "?") + "owner=bob")
            assert (answer.status_code, answer.json()["code"]) == (403, "other_owner"), path
        for headers in ({"Idempotency-Key": "t"}, {"Last-Event-ID": "t.0"}):
            answer = await http.ask("POST", "/api/chat", json=asked, headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (403, "other_owner")
        body = {"message": "Hello"}
        answer = await http.ask("POST", "/v1/sessions/a/turns", json=body, headers={"Idempotency-Key": "t"}, **turns)
        assert (answer.status_code, answer.json()["code"]) == (403, "other_owner")
        answer = await http.ask("POST", "/v1/sessions/a/turns/current/stop", json={}, **turns)
        assert (answer.status_code, answer.json()["code"]) == (403, "other_owner")

    async with serve_chat(memory, provider) as http:
        own: dict[str, Any] = {
            "params": {"owner": "ann"},
            "json": {"message": "Hello"},
            "headers": {"Idempotency-Key": "t"},
        }
        async with open_stream(http.client, "POST", "/v1/sessions/a/turns", **own) as events:
            assert (await anext(events)).event == "message"
            await check(http)
            provider.release()
            assert [each async for each in events][-1].document["outcome"] == "done"
        await check(http)
