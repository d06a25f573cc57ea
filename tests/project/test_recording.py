"""A change under an id is made once, whatever comes in between."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from redismem import Conflict, InvalidItem, Memory
from redismem.project.items.schema import DECISION, ENTITY, TASK
from redismem.project.project import Project
from redismem.project.recording import ChangeName, change_once

NAMED = ChangeName("request-1", b"{}")


async def test_concurrent_attempts_make_one_change(memory: Memory) -> None:
    apollo = memory.project("apollo")

    async def attempt() -> tuple[Any, bool]:
        return await change_once(apollo, memory.store, NAMED, TASK, lambda project: project.tasks.create("Move"))

    results = await asyncio.gather(*(attempt() for _ in range(5)))
    assert sum(is_made for _, is_made in results) == 1
    (task,) = await apollo.tasks.list()
    assert {item.id for item, _ in results} == {task.id}

    ada = await apollo.entities.create("Ada")
    named = ChangeName("request-2", b"{}")

    async def mention(project: Project) -> Any:
        return await project.entities.add_mention(ada.id, "moves")

    results = await asyncio.gather(
        *(change_once(apollo, memory.store, named, ENTITY, mention, ada.id) for _ in range(5))
    )
    assert sum(is_made for _, is_made in results) == 1
    assert {item.mention_count for item, _ in results} == {1}


async def test_a_known_change_is_not_made_behind_others_and_a_foreign_one_is_refused(memory: Memory) -> None:
    apollo = memory.project("apollo")
    old = await apollo.decisions.create("Use Postgres", status="accepted")

    async def supersede(project: Project) -> Any:
        return await project.decisions.supersede(old.id, title="Use Redis")

    made, is_made = await change_once(apollo, memory.store, NAMED, DECISION, supersede)
    assert is_made
    await apollo.decisions.update(made.id, rationale="fast")
    again, is_made = await change_once(apollo, memory.store, NAMED, DECISION, supersede)
    assert (again.id, again.rationale, is_made) == (made.id, "fast", False)
    with pytest.raises(InvalidItem, match="another change"):
        await change_once(apollo, memory.store, ChangeName("request-1", b"{ }"), DECISION, supersede)
    with pytest.raises(Conflict):  # a refused change is not known
        await change_once(
            apollo,
            memory.store,
            ChangeName("request-2", b""),
            DECISION,
            lambda project: project.decisions.update(made.id, expect=1, title="x"),
            made.id,
        )
    changed, is_made = await change_once(
        apollo,
        memory.store,
        ChangeName("request-2", b""),
        DECISION,
        lambda project: project.decisions.update(made.id, expect=2, title="x"),
        made.id,
    )
    assert (changed.title, is_made) == ("x", True)
