"""The routes of projects, over a real connection and on both stores."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from support.clock import ProjectClock
from support.http_service import SLOTS, RunningService, serve_memory

from redismem import Memory
from redismem.project.project import Project
from redismem.slots import Slots
from redismem.web.access import Access, new_key
from redismem.web.chat.chat import Chat


@pytest.fixture
def clock() -> ProjectClock:
    return ProjectClock()


@pytest.fixture
def apollo(memory: Memory) -> Project:
    return memory.project("apollo")


def moment(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds")


async def ids(http: RunningService, path: str, **params: Any) -> list[str]:
    answer = await http.ask("GET", f"/v1/projects/apollo/{path}", params=params)
    assert answer.status_code == 200, answer.text
    return [each["id"] for each in answer.json()["items"]]


async def test_lists_show_the_items_now_and_at_a_moment(
    http: RunningService, apollo: Project, clock: ProjectClock
) -> None:
    old = await apollo.decisions.create("Use Postgres", tags=["db"], status="accepted")
    then = clock.now
    clock.tick()
    new = await apollo.decisions.supersede(old.id, title="Use Redis")
    task = await apollo.tasks.create("Move", assignee="Ada", priority="high")
    ada = await apollo.entities.create("Ada", "person")
    assert (await http.ask("GET", "/v1/projects")).json() == {"projects": ["apollo"]}
    assert await ids(http, "decisions") == [new.id]
    assert await ids(http, "decisions", at=then.isoformat()) == [old.id]
    assert await ids(http, "decisions", status="superseded", text="post", tag="db") == [old.id]
    assert await ids(http, "tasks", assignee="ada", priority="high") == [task.id]
    assert await ids(http, "entities", type="person") == [ada.id]
    assert await ids(http, f"decisions/{old.id}/chain") == [old.id, new.id]
    found = (await http.ask("GET", f"/v1/projects/apollo/decisions/{old.id}", params={"at": then.isoformat()})).json()
    assert (found["status"], found["valid_until"], found["history"][0]["status"]) == ("accepted", None, "accepted")
    assert found["created_at"] == then.isoformat(timespec="milliseconds")
    context = (await http.ask("GET", "/v1/projects/apollo/context", params={"term": ["ad"]})).json()
    assert "- Ada (person)" in context["text"]
    assert context["summary"]["tasks_count"] == 1


async def test_pages_follow_each_other(http: RunningService, apollo: Project, clock: ProjectClock) -> None:
    for number in range(5):
        clock.tick()
        await apollo.tasks.create(f"t{number}")
    titles: list[str] = []
    params: dict[str, Any] = {"limit": 2}
    while True:
        page = (await http.ask("GET", "/v1/projects/apollo/tasks", params=params)).json()
        titles += [each["title"] for each in page["items"]]
        if page["cursor"] is None:
            break
        params["cursor"] = page["cursor"]
    assert titles == ["t4", "t3", "t2", "t1", "t0"]


async def test_a_task_moves_over_the_board(http: RunningService, apollo: Project) -> None:
    task = await apollo.tasks.create("Move")

    async def to(status: str, **more: Any) -> Any:
        return await http.ask("POST", f"/v1/projects/apollo/tasks/{task.id}/status", json={"status": status, **more})

    for status in ("planned", "in_progress"):
        assert (await to(status)).json()["status"] == status
    blocked = (await to("blocked", blocked_by="a review", reason="late")).json()
    assert (blocked["blocked_by"], blocked["history"][-1]["reason"]) == (["a review"], "late")
    refused = await to("completed")
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid")
    assert "blocked cannot become completed" in refused.json()["detail"]
    assert (refused.json()["before"], refused.json()["after"]) == ("blocked", "completed")
    stale = await to("in_progress", expect=1)
    assert (stale.status_code, stale.json()["code"]) == (409, "conflict")
    assert (await to("in_progress", expect=4)).status_code == 200
    for status in ("completed", "backlog", "cancelled"):
        assert (await to(status)).json()["status"] == status
    assert (await to("blocked", blocked_by="a review")).json()["before"] == "cancelled"
    await to("backlog")
    await to("planned")
    assert (await to("blocked")).json()["code"] == "invalid"
    await to("blocked", blocked_by="a review")
    free = (await to("unblocked", reason="reviewed")).json()
    assert (free["status"], free["blocked_by"], free["history"][-1]["reason"]) == ("planned", [], "reviewed")
    assert (await to("unblocked")).json()["before"] == "planned"


async def test_a_board_has_one_column_per_status_now_and_at_a_moment(
    http: RunningService, apollo: Project, clock: ProjectClock
) -> None:
    ids = [(await apollo.tasks.create(f"t{number}", status="in_progress")).id for number in range(3)]
    then = clock.now.isoformat()
    clock.tick()
    await apollo.tasks.complete(ids[0])
    await apollo.tasks.cancel(ids[1])

    async def board(**params: Any) -> dict[str, tuple[list[str], bool]]:
        answer = await http.ask("GET", "/v1/projects/apollo/board", params=params)
        columns = answer.json()["columns"]
        return {each["status"]: ([task["id"] for task in each["items"]], each["more"]) for each in columns}

    empty: tuple[list[str], bool] = ([], False)
    now = await board()
    assert list(now) == ["backlog", "planned", "in_progress", "blocked", "completed", "cancelled"]
    assert (now["completed"], now["cancelled"], now["planned"]) == (([ids[0]], False), ([ids[1]], False), empty)
    past = await board(at=then, limit=2)
    assert (len(past["in_progress"][0]), past["in_progress"][1], past["completed"]) == (2, True, empty)


async def test_a_project_shows_its_life_and_an_item_its_changes(
    http: RunningService, apollo: Project, clock: ProjectClock
) -> None:
    assert (await http.ask("GET", "/v1/projects/apollo")).json() == {
        "name": "apollo",
        "first_at": None,
        "last_at": None,
    }
    clock.tick(100)
    begun = clock.now
    old = await apollo.decisions.create("Use Postgres", at=begun - timedelta(seconds=60))
    clock.tick()
    task = await apollo.tasks.create("Move", related_decisions=[old.id])
    clock.tick()
    new = await apollo.decisions.supersede(old.id, title="Use Redis", reason="too slow")
    life = (await http.ask("GET", "/v1/projects/apollo")).json()
    assert (life["first_at"], life["last_at"]) == (moment(begun - timedelta(seconds=60)), moment(clock.now))
    path = f"/v1/projects/apollo/decisions/{old.id}"
    first, linked, last = (await http.ask("GET", f"{path}/versions")).json()["versions"]
    assert (first["at"], first["known_at"], linked["fields"]) == (life["first_at"], moment(begun), ["related_tasks"])
    assert (last["version"], last["reason"], last["at"]) == (3, "too slow", life["last_at"])
    assert (await http.ask("GET", f"{path}/links")).json() == {"links": {new.id: "Use Redis", task.id: "Move"}}
    then = {"at": moment(begun)}
    assert (await http.ask("GET", f"{path}/links", params=then)).json() == {"links": {}}
    chain = (await http.ask("GET", f"{path}/chain", params=then)).json()["items"]
    assert [(each["id"], each["status"]) for each in chain] == [(old.id, "proposed")]
    both = (await http.ask("GET", "/v1/projects/apollo/decisions", params={"include_superseded": "true"})).json()
    assert {each["id"] for each in both["items"]} == {old.id, new.id}
    await apollo.tasks.delete(task.id)
    assert (await http.ask("GET", f"{path}/links")).json() == {"links": {new.id: "Use Redis"}}
    assert (await http.ask("GET", f"/v1/projects/apollo/tasks/{task.id}/versions")).status_code == 200


async def test_a_project_hides_properties_named_like_sensitive_params(memory: Memory, apollo: Project) -> None:
    ada = await apollo.entities.create("Ada", "person", properties={"card": "4111", "desk": 12})
    async with serve_memory(memory, chat=Chat(slots=Slots.from_toml(SLOTS))) as http:
        for path in (f"entities/{ada.id}", "entities"):
            answer = await http.ask("GET", f"/v1/projects/apollo/{path}")
            found = answer.json().get("items", [answer.json()])[0]
            assert (found["properties"], found["hidden_properties"]) == ({"card": None, "desk": 12}, ["card"])
            assert "4111" not in answer.text
        for query in ("", "?term=ada"):
            answer = await http.ask("GET", f"/v1/projects/apollo/context{query}")
            assert "- Ada (person) {desk: 12}" in answer.json()["text"]


WRONG = {
    "decisions/d-000000000000000000": 404,
    "decisions/nonsense": 422,
    "decisions/d-000000000000000000/chain": 404,
    "nothing": 404,
    "tasks?at=yesterday": 422,
    "tasks?at=2026-01-01": 422,
    "tasks?type=person": 422,
    "tasks?status=odd": 422,
    "tasks?include_superseded=true": 422,
    "tasks?cursor=x": 422,
    "board?limit=0": 422,
    "tasks/t-000000000000000000/versions": 404,
    "tasks/t-000000000000000000/links": 404,
    "context?max_tokens=49": 422,
}


async def test_missing_items_and_wrong_filters_are_refused(http: RunningService) -> None:
    answers = {path: await http.ask("GET", f"/v1/projects/apollo/{path}") for path in WRONG}
    assert {path: answer.status_code for path, answer in answers.items()} == WRONG


async def test_a_key_with_the_scope_read_cannot_move_a_task(memory: Memory, apollo: Project) -> None:
    task = await apollo.tasks.create("Move")
    key, line = new_key("reader", memory.store.keys.namespace, ["read"])
    async with serve_memory(memory, access=Access.of(line)) as http:
        bearer = {"authorization": f"Bearer {key}"}
        path = f"/v1/projects/apollo/tasks/{task.id}"
        assert (await http.ask("GET", path)).status_code == 401
        assert (await http.ask("GET", path, headers=bearer)).status_code == 200
        refused = await http.ask("POST", f"{path}/status", headers=bearer, json={"status": "planned"})
        assert refused.status_code == 403
    assert (await apollo.tasks.get(task.id)).version == 1


async def test_an_item_is_erased_once_with_its_versions(http: RunningService, apollo: Project) -> None:
    made = await apollo.decisions.create("Use Postgres")
    await apollo.decisions.update(made.id, rationale="cheap")
    path = f"/v1/projects/apollo/decisions/{made.id}"
    assert (await http.ask("DELETE", path)).status_code == 204
    assert [(await http.ask("GET", each)).status_code for each in (path, f"{path}/versions")] == [404, 404]
    again = await http.ask("DELETE", path)
    assert (again.status_code, again.json()["code"]) == (404, "not_found")


async def test_the_first_task_creates_the_project(http: RunningService) -> None:
    assert (await http.ask("GET", "/v1/projects")).json() == {"projects": []}
    created = await http.ask("POST", "/v1/projects/mercury/tasks", json={"title": "Move", "priority": "high"})
    assert created.status_code == 201
    task = created.json()
    assert (task["title"], task["status"], task["priority"], task["version"]) == ("Move", "backlog", "high", 1)
    assert (await http.ask("GET", "/v1/projects")).json() == {"projects": ["mercury"]}
    assert (await http.ask("GET", f"/v1/projects/mercury/tasks/{task['id']}")).json() == task
    for name, wrong in (
        ("mercury", {}),
        ("mercury", {"title": ""}),
        ("mercury", {"title": "a", "x": 1}),
        ("-", {"title": "a"}),
    ):
        assert (await http.ask("POST", f"/v1/projects/{name}/tasks", json=wrong)).json()["code"] == "invalid"
