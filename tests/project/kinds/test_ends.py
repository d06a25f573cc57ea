"""Items that end, block or reopen: the latest change in event time wins, whenever it was entered."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from support.clock import ProjectClock

from redismem import InvalidItem, InvalidTransition
from redismem.project.project import Project

MS = timedelta(milliseconds=1)


async def test_a_late_end_does_not_end_what_was_opened_again(apollo: Project, clock: ProjectClock) -> None:
    task = await apollo.tasks.create("Move", status="in_progress")
    done, again = clock.tick(), clock.tick()
    await apollo.tasks.reopen(task.id)
    clock.tick()
    now = await apollo.tasks.complete(task.id, "it was done", at=done)
    assert (now.status, now.completed_at, now.valid_until) == ("backlog", None, None)
    assert now == await apollo.tasks.get(task.id)
    then = await apollo.tasks.get(task.id, at=again - MS)
    assert (then.status, then.completed_at, then.valid_until) == ("completed", done, done)
    before = await apollo.tasks.get(task.id, at=done - MS)
    assert (before.status, before.completed_at, before.valid_until) == ("in_progress", None, None)
    assert [each.id for each in await apollo.tasks.active()] == [task.id]
    assert [len(await apollo.tasks.valid_at(moment)) for moment in (done, again, clock.now)] == [0, 1, 1]
    assert await apollo.tasks.count(status="completed", at=again - MS) == 1


async def test_what_waits_for_an_open_task_goes_on_waiting_after_its_late_end(
    apollo: Project, clock: ProjectClock
) -> None:
    first, second = await apollo.tasks.create("a", status="in_progress"), await apollo.tasks.create("b")
    done = clock.tick()
    clock.tick()
    await apollo.tasks.reopen(first.id)
    await apollo.tasks.block(second.id, first.id)
    await apollo.tasks.complete(first.id, at=done)
    waiting = await apollo.tasks.get(second.id)
    assert (waiting.status, waiting.blocked_by) == ("blocked", (first.id,))


async def test_a_late_block_is_over_when_a_later_step_was_made(apollo: Project, clock: ProjectClock) -> None:
    task = await apollo.tasks.create("Move", status="in_progress")
    stuck, planned = clock.tick(), clock.tick()
    await apollo.tasks.plan(task.id)
    clock.tick()
    now = await apollo.tasks.block(task.id, "a review", at=stuck)
    assert (now.status, now.blocked_by) == ("planned", ())
    assert "waits for" not in (await apollo.context()).format()
    then = await apollo.tasks.get(task.id, at=planned - MS)
    assert (then.status, then.blocked_by) == ("blocked", ("a review",))


async def test_what_is_blocked_now_was_blocked_before_for_another_reason(apollo: Project, clock: ProjectClock) -> None:
    task = await apollo.tasks.create("Move", status="in_progress")
    monday, tuesday = clock.tick(), clock.tick()
    await apollo.tasks.block(task.id, "a review", "nobody has time")
    clock.tick()
    now = await apollo.tasks.block(task.id, "a key", "it is lost", at=monday)
    assert (now.status, now.blocked_by) == ("blocked", ("a key", "a review"))
    then = await apollo.tasks.get(task.id, at=tuesday - MS)
    assert (then.status, then.blocked_by) == ("blocked", ("a key",))
    assert [(each.status, each.at, each.reason) for each in now.history[1:]] == [
        ("blocked", monday, "it is lost"),
        ("blocked", tuesday, "nobody has time"),
    ]


async def test_what_is_unblocked_late_is_blocked_by_what_came_later_alone(apollo: Project, clock: ProjectClock) -> None:
    task = await apollo.tasks.create("Move", status="planned")
    clock.tick()
    await apollo.tasks.block(task.id, "a review")
    free = clock.tick()
    keyless = clock.tick()
    await apollo.tasks.block(task.id, "a key")
    clock.tick()
    now = await apollo.tasks.unblock(task.id, at=free)
    assert (now.status, now.blocked_by) == ("blocked", ("a key",))
    then = await apollo.tasks.get(task.id, at=keyless - MS)
    assert (then.status, then.blocked_by) == ("planned", ())
    assert (await apollo.tasks.unblock(task.id)).status == "planned"


async def test_what_waited_for_a_task_that_is_done_by_now_can_be_entered_late(
    apollo: Project, clock: ProjectClock
) -> None:
    first, second = await apollo.tasks.create("a", status="in_progress"), await apollo.tasks.create("b")
    waited = clock.tick()
    clock.tick()
    await apollo.tasks.complete(first.id)
    with pytest.raises(InvalidItem, match="cannot block"):
        await apollo.tasks.block(second.id, first.id, at=waited)
    started = clock.tick()
    await apollo.tasks.start(second.id)
    assert (await apollo.tasks.block(second.id, first.id, at=waited)).blocked_by == ()
    assert (await apollo.tasks.get(second.id, at=started - MS)).blocked_by == (first.id,)


async def test_a_step_that_is_entered_late_keeps_what_was_said_before_it(apollo: Project, clock: ProjectClock) -> None:
    """A valid_until set at creation survives a status that is entered late."""
    until = clock.now + timedelta(days=9)
    task = await apollo.tasks.create("Move", valid_until=until)
    planned, started = clock.tick(), clock.tick()
    await apollo.tasks.start(task.id)
    clock.tick()
    await apollo.tasks.complete(task.id)
    await apollo.tasks.plan(task.id, at=planned)
    assert (await apollo.tasks.get(task.id, at=started)).valid_until == until


Step = Callable[[Project, str, datetime | None], Awaitable[Any]]


async def deprecate(apollo: Project, id: str, at: datetime | None) -> Any:
    return await apollo.decisions.deprecate(id, at=at)


async def supersede(apollo: Project, id: str, at: datetime | None) -> Any:
    return await apollo.decisions.supersede(id, title="new", at=at)


@pytest.mark.parametrize("late", [False, True])
async def test_what_came_first_ends_a_decision(apollo: Project, clock: ProjectClock, late: bool) -> None:
    made = await apollo.decisions.create("old", status="accepted")
    monday, tuesday = clock.tick(), clock.tick()
    steps: list[tuple[Step, datetime]] = [(deprecate, monday), (supersede, tuesday)]
    for step, at in reversed(steps) if late else steps:
        await step(apollo, made.id, at)
    now = await apollo.decisions.get(made.id)
    assert (now.status, now.valid_until) == ("superseded", monday)
    assert (await apollo.decisions.get(made.id, at=tuesday - MS)).valid_until == monday
    assert made.id not in {each.id for each in await apollo.decisions.valid_at(monday)}


async def test_what_was_true_until_a_day_is_not_true_for_longer_because_it_ends_later(
    apollo: Project, clock: ProjectClock
) -> None:
    until = clock.now + timedelta(seconds=5)
    decision = await apollo.decisions.create("old", status="accepted", valid_until=until)
    task = await apollo.tasks.create("old", status="in_progress", valid_until=until)
    clock.tick(60)
    assert (await apollo.decisions.deprecate(decision.id)).valid_until == until
    assert (await apollo.tasks.complete(task.id)).valid_until == until
    other = await apollo.decisions.create("other", valid_until=clock.now + timedelta(days=9))
    assert (await apollo.decisions.reject(other.id)).valid_until == clock.now
    assert (await apollo.decisions.update(other.id, valid_until=None)).valid_until == clock.now


async def test_what_waited_for_a_task_that_is_deleted_waits_no_more(apollo: Project, clock: ProjectClock) -> None:
    first, second = await apollo.tasks.create("a"), await apollo.tasks.create("b", status="planned")
    await apollo.tasks.block(second.id, first.id)
    clock.tick()
    await apollo.tasks.delete(first.id)
    freed = await apollo.tasks.get(second.id)
    assert (freed.status, freed.blocked_by, freed.history[-1].at) == ("planned", (), clock.now)
    assert len(await apollo.tasks.blocked()) == 0


async def test_what_is_opened_again_is_no_longer_archived(apollo: Project, clock: ProjectClock) -> None:
    task = await apollo.tasks.create("Move")
    await apollo.tasks.cancel(task.id)
    again = clock.tick(86_400 * 100)
    clock.tick()
    await apollo.consolidate(dry_run=False)
    assert (await apollo.tasks.get(task.id)).archived
    assert not (await apollo.tasks.reopen(task.id, at=again)).archived
    assert [each.id for each in await apollo.tasks.active()] == [task.id]


async def test_a_late_unblocking_must_fit_what_came_after(apollo: Project, clock: ProjectClock) -> None:
    task = await apollo.tasks.create("Move")
    clock.tick()
    await apollo.tasks.block(task.id, "a review")
    free = clock.tick()
    clock.tick()
    await apollo.tasks.reopen(task.id)
    with pytest.raises(InvalidTransition, match="backlog cannot become backlog"):
        await apollo.tasks.unblock(task.id, at=free)


async def test_what_ended_before_anybody_wrote_it_down_took_no_time_below_nothing(
    apollo: Project, clock: ProjectClock
) -> None:
    """The statistics count from when a task became true, not from when it was entered."""
    then = clock.now - timedelta(days=3)
    task = await apollo.tasks.create("Move", status="in_progress", at=then)
    with pytest.raises(InvalidItem, match="did not exist yet"):
        await apollo.tasks.complete(task.id, at=then - MS)
    await apollo.tasks.complete(task.id, at=then + timedelta(hours=2))
    assert (await apollo.statistics()).mean_completion == timedelta(hours=2)


async def test_nothing_ends_before_it_begins(apollo: Project, clock: ProjectClock) -> None:
    for store in (apollo.decisions, apollo.tasks):
        with pytest.raises(InvalidItem, match="before its valid_from"):
            await store.create("a", valid_until=clock.now - MS)
        made = await store.create("a", valid_until=clock.now)
        with pytest.raises(InvalidItem, match="before its valid_from"):
            await store.update(made.id, valid_until=clock.now - MS)
        assert (await store.get(made.id)).version == 1
        early = clock.now - timedelta(days=1)
        assert (await store.create("a", valid_until=clock.now - MS, at=early)).valid_until == clock.now - MS
    assert await apollo.decisions.count() == await apollo.tasks.count() == 2


@pytest.mark.parametrize("status", ["blocked", "completed", None])
async def test_an_import_of_what_no_task_begins_as_is_refused(apollo: Project, status: str | None) -> None:
    await apollo.tasks.create("Move")
    files = await apollo.export_files()
    tasks = json.loads(files["tasks.json"])
    sets = tasks["tasks"][0]["versions"][0]["sets"]
    sets |= {"status": status} if status else {}
    if status is None:
        del sets["status"]
    with pytest.raises(InvalidItem, match="a task begins as backlog or planned or in_progress"):
        await apollo.import_files({"tasks.json": json.dumps(tasks)})


async def test_a_task_was_completed_when_it_came_to_that_status_whatever_an_import_says(
    apollo: Project, clock: ProjectClock
) -> None:
    task = await apollo.tasks.create("Move", status="in_progress")
    done = clock.tick()
    await apollo.tasks.complete(task.id)
    files = await apollo.export_files()
    tasks = json.loads(files["tasks.json"])
    tasks["tasks"][0]["versions"][1]["sets"]["completed_at"] = 0
    await apollo.import_files(files | {"tasks.json": json.dumps(tasks)}, replace=True)
    assert (await apollo.tasks.get(task.id)).completed_at == done
    assert (await apollo.statistics()).mean_completion == timedelta(seconds=1)
