"""No change grows so large that its script blocks other clients."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest

from redismem import InvalidItem, TooLarge
from redismem.project.items import fields, links
from redismem.project.items.schema import TASK
from redismem.project.project import Project


async def test_no_task_has_more_dependents_than_one_change_can_follow(
    apollo: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "DEPENDENTS_COUNT", 3)
    needed = await apollo.tasks.create("needed", status="in_progress")
    others = [(await apollo.tasks.create(f"t{number}")).id for number in range(4)]
    for each in others[:3]:
        await apollo.tasks.add_dependency(each, needed.id)
        await apollo.tasks.block(each, needed.id)
    for refused in (
        lambda: apollo.tasks.add_dependency(others[3], needed.id),
        lambda: apollo.tasks.block(others[3], needed.id),
        lambda: apollo.tasks.create("new", dependencies=[needed.id]),
    ):
        with pytest.raises(TooLarge, match="3 tasks depend on"):
            await refused()
    await apollo.tasks.complete(needed.id)
    assert {(await apollo.tasks.get(each)).status for each in others} == {"backlog"}


async def test_a_change_has_a_bounded_number_of_steps(apollo: Project) -> None:
    change = await apollo._items.change()
    text = " ".join(f"word{number}" for number in range(600))
    for number in range(6):
        change.create(TASK, {"title": f"t{number}", "description": text, "status": "backlog"})
    with pytest.raises(TooLarge, match="over 5,000"):
        await change.commit()
    assert await apollo.tasks.count() == 0


async def test_a_reason_is_a_text_of_some_length(apollo: Project) -> None:
    task = await apollo.tasks.create("t")
    with pytest.raises(TooLarge, match="1001 characters"):
        await apollo.tasks.start(task.id, "x" * 1_001)
    with pytest.raises(InvalidItem):
        await apollo.tasks.start(task.id, 5)  # type: ignore[arg-type]


async def test_a_list_of_links_has_an_end(apollo: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fields, "LIST_COUNT", 2)
    task = await apollo.tasks.create("t")
    for number in range(2):
        await apollo.tasks.block(task.id, f"reason {number}")
    with pytest.raises(TooLarge, match="more than 2 blocked by"):
        await apollo.tasks.block(task.id, "one more")


async def test_a_name_that_is_nearly_right_is_told(apollo: Project) -> None:
    due: Any = {"due": datetime.now(UTC)}
    other: Any = {"colour": 1}
    for refused, text in {
        apollo.tasks.create("t", **due): "no task has a field due to set; did you mean due_date?",
        apollo.tasks.list(**due): "no task can be asked for by due; did you mean due_after?",
        apollo.entities.count(**other): "no entity can be asked for by colour",
    }.items():
        with pytest.raises(InvalidItem, match=f"^{re.escape(text)}$"):
            await refused
