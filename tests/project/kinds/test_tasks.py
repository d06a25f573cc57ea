"""Tasks: their status and history, dependencies, blockers and order."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from support.clock import BEGIN, ProjectClock

from redismem import Conflict, InvalidItem, InvalidTransition, ItemNotFound, Memory
from redismem.project.items.schema import TASK
from redismem.project.project import Project
from redismem.project.queries import pages

VERBS = {
    "plan": "planned",
    "start": "in_progress",
    "complete": "completed",
    "cancel": "cancelled",
    "reopen": "backlog",
}
WAYS: dict[str, list[str]] = {
    "backlog": [],
    "planned": ["plan"],
    "in_progress": ["start"],
    "completed": ["start", "complete"],
    "cancelled": ["cancel"],
    "blocked": ["block"],
}


async def brought(apollo: Project, status: str) -> str:
    """Create a task and move it to this status."""
    made = await apollo.tasks.create(title="a")
    for verb in WAYS[status]:
        await getattr(apollo.tasks, verb)(made.id, *(["a review"] if verb == "block" else []))
    assert (await apollo.tasks.get(made.id)).status == status
    return made.id


@pytest.mark.parametrize("status", WAYS)
async def test_a_status_leads_to_these_and_no_other(apollo: Project, status: str) -> None:
    for verb, after in VERBS.items():
        task_id = await brought(apollo, status)
        assert TASK.transitions is not None
        if after in TASK.transitions[status]:
            task = await getattr(apollo.tasks, verb)(task_id, "why not")
            assert (task.status, task.history[-1].reason) == (after, "why not")
            assert (task.valid_until is not None) == (after in ("completed", "cancelled"))
            assert (task.completed_at is not None) == (after == "completed")
            assert task.blocked_by == ()
        else:
            with pytest.raises(InvalidTransition, match=f"{status} cannot become {after}") as refused:
                await getattr(apollo.tasks, verb)(task_id)
            assert (refused.value.before, refused.value.after) == (status, after)


@pytest.mark.parametrize(
    ("status", "verb", "said"),
    [
        ("backlog", "complete", "completed; it can become planned, in_progress, blocked or cancelled"),
        ("blocked", "complete", "completed; it can become backlog, planned, in_progress or cancelled"),
        ("completed", "cancel", "cancelled; it can become backlog"),
    ],
)
async def test_a_refused_step_says_which_are_possible(apollo: Project, status: str, verb: str, said: str) -> None:
    task_id = await brought(apollo, status)
    with pytest.raises(InvalidTransition) as refused:
        await getattr(apollo.tasks, verb)(task_id)
    assert str(refused.value) == f"a task that is {status} cannot become {said}"


@pytest.mark.parametrize("status", ["backlog", "planned", "in_progress"])
async def test_what_is_unblocked_has_the_status_it_had_before(
    apollo: Project, clock: ProjectClock, status: str
) -> None:
    task_id = await brought(apollo, status)
    blocked = await apollo.tasks.block(task_id, "a review", "nobody has time")
    assert (blocked.status, blocked.blocked_by) == ("blocked", ("a review",))
    assert (await apollo.tasks.block(task_id, "a key")).blocked_by == ("a review", "a key")
    clock.tick()
    task = await apollo.tasks.unblock(task_id)
    assert (task.status, task.blocked_by) == (status, ())
    assert [entry.status for entry in task.history][-2:] == ["blocked", status]
    assert len(task.history) == len(WAYS[status]) + 4
    with pytest.raises(InvalidTransition, match="not blocked"):
        await apollo.tasks.unblock(task_id)


async def test_completing_a_task_frees_those_that_wait_for_it(apollo: Project) -> None:
    first, second = await brought(apollo, "in_progress"), await brought(apollo, "planned")
    third = await brought(apollo, "in_progress")
    await apollo.tasks.block(second, first)
    await apollo.tasks.block(third, first)
    await apollo.tasks.block(third, "a review")
    await apollo.tasks.complete(first)
    freed, waiting = await apollo.tasks.get(second), await apollo.tasks.get(third)
    assert (freed.status, freed.blocked_by) == ("planned", ())
    assert (waiting.status, waiting.blocked_by) == ("blocked", ("a review",))
    for blocker in (first, second):
        with pytest.raises(InvalidItem, match="cannot block"):
            await apollo.tasks.block(second, blocker)
    with pytest.raises(ItemNotFound):
        await apollo.tasks.block(second, "t-000000000000000000")


async def test_a_task_can_start_when_all_it_needs_is_completed(apollo: Project) -> None:
    first, second = await brought(apollo, "in_progress"), await brought(apollo, "in_progress")
    task = await apollo.tasks.create(title="last", dependencies=[first, second])
    assert task.dependencies == (first, second)
    assert not await apollo.tasks.can_start(task.id)
    await apollo.tasks.complete(first)
    assert not await apollo.tasks.can_start(task.id)
    await apollo.tasks.complete(second)
    assert await apollo.tasks.can_start(task.id)
    await apollo.tasks.delete(first)
    assert (await apollo.tasks.get(task.id)).dependencies == (second,)


async def test_a_cycle_is_refused_when_it_would_be_made(apollo: Project) -> None:
    made = [(await apollo.tasks.create(title=str(number))).id for number in range(4)]
    for one, other in pairwise(made):
        await apollo.tasks.add_dependency(one, other)
    expected = {one: (other,) for one, other in pairwise(made)} | {made[3]: ()}
    assert await apollo.tasks.dependency_graph(made[0]) == expected
    assert await apollo.tasks.dependency_graph() == expected
    for low, high in ((3, 0), (3, 2), (1, 0), (2, 2)):
        with pytest.raises(InvalidItem, match="cycle"):
            await apollo.tasks.add_dependency(made[low], made[high])
    assert await apollo.tasks.dependency_graph() == expected
    await apollo.tasks.remove_dependency(made[1], made[2])
    await apollo.tasks.add_dependency(made[3], made[0])
    assert (await apollo.tasks.dependency_graph(made[3]))[made[3]] == (made[0],)


async def test_tasks_come_by_priority_and_then_the_newest_first(apollo: Project, clock: ProjectClock) -> None:
    for priority in ("low", "critical", "medium", "high", "low", "critical"):
        clock.tick()
        await apollo.tasks.create(title=priority, priority=priority)
    found = await apollo.tasks.list()
    assert [task.priority for task in found] == ["critical", "critical", "high", "medium", "low", "low"]
    assert all(one.created_at > other.created_at for one, other in ((found[0], found[1]), (found[4], found[5])))
    await apollo.tasks.update(found[5].id, priority="critical")
    assert [task.id for task in await apollo.tasks.list(limit=3)] == [found[0].id, found[1].id, found[5].id]


async def test_queries_by_each_field(apollo: Project, clock: ProjectClock) -> None:
    now = clock.now
    one = await apollo.tasks.create(
        title="Move the data", assignee="Ada", due_date=now + timedelta(days=1), tags=["db"]
    )
    two = await apollo.tasks.create(title="Write it up", description="what moved", assignee="ada", priority="high")
    await brought(apollo, "completed")
    blocked = await brought(apollo, "blocked")

    async def ids(**criteria: Any) -> set[str]:
        return {task.id for task in await apollo.tasks.list(**criteria)}

    assert await ids() == {one.id, two.id, blocked}
    assert await ids(assignee="ADA") == {one.id, two.id}
    assert await ids(assignee="ADA", priority="high") == await ids(priority=["critical", "high"]) == {two.id}
    assert await ids(text="MOV") == {one.id, two.id}
    assert await ids(text="mov data") == await ids(text="mov", fields=["title"]) == {one.id}
    assert await ids(text="ove") == set()
    assert await ids(tags=["DB"]) == await ids(due_before=now + timedelta(days=2)) == {one.id}
    assert await ids(due_before=now + timedelta(days=1)) == set()
    assert await ids(due_after=now + timedelta(days=1)) == {one.id}
    assert {task.id for task in await apollo.tasks.blocked()} == {blocked}
    assert [await apollo.tasks.count(), await apollo.tasks.count(include_completed=True)] == [3, 4]
    clock.tick(86_400 * 3)
    assert {task.id for task in await apollo.tasks.overdue()} == {one.id}
    await apollo.tasks.cancel(one.id)
    assert len(await apollo.tasks.overdue()) == 0


async def test_queries_by_status_and_by_dates(apollo: Project, clock: ProjectClock) -> None:
    now = clock.now
    one = await apollo.tasks.create(title="a")
    done = await brought(apollo, "completed")
    blocked = await brought(apollo, "blocked")

    async def ids(**criteria: Any) -> set[str]:
        return {task.id for task in await apollo.tasks.list(**criteria)}

    assert await ids(status="completed") == {done}
    assert await ids(status=["completed", "blocked"]) == {done, blocked}
    assert await ids(include_completed=True) == {one.id, blocked, done}
    assert await ids(created_before=now) == set()
    assert await ids(created_after=now, updated_before=now + timedelta(seconds=1)) == {one.id, blocked}
    refused: list[dict[str, Any]] = [
        {"priority": "urgent"},
        {"status": "done"},
        {"owner": "x"},
        {"fields": ["tags"]},
        {"status": []},
    ]
    for wrong in refused:
        with pytest.raises(InvalidItem):
            await ids(**wrong)
    for limit in (0, 1_001, "5"):
        with pytest.raises(InvalidItem, match="page"):
            await apollo.tasks.list(limit=limit)  # type: ignore[arg-type]


@pytest.mark.parametrize("limit", [1, 2, 7, 30])
async def test_pages_go_on_where_the_last_one_ended(apollo: Project, clock: ProjectClock, limit: int) -> None:
    made = []
    for number in range(23):
        if number % 5 == 0:
            clock.tick()
        made.append(
            await apollo.tasks.create(title=f"w{number % 3} w{number}", priority="high" if number % 2 else "low")
        )
    found: list[str] = []
    cursor = None
    while True:
        page = await apollo.tasks.list(text="w", limit=limit, cursor=cursor)
        assert len(page) <= limit
        found += [task.id for task in page]
        if (cursor := page.cursor) is None:
            break
    order = sorted(made, key=lambda task: (task.priority == "high", task.created_at, task.id), reverse=True)
    assert found == [task.id for task in order]
    for foreign in ("", "x", "W10=", "WyIxIiwgImQiXQ=="):
        with pytest.raises(InvalidItem, match="cursor"):
            await apollo.tasks.list(cursor=foreign)


async def test_a_page_goes_on_where_it_ended_though_its_last_task_has_moved_to_the_end(
    apollo: Project, clock: ProjectClock
) -> None:
    made = []
    for title in "abcdef":
        clock.tick()
        made.append((await apollo.tasks.create(title=title, priority="high")).id)
    first = await apollo.tasks.list(limit=3)
    assert [task.id for task in first] == made[:2:-1]
    await apollo.tasks.update(first[-1].id, priority="low")
    rest = await apollo.tasks.list(limit=9, cursor=first.cursor)
    assert [task.id for task in rest] == [*made[2::-1], first[-1].id]


async def test_a_late_step_must_fit_what_came_before_and_after(apollo: Project, clock: ProjectClock) -> None:
    task = await apollo.tasks.create(title="a", status="in_progress")
    monday = clock.tick()
    clock.tick()
    await apollo.tasks.complete(task.id)
    clock.tick()
    for verb in ("cancel", "complete"):
        with pytest.raises(InvalidTransition):
            await getattr(apollo.tasks, verb)(task.id, at=monday)
    with pytest.raises(InvalidTransition, match="blocked cannot become completed"):
        await apollo.tasks.block(task.id, "a review", at=monday)
    assert (await apollo.tasks.get(task.id)).version == 2


async def test_a_change_with_an_old_version_is_refused(apollo: Project) -> None:
    task = await apollo.tasks.create(title="a")
    await apollo.tasks.plan(task.id)
    for change in (apollo.tasks.start(task.id, expect=1), apollo.tasks.block(task.id, "x", expect=1)):
        with pytest.raises(Conflict):
            await change


async def test_a_clock_that_is_set_back_refuses_nothing(apollo: Project, clock: ProjectClock) -> None:
    task = await apollo.tasks.create("Move the data", status="in_progress")
    decision, ada = await apollo.decisions.create("Use Redis"), await apollo.entities.create("Ada")
    then = clock.now
    clock.tick(-2)
    assert (await apollo.tasks.complete(task.id)).completed_at == then
    assert (await apollo.tasks.reopen(task.id)).status == "backlog"
    assert (await apollo.decisions.accept(decision.id)).status == "accepted"
    assert (await apollo.decisions.supersede(decision.id, title="Use it well")).supersedes == decision.id
    assert (await apollo.entities.add_mention(ada.id, "Ada agrees")).mention_count == 1
    await apollo.entities.delete(ada.id)
    with pytest.raises(InvalidItem, match="lies in the future"):
        await apollo.tasks.start(task.id, at=then + timedelta(seconds=1))


async def test_a_clock_that_was_set_back_does_not_reorder_what_was_known(apollo: Project, clock: ProjectClock) -> None:
    made = await apollo.tasks.create("first")
    back = clock.tick(10)
    late = clock.tick(10)
    await apollo.tasks.update(made.id, title="second")
    clock.now = back
    await apollo.tasks.update(made.id, title="third")
    assert (await apollo.tasks.get(made.id, known_at=back)).title == "first"
    assert (await apollo.tasks.get(made.id, known_at=late)).title == "third"
    assert [version.known_at for version in await apollo.tasks.versions(made.id)] == [BEGIN, late, late]


async def test_many_changes_of_one_millisecond_are_passed(
    memory: Memory, apollo: Project, clock: ProjectClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An import changes all its items in one millisecond: more than one batch of them have the same score."""
    monkeypatch.setattr(pages, "_BATCH_COUNT", 2)
    titles = {f"task {number}" for number in range(7)}
    made = [await apollo.tasks.create(title) for title in sorted(titles)]
    moment = clock.now
    clock.tick()
    for task in made:
        await apollo.tasks.update(task.id, title="changed")
    calls = 0
    inner = memory.store.run

    async def run(call: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        assert calls < 100, "the query does not end"
        return await inner(call, **options)

    monkeypatch.setattr(memory.store, "run", run)
    assert {task.title for task in await apollo.tasks.list(at=moment)} == titles
