"""Access keys: scopes, namespaces, rate limits, and refusals without a key."""

from __future__ import annotations

import contextlib
import logging
import re
import shlex
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from support.http_service import PATIENT, RunningService, numbered_message, run_service
from support.stored import read_namespace

from redismem.errors import InvalidSettings
from redismem.formats.streams.responses import response_id
from redismem.formats.streams.stream import StreamTurn
from redismem.web.access import SCOPES, Access, new_key
from redismem.web.app import openapi
from redismem.web.http.problems import Problem
from redismem.web.service import Limits, Service

BODY: dict[str, Any] = {
    "/v1/sessions/{session_id}/messages": numbered_message(1),
    "/v1/sessions/{session_id}/state": {"plan": 1},
    "/v1/sessions/{session_id}/prune": {"max_messages": 1},
    "/v1/sessions/{session_id}/forget": {"seqs": [1]},
    "/v1/sessions/{session_id}/messages/{seq}": numbered_message(1),
    "/v1/sessions/{session_id}/policy": {"keep_whole": True, "idle_timeout_s": None, "exempt": False, "zone": None},
    "/v1/dead/retry": {"session_ids": ["s"]},
    "/v1/dead/drop": {"session_ids": ["s"]},
    **{f"/v1/quarantine/{verb}": {"id": "s", "put_ms": 1} for verb in ("show", "restore", "drop")},
    "/v1/sessions/{session_id}/turns": {"message": "hello", "when_busy": "wait"},
    "/v1/sessions/{session_id}/turns/current/stop": {},
    "/ui/chat": {"id": "s", "messages": [{"id": "t", "role": "user", "parts": [{"type": "text", "text": "hello"}]}]},
    "/ag-ui": {"threadId": "s", "runId": "r", "messages": [{"role": "user", "content": "hello"}]},
    "/openai/responses": {"conversation": "s", "input": "hello"},
    "/api/chat": {"session_id": "s", "message": "hello"},
    "/api/chat/clear": {"session_id": "s"},
    "/api/chat/stop": {"session_id": "s"},
    "/v1/projects/{name}/decisions": {"title": "Move"},
    "/v1/projects/{name}/tasks": {"title": "Move"},
    "/v1/projects/{name}/entities": {"name": "Ada"},
    "/v1/projects/{name}/decisions/{item_id}": {"title": "Move"},
    "/v1/projects/{name}/tasks/{item_id}": {"title": "Move"},
    "/v1/projects/{name}/entities/{item_id}": {"description": "moves"},
    "/v1/projects/{name}/decisions/{item_id}/status": {"status": "accepted"},
    "/v1/projects/{name}/tasks/{item_id}/status": {"status": "planned"},
    "/v1/projects/{name}/entities/{item_id}/mentions": {"context": "moved"},
    "/v1/projects/{name}/entities/{item_id}/merge": {"duplicate": "e-01m82aett2z2xsfvmk"},
    "/v1/projects/{name}/entities/{item_id}/properties/{property}": {"value": 1},
    "/v1/search": {},
    "/v1/sessions/{session_id}/recall": {"query": "hello"},
    "/v1/sessions/{session_id}/find": {"text": "hello"},
}
LETTERS = {"decisions": "d", "tasks": "t", "entities": "e"}
IDS = {"id": "s", "response_id": response_id(StreamTurn("s", "t", "1-0a1b2c3d"))}
IDS |= {"kind": "strands", "record_id": "s"}
READING = {"/v1/search", "/v1/sessions/{session_id}/recall", "/v1/sessions/{session_id}/find"}
"""They have their conditions in a body."""
OPEN = {"/livez", "/readyz"}
ADMIN = {"/v1/queues", "/v1/dead", "/v1/dead/retry", "/v1/dead/drop", "/v1/load", "/v1/doctor", "/metrics"}
ADMIN |= {"/v1/quarantine", *(f"/v1/quarantine/{verb}" for verb in ("show", "restore", "drop"))}


def routes() -> list[tuple[str, str]]:
    """Return method and path of every route."""
    return sorted((method.upper(), path) for path, methods in openapi()["paths"].items() for method in methods)


def key_for(name: str, namespace: str, *scopes: str) -> tuple[dict[str, str], str]:
    """Return the header of a new key and its line for the list."""
    key, line = new_key(name, namespace, scopes)
    return {"Authorization": f"Bearer {key}"}, line


def other_of(letter: str) -> dict[str, str]:
    """Return the names in the path of a write to an item of this kind, besides its id."""
    other_id = "e-01m82aett2z2xsfvmk" if letter == "e" else "d-01m82aett2z2xsfvmk"
    return {"other_id": other_id, "relation": "owns", "property": "city"}


