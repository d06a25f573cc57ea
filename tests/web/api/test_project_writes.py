"""The routes that write projects, over a real connection and on both stores."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from support.clock import ProjectClock
from support.http_service import SLOTS, RunningService, serve_memory

from redismem import Memory
from redismem.slots import Slots
from redismem.web.access import Access, new_key
from redismem.web.chat.chat import Chat


@pytest.fixture
def clock() -> ProjectClock:
    return ProjectClock()


class Calls:
    """Requests about one project."""

    def __init__(self, http: RunningService) -> None:
        self._http = http

    async def __call__(self, status: int, method: str, path: str, body: Any = None, **options: Any) -> Any:
        given = {} if body is None else {"json": body}
        answer = await self._http.ask(method, f"/v1/projects/apollo/{path}", **given, **options)
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None


@pytest.fixture
def call(http: RunningService) -> Calls:
    return Calls(http)


async def test_decisions_are_recorded_superseded_and_read_as_of_a_moment(call: Calls, clock: ProjectClock) -> None:
    begun = clock.now - timedelta(days=7)
    new = {
        "title": "Use Postgres",
        "rationale": "known",
        "alternatives": ["SQLite"],
        "tags": ["db"],
        "valid_from": begun.isoformat(),
        "valid_until": (clock.now + timedelta(days=30)).isoformat(),
    }
    old = await call(201, "POST", "decisions", new)
    assert (old["status"], old["valid_from"][:10], old["alternatives"]) == ("accepted", "2099-12-25", ["SQLite"])
    assert await call(200, "POST", "decisions", {"title": "Use  Postgres"}) == old, "the rule of MCP's tools"
    clock.tick()
    successor = {"title": "Use Redis", "supersedes": old["id"], "reason": "too slow"}
    key = {"headers": {"idempotency-key": "k-1"}}
    made = await call(201, "POST", "decisions", successor, **key)
    assert await call(200, "POST", "decisions", successor, **key) == made
    assert (await call(422, "POST", "decisions", {"title": "Other"}, **key))["code"] == "invalid"
    assert made["supersedes"] == old["id"]
    path = f"decisions/{old['id']}"
    ended = await call(200, "GET", path)
    assert (ended["status"], ended["superseded_by"], ended["history"][-1]["reason"]) == (
        "superseded",
        made["id"],
        "too slow",
    )
    assert (await call(200, "GET", path, params={"at": begun.isoformat()}))["status"] == "accepted"

    third = await call(201, "POST", "decisions", {"title": "Use files", "status": "proposed"})
    status = f"decisions/{third['id']}/status"
    accepted = await call(200, "POST", status, {"status": "accepted", "reason": "all agree", "expect": 1})
    assert await call(200, "POST", status, {"status": "accepted"}) == accepted
    assert (await call(409, "POST", status, {"status": "deprecated", "expect": 1}))["code"] == "conflict"
    refused = await call(422, "POST", f"decisions/{old['id']}/status", {"status": "accepted"})
    assert (refused["before"], refused["after"]) == ("superseded", "accepted")
    by = {"status": "superseded", "superseded_by": third["id"]}
    assert (await call(200, "POST", f"decisions/{made['id']}/status", by))["superseded_by"] == third["id"]
    chain = await call(200, "GET", f"{path}/chain")
    assert [each["title"] for each in chain["items"]] == ["Use Postgres", "Use Redis", "Use files"]


async def test_tasks_are_recorded_changed_linked_and_ended(call: Calls, clock: ProjectClock) -> None:
    due = "2100-02-01T00:00:00.000+00:00"
    first = await call(201, "POST", "tasks", {"title": "Plan", "priority": "high", "assignee": "Ada", "due_date": due})
    assert (first["due_date"], first["status"]) == (due, "backlog")
    assert await call(200, "POST", "tasks", {"title": "Plan"}) == first
    for _ in range(2):
        second = await call(
            201 if not _ else 200,
            "POST",
            "tasks",
            {"title": "Plan", "status": "in_progress", "dependencies": [first["id"]]},
            headers={"idempotency-key": "a second one of this title"},
        )
    assert (second["id"] != first["id"], second["dependencies"]) == (True, [first["id"]])
    path = f"tasks/{second['id']}"
    changed = await call(200, "PATCH", path, {"title": "Move", "assignee": "Bo", "expect": 1})
    assert (changed["title"], changed["assignee"], changed["version"]) == ("Move", "Bo", 2)
    late = await call(409, "PATCH", path, {"title": "Late", "expect": 1})
    assert (late["code"], {"last_seq", "cleared"} & late.keys()) == ("conflict", set())
    assert (await call(200, "PATCH", path, {"assignee": None, "due_date": due}))["assignee"] is None
    cycle = await call(422, "PUT", f"tasks/{first['id']}/links/{second['id']}")
    assert "cycle" in cycle["detail"]
    assert (await call(200, "DELETE", f"{path}/links/{first['id']}"))["dependencies"] == []
    decision = await call(201, "POST", "decisions", {"title": "Move it"})
    assert (await call(200, "PUT", f"{path}/links/{decision['id']}"))["related_decisions"] == [decision["id"]]
    linked = await call(200, "DELETE", f"decisions/{decision['id']}/links/{second['id']}")
    assert linked["related_tasks"] == []
    then = clock.now.isoformat()
    clock.tick()
    assert (await call(422, "DELETE", path, params={"expect": 1}))["code"] == "invalid"
    await call(409, "DELETE", path, params={"keep_versions": "true", "expect": 1})
    await call(204, "DELETE", path, params={"keep_versions": "true"})
    await call(404, "GET", path)
    assert (await call(200, "GET", path, params={"at": then}))["title"] == "Move"
    await call(204, "DELETE", path)
    await call(404, "GET", path, params={"at": then})


async def test_entities_have_facts_relations_and_mentions(memory: Memory) -> None:
    async with serve_memory(memory, chat=Chat(slots=Slots.from_toml(SLOTS))) as http:
        call = Calls(http)
        ada = await call(201, "POST", "entities", {"name": "Ada", "properties": {"card": "4111"}})
        known = await call(200, "POST", "entities", {"name": "ADA", "type": "person", "description": "moves data"})
        assert (known["id"], known["type"], known["properties"]) == (ada["id"], "person", {"card": None})
        path = f"entities/{ada['id']}"
        fact = {"value": {"city": ["Rome"]}, "expect": known["version"]}
        told = await call(200, "PUT", f"{path}/properties/home%20address", fact)
        assert (told["properties"]["home address"], told["hidden_properties"]) == ({"city": ["Rome"]}, ["card"])
        assert (await call(409, "PUT", f"{path}/properties/x", {"value": 1, "expect": 1}))["code"] == "conflict"
        assert (await call(200, "DELETE", f"{path}/properties/home%20address"))["properties"] == {"card": None}
        for key, count in (("m-1", 1), ("m-1", 1), ("m-2", 2)):
            mention = {"context": "moved it", "source": "session 7"}
            told = await call(200, "POST", f"{path}/mentions", mention, headers={"idempotency-key": key})
            assert told["mention_count"] == count
        assert told["mentions"][0]["source"] == "session 7"
        team = await call(201, "POST", "entities", {"name": "Team Ü"})
        related = await call(200, "PUT", f"{path}/relations/geh%C3%B6rt%20zu/{team['id']}")
        assert related["relations"] == [{"name": "gehört zu", "entity_id": team["id"], "outgoing": True}]
        assert (await call(200, "GET", f"entities/{team['id']}"))["relations"][0]["outgoing"] is False
        assert (await call(200, "DELETE", f"{path}/relations/geh%C3%B6rt%20zu/{team['id']}"))["relations"] == []
        twin = await call(201, "POST", "entities", {"name": "Ada L.", "properties": {"desk": 12}})
        merged = await call(200, "POST", f"{path}/merge", {"duplicate": twin["id"]})
        assert (merged["aliases"], merged["properties"]["desk"]) == (["Ada L."], 12)
        renamed = await call(200, "PATCH", path, {"name": "Ada Lovelace", "properties": {"desk": 14}})
        assert (renamed["name"], renamed["properties"]) == ("Ada Lovelace", {"desk": 14})
        assert (await call(409, "PATCH", f"entities/{team['id']}", {"name": "ada lovelace"}))["code"] == "conflict"
        text = (await call(200, "GET", "context", params={"term": ["ada"]}))["text"]
        assert "Ada Lovelace (person) moves data {desk: 14}" in text


WRONG: list[tuple[str, str, Any, int]] = [
    ("POST", "decisions", {"title": ""}, 422),
    ("POST", "decisions", {"title": "a", "status": "superseded"}, 422),
    ("POST", "decisions", {"title": "a", "reason": "no supersedes"}, 422),
    ("POST", "decisions", {"title": "a", "valid_from": 5}, 422),
    ("POST", "decisions", {"title": "a", "valid_from": "2020-01-01"}, 422),
    ("POST", "decisions", {"title": "a", "valid_from": "2999-01-01T00:00:00Z"}, 422),
    ("POST", "decisions", {"title": "a", "valid_from": "0001-01-01T00:00:00+14:00"}, 422),
    ("POST", "tasks", {"title": "a", "due_date": "9999-12-31T23:59:59-14:00"}, 422),
    ("POST", "decisions", {"title": "a", "supersedes": "d-000000000000000000"}, 404),
    ("POST", "decisions", {"title": "a", "related_tasks": ["t-000000000000000000"]}, 404),
    ("POST", "decisions", {"title": "a", "rationale": "ü" * 16_000}, 413),
    ("POST", "tasks", {"title": "a", "tags": ["x"] * 201}, 422),
    ("POST", "tasks", {"title": "a", "dependencies": ["nonsense"]}, 422),
    ("POST", "entities", {"name": "a", "type": "odd"}, 422),
    ("POST", "entities", {"name": "a", "properties": {"p": "x" * 20_000}}, 413),
    ("PATCH", "tasks/t-000000000000000000", {"title": "a"}, 404),
    ("PATCH", "tasks/nonsense", {"title": "a"}, 422),
    ("PATCH", "tasks/t-000000000000000000", {}, 422),
    ("PATCH", "tasks/t-000000000000000000", {"status": "planned"}, 422),
    ("PUT", "entities/e-000000000000000000/properties/%ff", {"value": 1}, 400),
    ("PUT", "entities/e-000000000000000000/properties/x", {}, 422),
]


async def test_mistakes_are_refused_and_nothing_is_written(http: RunningService, memory: Memory) -> None:
    for method, path, body, status in WRONG:
        answer = await http.ask(method, f"/v1/projects/apollo/{path}", json=body)
        assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json"), body
    assert (await http.ask("GET", "/v1/projects")).json() == {"projects": []}
    assert await memory.project("apollo").life() is None


async def test_no_key_without_the_scope_write_or_of_one_owner_writes_to_a_project(memory: Memory, http: Any) -> None:
    namespace = memory.store.keys.namespace
    reader, line = new_key("reader", namespace, ["read"])
    owned, owned_line = new_key("app", namespace, ["read", "write"], "ann")
    document = (await http.ask("GET", "/openapi.json")).json()
    async with serve_memory(memory, access=Access.of(f"{line}\n{owned_line}")) as closed:
        for path, methods in document["paths"].items():
            if not path.startswith("/v1/projects"):
                continue
            for method in methods.keys() - {"get"}:
                for key in (reader, owned):
                    bearer = {"authorization": f"Bearer {key}"}
                    asked = path.replace("{name}", "apollo").replace("{store}", "tasks")
                    answer = await closed.ask(method.upper(), asked, headers=bearer, json={})
                    assert (answer.status_code, answer.json()["code"]) == (403, "not_allowed"), path
