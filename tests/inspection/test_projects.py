"""The check of projects finds no violation after any work, and reports each kind of damage."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from support.clock import ProjectClock
from support.commands import run_command

from redismem import Memory
from redismem.inspection.projects import check_projects
from redismem.project.project import Project
from redismem.protocol.project import imports
from redismem.protocol.project.imports import Pieces


async def find_violations(memory: Memory) -> list[tuple[str, str]]:
    return [(violation.invariant, violation.text) async for violation in check_projects(memory.store)]


async def create_project(memory: Memory) -> Project:
    """Create a project with every kind of item, link and change."""
    clock = ProjectClock()
    apollo = clock.set_in(memory).project("apollo")
    old = await apollo.decisions.create("Use Postgres", tags=["db"])
    late = clock.tick()
    clock.tick()
    await apollo.decisions.update(old.id, description="a change")
    await apollo.decisions.accept(old.id, at=late)
    new = await apollo.decisions.supersede(old.id, title="Use Redis")
    first = await apollo.tasks.create("Move", status="in_progress", due_date=late, related_decisions=[new.id])
    second = await apollo.tasks.create("Write", dependencies=[first.id], assignee="Ada")
    await apollo.tasks.block(second.id, first.id)
    ada, redis = await apollo.entities.create("Ada", "person"), await apollo.entities.create("Redis")
    await apollo.entities.link(ada.id, "runs", redis.id)
    double = await apollo.entities.create("A.")
    await apollo.entities.merge(ada.id, double.id)
    await apollo.entities.add_mention(redis.id, "here", at=late)
    gone = await apollo.tasks.create("gone")
    await apollo.tasks.delete(gone.id)
    return apollo


async def test_a_project_has_no_violations_after_work(memory: Memory) -> None:
    assert await find_violations(memory) == []
    apollo = await create_project(memory)
    assert await find_violations(memory) == []
    task = (await apollo.tasks.list(text="move"))[0]
    await apollo.tasks.complete(task.id)
    await apollo.decisions.clear()
    assert await find_violations(memory) == []


async def drop_an_index_entry(raw: Any, keys: Any, ids: dict[str, str]) -> None:
    await raw.zrem(keys.index("d", "open"), ids["new"])


async def add_an_index_entry(raw: Any, keys: Any, ids: dict[str, str]) -> None:
    await raw.zadd(keys.index("d", "open"), {ids["old"]: 5})


async def move_in_an_index(raw: Any, keys: Any, ids: dict[str, str]) -> None:
    await raw.zadd(keys.index("t", "all"), {ids["first"]: 5})


async def leave_a_word(raw: Any, keys: Any, ids: dict[str, str]) -> None:
    await raw.zadd(keys.index("t", "words"), {"nothing": 0})


async def leave_a_tag(raw: Any, keys: Any, ids: dict[str, str]) -> None:
    await raw.zadd(keys.index("d", "tags"), {"Postgres": 0})


async def lose_a_version(raw: Any, keys: Any, ids: dict[str, str]) -> None:
    await raw.hdel(keys.versions(ids["old"]), "2")


async def swap_versions(raw: Any, keys: Any, ids: dict[str, str]) -> None:
    await raw.hset(keys.versions(ids["old"]), "2", await raw.hget(keys.versions(ids["old"]), "1"))


async def break_a_body(raw: Any, keys: Any, ids: dict[str, str]) -> None:
    await raw.hset(keys.items, ids["first"], "2 nothing")


async def add_a_foreign_field(raw: Any, keys: Any, ids: dict[str, str]) -> None:
    await raw.hset(keys.items, "Postgres", "2 nothing")


async def lose_an_item(raw: Any, keys: Any, ids: dict[str, str]) -> None:
    await raw.hdel(keys.items, ids["ada"])


async def take_a_name(raw: Any, keys: Any, ids: dict[str, str]) -> None:
    await raw.hset(keys.names, "redis", ids["ada"])


async def add_a_name(raw: Any, keys: Any, ids: dict[str, str]) -> None:
    await raw.hset(keys.names, "nobody", ids["ada"])


async def half_a_link(raw: Any, keys: Any, ids: dict[str, str]) -> None:
    body = await raw.hget(keys.items, ids["new"])
    await raw.hset(keys.items, ids["new"], body.replace(ids["first"].encode(), b"t-000000000000000000"))


DAMAGE: list[tuple[Callable[[Any, Any, dict[str, str]], Awaitable[None]], str, str]] = [
    (drop_an_index_entry, "P2", "is missing in the index d:open"),
    (add_an_index_entry, "P2", "is in the index d:open, but does not belong there"),
    (move_in_an_index, "P2", "has a wrong place in the index t:all"),
    (leave_a_word, "P2", "a word is in the index t:words"),
    (leave_a_tag, "P2", "a word is in the index d:tags"),
    (lose_a_version, "P1", "versions are stored, expected"),
    (swap_versions, "P1", "differs from its versions"),
    (break_a_body, "P1", "cannot be decoded"),
    (add_a_foreign_field, "P1", "is no id of an item"),
    (lose_an_item, "P2", "does not belong there"),
    (take_a_name, "P4", "does not lead to it"),
    (add_a_name, "P4", "which does not have it"),
    (half_a_link, "P3", "does not name it in"),
]


@pytest.mark.parametrize(("damage", "rule", "said"), DAMAGE, ids=[each[0].__name__ for each in DAMAGE])
async def test_damage_is_reported(memory: Memory, raw: Any, damage: Any, rule: str, said: str) -> None:
    apollo = await create_project(memory)
    every = await apollo.decisions.list(include_superseded=True)
    ids = {"new": every[0].id, "old": every[1].id} if every[0].supersedes else {"new": every[1].id, "old": every[0].id}
    ids["first"] = (await apollo.tasks.list(text="move"))[0].id
    ids["ada"] = (await apollo.entities.list(text="ada"))[0].id
    await damage(raw, apollo._items.keys, ids)
    violations = await find_violations(memory)
    assert [text for name, text in violations if name == rule and said in text], violations
    assert not [text for _, text in violations if "Postgres" in text or "Ada" in text]


async def test_a_cycle_of_decisions_is_reported(memory: Memory) -> None:
    apollo = await create_project(memory)
    (old,) = await apollo.decisions.list(status="superseded")
    (new,) = await apollo.decisions.active()
    first, second = sorted((old.id, new.id))
    change = await apollo._items.change()
    change.alter(await apollo._items.get(old.id), sets={"supersedes": new.id})
    change.alter(await apollo._items.get(new.id), sets={"superseded_by": old.id})
    await change.commit()
    assert await find_violations(memory) == [("P3", f"{first} is superseded by itself, over {second}: a circle")]


async def test_the_command_covers_projects(direct_memory: Memory, redis_server: Any, namespace: str) -> None:
    apollo = await create_project(direct_memory)
    import redis.asyncio

    async with redis.asyncio.Redis(port=redis_server.port) as raw:
        await raw.delete(apollo._items.keys.index("d", "open"))
    bad = run_command("doctor", "--deep", "--json", "--url", redis_server.url, "--namespace", namespace)
    assert (bad.code, json.loads(bad.out)["violations"][0]["invariant"]) == (1, "P2")


async def test_an_unapplied_import_is_reported_and_left_alone(memory: Memory) -> None:
    apollo = await create_project(memory)
    items = apollo._items
    seen = await memory.store.run(imports.read_change_count(items.keys))
    gathered = Pieces()
    gathered.add("HSET", items.keys.names, "a", "1")
    (piece,) = gathered.cut()
    await memory.store.run(imports.stage(items.keys, "n", 1, piece))
    await memory.store.run(imports.commit(items.keys, "n", seen))
    assert [rule for rule, _ in await find_violations(memory)] == ["P5"]
    assert await memory.store.run(imports.list_pieces(items.keys)) == [b"1"], "looking writes nothing"
    assert await items.run(items.calls.holder("a")) == "1"