class Keyed:
    """A service of two namespaces, and the headers of its keys."""

    def __init__(self, namespace: str) -> None:
        self.headers: dict[str, dict[str, str]] = {}
        lines = []
        for tenant in ("shop", "bank"):
            for scope in SCOPES:
                header, line = key_for(f"{tenant}-{scope}", f"{namespace}-{tenant}", scope)
                self.headers[f"{tenant}-{scope}"] = header
                lines.append(line)
        self.access = Access.of("# keys\n\n" + "\n".join(lines))
        self.http: RunningService

    async def ask(self, key_name: str | None, method: str, path: str, **options: Any) -> Any:
        headers = {} if key_name is None else self.headers[key_name]
        return await self.http.ask(method, path, headers=headers, **options)


@contextlib.asynccontextmanager
async def run_keyed_service(store: Any, namespace: str, limits: Limits = PATIENT) -> AsyncIterator[Keyed]:
    keyed = Keyed(namespace)
    async with contextlib.AsyncExitStack() as stack:
        memories = {name: await stack.enter_async_context(store.memory(name)) for name in keyed.access.namespaces}
        keyed.http = await stack.enter_async_context(run_service(Service(memories, keyed.access, limits)))
        yield keyed


@pytest.fixture
async def keyed(store: Any, namespace: str) -> AsyncIterator[Keyed]:
    async with run_keyed_service(store, namespace) as found:
        yield found


def test_every_route_is_covered_here() -> None:
    assert ("POST", "/v1/sessions/{session_id}/messages") in routes()
    assert {path for _, path in routes()} >= OPEN | set(BODY)


async def test_each_route_needs_a_known_key_with_the_right_scope(keyed: Keyed) -> None:
    foreign, _ = key_for("other", "other", *SCOPES)
    for method, path in routes():
        if path in OPEN:
            continue
        letter = next((letter for store, letter in LETTERS.items() if f"/{store}/" in path), "d")
        item_id = f"{letter}-01m82aett2z2xsfvmj"
        at = path.format(session_id="s", name="apollo", item_id=item_id, seq=1, **other_of(letter), **IDS)
        at += "?owner=nobody" if (method, path) == ("DELETE", "/v1/sessions") else ""
        body = None if method in ("GET", "DELETE") else BODY.get(path)
        for headers in ({}, foreign, {"Authorization": "Bearer"}, {"Authorization": "Basic eDp5"}):
            answer = await keyed.http.ask(method, at, headers=headers, json=body)
            assert (answer.status_code, answer.json()["code"]) == (401, "no_key"), (method, path)
            assert answer.headers["www-authenticate"] == "Bearer"
        reads = method == "GET" or path in READING
        needed = "admin" if path in ADMIN else "read" if reads else "write"
        for scope in set(SCOPES) - {needed}:
            answer = await keyed.ask(f"shop-{scope}", method, at, json=body)
            assert (answer.status_code, answer.json()["code"]) == (403, "not_allowed"), (method, path, scope)
        headers = keyed.headers[f"shop-{needed}"]
        async with keyed.http.client.stream(method, at, headers=headers, json=body) as allowed:  # streams have no end
            assert allowed.status_code in (200, 201, 204, 404), (method, path)


async def test_the_curl_command_of_the_docs_works(keyed: Keyed) -> None:
    line, *_ = re.findall(r"^curl .*$", (Path(__file__).parents[2] / "docs" / "http.md").read_text(), re.MULTILINE)
    curl, option, header, data, body, url = shlex.split(line)
    assert (curl, option, data) == ("curl", "-H", "-d")
    name, _, value = header.partition(": ")
    key = keyed.headers["shop-write"]["Authorization"].removeprefix("Bearer ")
    headers = {name: value.replace("$KEY", key), "Content-Type": "application/x-www-form-urlencoded"}
    answer = await keyed.http.ask("POST", url.removeprefix("localhost:8080"), headers=headers, content=body)
    assert (answer.status_code, answer.json()["session_id"]) == (201, "s-1")


async def test_open_routes_need_no_key(keyed: Keyed) -> None:
    for path in (*OPEN, "/openapi.json"):
        assert (await keyed.ask(None, "GET", path)).status_code == 200


async def test_a_key_sees_only_its_own_namespace(keyed: Keyed) -> None:
    assert (
        await keyed.ask("shop-write", "POST", "/v1/sessions/s/messages", json=numbered_message(1))
    ).status_code == 201
    assert (await keyed.ask("shop-read", "GET", "/v1/sessions/s")).json()["total_messages"] == 1
    assert (await keyed.ask("bank-read", "GET", "/v1/sessions/s")).status_code == 404
    assert (await keyed.ask("bank-read", "GET", "/v1/sessions")).json()["sessions"] == []
    assert (await keyed.ask("bank-admin", "GET", "/v1/queues")).json()["sessions"] == 0
    for scraped, other in (("shop", "bank"), ("bank", "shop")):
        metrics = (await keyed.ask(f"{scraped}-admin", "GET", "/metrics")).text
        named = set(re.findall(r'namespace="([^"]+)"', metrics))
        assert len(named) == 1, f"the key of {scraped} must not show {other}"
    assert (await keyed.ask("bank-write", "DELETE", "/v1/sessions/s")).status_code == 404
    assert (await keyed.ask("shop-read", "GET", "/v1/sessions/s")).status_code == 200


