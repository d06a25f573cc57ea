"""Consolidation and statistics: obsolete items are archived, duplicates merged, and the counts are right."""

from __future__ import annotations

from datetime import timedelta

import pytest
from support.clock import ProjectClock

from redismem import InvalidItem
from redismem.project.project import Project

DAY_S = 86_400


async def test_it_says_what_it_would_do_before_it_does_it(apollo: Project, clock: ProjectClock) -> None:
    old = await apollo.decisions.create("old", tags=["x"])
    new = await apollo.decisions.supersede(old.id, title="new")
    cancelled, done = await apollo.tasks.create("cancelled"), await apollo.tasks.create("done", status="in_progress")
    await apollo.tasks.cancel(cancelled.id)
    await apollo.tasks.complete(done.id)
    first = await apollo.entities.create("Redis-Server", "technology")
    clock.tick()
    second = await apollo.entities.create("redis server", "technology")
    await apollo.entities.create("REDIS_SERVER", "person")
    then = clock.now
    clock.tick(91 * DAY_S)
    late = await apollo.tasks.create("late")
    await apollo.tasks.cancel(late.id)
    told = await apollo.consolidate()
    assert told.dry_run
    assert set(told.archived) == {old.id, cancelled.id}
    assert told.merged == ((first.id, second.id),)
    assert {each.id for each in await apollo.decisions.list(include_superseded=True)} == {new.id, old.id}
    did = await apollo.consolidate(dry_run=False)
    assert (did.archived, did.merged, did.skipped, did.dry_run) == (told.archived, told.merged, (), False)
    assert [each.id for each in await apollo.decisions.list(include_superseded=True)] == [new.id]
    both = await apollo.decisions.list(include_archived=True)
    assert {each.id for each in both} == {old.id, new.id}
    assert (await apollo.decisions.get(old.id)).archived
    assert not (await apollo.decisions.get(old.id, at=then)).archived
    assert {each.id for each in await apollo.decisions.list(at=then, include_superseded=True)} == {old.id, new.id}
    assert [each.id for each in await apollo.tasks.list(status="cancelled")] == [late.id]
    assert {each.id for each in await apollo.tasks.list(status="cancelled", include_archived=True)} == {
        late.id,
        cancelled.id,
    }
    assert (await apollo.entities.get(second.id)).merged_into == first.id
    again = await apollo.consolidate(dry_run=False)
    assert (again.archived, again.merged) == ((), ())
    for days in (-1, float("nan"), "90"):
        with pytest.raises(InvalidItem, match="days"):
            await apollo.consolidate(older_than_days=days)  # type: ignore[arg-type]


async def test_what_cannot_be_merged_keeps_nothing_else_from_it(apollo: Project, clock: ProjectClock) -> None:
    made = {}
    for name, size in {"Foo-Bar": 10_000, "foo bar": 10_000, "Redis": 1, "re-dis": 1}.items():
        made[name] = (await apollo.entities.create(name, properties={name: "x" * size})).id
        clock.tick()
    did = await apollo.consolidate(dry_run=False)
    assert (did.merged, did.skipped) == (((made["Redis"], made["re-dis"]),), (made["foo bar"],))
    assert (await apollo.entities.get(made["foo bar"])).merged_into is None


async def test_statistics_are_the_numbers_of_a_project(apollo: Project, clock: ProjectClock) -> None:
    empty = await apollo.statistics()
    assert (empty.totals["task"], empty.mean_completion, empty.tags) == (0, None, {})
    old = await apollo.decisions.create("old", tags=["db"])
    await apollo.decisions.supersede(old.id, title="new", tags=["db", "ui"])
    due = clock.now + timedelta(hours=1)
    one = await apollo.tasks.create("one", status="in_progress", priority="high", due_date=due)
    two = await apollo.tasks.create("two", status="in_progress")
    await apollo.tasks.block((await apollo.tasks.create("three", due_date=due, tags=["db"])).id, "a key")
    ada = await apollo.entities.create("Ada", "person")
    await apollo.entities.add_mention(ada.id, "x")
    await apollo.conversations.start()
    clock.tick(60)
    await apollo.tasks.complete(one.id)
    clock.tick(60)
    await apollo.tasks.complete(two.id)
    clock.tick(3_600)
    found = await apollo.statistics()
    assert found.totals == {"decision": 2, "task": 3, "entity": 1, "conversation": 1}
    assert (found.decisions_by_status["superseded"], found.decisions_by_status["accepted"]) == (1, 1)
    assert (found.tasks_by_status["completed"], found.tasks_by_priority["high"]) == (2, 1)
    assert (found.open_tasks_count, found.blocked_count, found.overdue_count) == (1, 1, 1)
    assert found.mean_completion == timedelta(seconds=90)
    assert (found.most_mentioned, found.entities_by_type["person"]) == ((("Ada", 1),), 1)
    assert found.tags == {"db": 3, "ui": 1}