async def test_no_route_shows_or_changes_what_another_namespace_has(keyed: Keyed, raw: Any, namespace: str) -> None:
    """The key of the bank has all rights there, and knows each id of the shop."""
    shop = keyed.http.service.memories[f"{namespace}-shop"]
    said = {"role": "user", "content": "a canary"}
    await shop.session("s", owner="ann").append(said, merge={"word": "a canary"})
    project = shop.project("apollo")
    task, decision = await project.tasks.create("a canary"), await project.decisions.create("a canary")
    entity = await project.entities.create("a canary")
    talk = await project.conversations.start("a canary")
    await project.conversations.add(talk.id, said)
    before = await read_namespace(raw, f"{namespace}-shop")
    queries = ("", "?owner=ann", "?include_originals=true&include_hidden=true&newest=true&contains=s&q=canary")
    for method, path in routes():
        reads = method == "GET" or path in READING
        needed = "admin" if path in ADMIN else "read" if reads else "write"
        names: dict[str, Any] = {"name": "apollo", "seq": 1, **other_of("e" if "/entities" in path else "d")}
        named = (("s", task.id), (f"project:apollo:{talk.id}", decision.id), ("s", talk.id), ("s", entity.id))
        for session_id, item_id in named:
            at = path.format(session_id=quote(session_id, safe=""), item_id=item_id, **names, **IDS)
            for query in queries:
                headers, body = keyed.headers[f"bank-{needed}"], None if method == "GET" else BODY.get(path)
                async with keyed.http.client.stream(method, at + query, headers=headers, json=body) as answer:
                    is_endless = path.endswith("/events")  # its first event has all numbers
                    text = await anext(answer.aiter_text()) if is_endless else (await answer.aread()).decode()
                assert "canary" not in text, (method, at, query)
                assert answer.status_code < 500 or path in OPEN, (method, at, query)
    assert await read_namespace(raw, f"{namespace}-shop") == before


async def test_a_rate_limit_counts_over_all_servers(store: Any, namespace: str) -> None:
    limits = Limits(request_s=60, rate_per_s=0.001, rate_burst_count=6)
    async with run_keyed_service(store, namespace, limits) as one, run_keyed_service(store, namespace, limits) as other:
        other.headers = one.headers
        other.http.service.access = one.access
        answers = [await each.ask("shop-read", "GET", "/v1/sessions") for _ in range(5) for each in (one, other)]
        assert [answer.status_code for answer in answers] == [200] * 6 + [429] * 4
        refused = answers[-1]
        assert (refused.json()["code"], 900 < int(refused.headers["retry-after"]) <= 1_000) == (
            "too_many_requests",
            True,
        )
        assert (await one.ask("shop-admin", "GET", "/v1/queues")).status_code == 200
        assert (await one.ask(None, "GET", "/livez")).status_code == 200


async def test_neither_keys_nor_ids_nor_texts_are_logged(keyed: Keyed, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    text = {"role": "user", "content": "canary-text"}
    await keyed.ask("shop-write", "POST", "/v1/sessions/canary-session/messages", json=text)
    await keyed.ask("shop-write", "PATCH", "/v1/sessions/canary-session/state", json={"params": {"p": "canary-value"}})
    await keyed.ask("shop-read", "POST", "/v1/sessions/canary-session/messages", json=text)
    await keyed.http.ask("GET", "/v1/sessions", headers={"Authorization": "Bearer rmk_canary"})
    logged = "\n".join(
        record.getMessage() for record in caplog.records if record.name.startswith(("redismem", "uvicorn"))
    )
    assert "canary" not in logged
    assert "rmk_" not in logged


def test_only_hashes_are_kept() -> None:
    key, line = new_key("shop-app", "shop", ["read"])
    access = Access.of(line)
    assert key not in line + repr(access) + repr(vars(access))
    assert access.caller(f"bearer  {key} ".encode()).namespace == "shop"
    for wrong in (None, b"", b"Bearer", b"Bearer " + b"x" * 10_000, f"Bearer {key}x".encode(), b"Bearer \xff"):
        with pytest.raises(Problem, match="no_key"):
            access.caller(wrong)


@pytest.mark.parametrize(
    "line",
    ["a b read", "a b read xyz", "a b every " + "0" * 64, "a/b b read " + "0" * 64, "a b, read " + "0" * 64, "x " * 5],
)
def test_a_malformed_line_is_named_by_number_and_not_quoted(line: str) -> None:
    with pytest.raises(InvalidSettings) as refused:
        Access.of(f"# first\n{line}")
    assert "line 2" in str(refused.value)
    assert line not in str(refused.value)


def test_two_keys_with_one_name_are_refused() -> None:
    lines = [new_key("a", "b", ["read"])[1] for _ in range(2)]
    with pytest.raises(InvalidSettings, match="same name"):
        Access.of(";".join(lines))


def test_without_keys_all_requests_share_one_namespace() -> None:
    access = Access.of("# none\n", "shop")
    assert (access.is_open, access.namespaces) == (True, ("shop",))
    assert access.caller(None).scopes == set(SCOPES)
