"""Decisions: their fields, status, chain, and state at any moment."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from support.clock import BEGIN, ProjectClock

from redismem import Conflict, InvalidItem, InvalidTransition, ItemNotFound, TooLarge
from redismem.project.project import Project


async def test_a_new_decision_has_all_that_was_not_given_filled_in(apollo: Project, clock: ProjectClock) -> None:
    made = await apollo.decisions.create(title=" Use Postgres ", rationale="known", tags=["DB", "db", "Storage"])
    assert (made.title, made.rationale, made.description, made.tags) == ("Use Postgres", "known", "", ("db", "storage"))
    assert (made.status, made.version, made.valid_until, made.archived) == ("proposed", 1, None, False)
    assert made.created_at == made.updated_at == made.valid_from == clock.now
    assert [entry.status for entry in made.history] == ["proposed"]
    assert await apollo.decisions.get(made.id) == made
    assert await apollo.decisions.exists(made.id)
    assert await apollo.decisions.count() == 1


async def test_ids_sort_by_time(apollo: Project, clock: ProjectClock) -> None:
    made = []
    for _ in range(5):
        made.append((await apollo.decisions.create(title="x")).id)
        clock.tick(0.001)
    assert made == sorted(made)


async def test_it_is_as_it_was_at_any_moment(apollo: Project, clock: ProjectClock) -> None:
    old = await apollo.decisions.create(title="Use Postgres")
    clock.tick()
    await apollo.decisions.accept(old.id, "all agree")
    tuesday = clock.now
    clock.tick()
    new = await apollo.decisions.supersede(old.id, title="Use Redis", reason="too slow")
    was = await apollo.decisions.get(old.id, at=tuesday)
    assert (was.status, was.version, was.valid_until, was.superseded_by) == ("accepted", 2, None, None)
    now = await apollo.decisions.get(old.id)
    assert (now.status, now.superseded_by, now.valid_until) == ("superseded", new.id, clock.now)
    assert [(entry.status, entry.reason) for entry in now.history] == [
        ("proposed", ""),
        ("accepted", "all agree"),
        ("superseded", "too slow"),
    ]
    assert (new.status, new.supersedes) == ("accepted", old.id)
    assert (now.valid_at(tuesday), now.valid_at(clock.now), new.valid_at(clock.now)) == (True, False, True)
    with pytest.raises(ItemNotFound, match="as of that moment"):
        await apollo.decisions.get(old.id, at=BEGIN - timedelta(milliseconds=1))
    assert [each.id for each in await apollo.decisions.valid_at(tuesday)] == [old.id]
    assert [each.id for each in await apollo.decisions.valid_at(clock.now)] == [new.id]


async def test_what_is_entered_late_takes_its_place_in_the_past(apollo: Project, clock: ProjectClock) -> None:
    made = await apollo.decisions.create(title="Use Postgres")
    monday, tuesday, wednesday = clock.now, clock.tick(), clock.tick()
    await apollo.decisions.update(made.id, title="Use PostgreSQL")
    thursday = clock.tick()
    late = await apollo.decisions.accept(made.id, at=tuesday)
    assert (late.status, late.title, late.version) == ("accepted", "Use PostgreSQL", 3)
    then = await apollo.decisions.get(made.id, at=tuesday)
    assert (then.status, then.title, then.version) == ("accepted", "Use Postgres", 3)
    assert (await apollo.decisions.get(made.id, at=tuesday, known_at=wednesday)).status == "proposed"
    assert (await apollo.decisions.get(made.id, known_at=wednesday)).title == "Use PostgreSQL"
    assert (await apollo.decisions.get(made.id, known_at=thursday)).status == "accepted"
    assert (await apollo.decisions.get(made.id, at=monday)).status == "proposed"
    assert [(each.version, each.at, each.known_at) for each in await apollo.decisions.versions(made.id)] == [
        (1, monday, monday),
        (2, wednesday, wednesday),
        (3, tuesday, thursday),
    ]


async def test_what_was_true_later_still_holds_after_a_late_entry(apollo: Project, clock: ProjectClock) -> None:
    made = await apollo.decisions.create(title="a")
    tuesday = clock.tick()
    clock.tick()
    await apollo.decisions.update(made.id, title="c", tags=["new"])
    assert (await apollo.decisions.update(made.id, title="b", rationale="r", at=tuesday)).title == "c"
    assert (await apollo.decisions.get(made.id)).rationale == "r"
    assert (await apollo.decisions.get(made.id, at=tuesday)).title == "b"
    assert [each.title for each in await apollo.decisions.list(text="r")] == ["c"]


async def test_nothing_is_entered_for_a_time_to_come_or_before_it_was_there(
    apollo: Project, clock: ProjectClock
) -> None:
    made = await apollo.decisions.create(title="a", at=clock.now - timedelta(days=2))
    assert made.valid_from == clock.now - timedelta(days=2)
    assert made.created_at == clock.now
    for at in (clock.now + timedelta(milliseconds=1), made.valid_from - timedelta(milliseconds=1)):
        with pytest.raises(InvalidItem):
            await apollo.decisions.accept(made.id, at=at)
    with pytest.raises(InvalidItem, match="lies in the future"):
        await apollo.decisions.create(title="a", at=clock.now + timedelta(seconds=1))
    with pytest.raises(InvalidItem, match="time zone"):
        await apollo.decisions.get(made.id, at=clock.now.replace(tzinfo=None))


TURNS: dict[str, list[str]] = {
    "proposed": ["accept", "reject", "deprecate"],
    "accepted": ["reject", "deprecate"],
    "rejected": [],
    "superseded": [],
    "deprecated": [],
}


@pytest.mark.parametrize("status", TURNS)
async def test_a_status_leads_to_these_and_no_other(apollo: Project, status: str) -> None:
    steps = {"accepted": "accept", "rejected": "reject", "deprecated": "deprecate"}
    for verb in ("accept", "reject", "deprecate"):
        made = await apollo.decisions.create(title="a")
        if status == "superseded":
            await apollo.decisions.supersede(made.id, title="b")
        elif status != "proposed":
            await getattr(apollo.decisions, steps[status])(made.id)
        before = await apollo.decisions.get(made.id)
        assert before.status == status
        if verb in TURNS[status]:
            after = await getattr(apollo.decisions, verb)(made.id)
            assert (after.status, after.valid_until is None) == (
                {"accept": "accepted", "reject": "rejected", "deprecate": "deprecated"}[verb],
                verb == "accept",
            )
        else:
            possible = {
                "accepted": "can become rejected, superseded or deprecated",
                "deprecated": "can become superseded",
            }
            told = rf"{status} cannot become \w+; it {possible.get(status, f'stays {status}')}$"
            with pytest.raises(InvalidTransition, match=told) as refused:
                await getattr(apollo.decisions, verb)(made.id)
            assert refused.value.before == status
            assert await apollo.decisions.get(made.id) == before


async def test_a_lost_race_is_a_conflict(apollo: Project) -> None:
    made = await apollo.decisions.create(title="a")
    await apollo.decisions.update(made.id, title="b", expect=1)
    for change in (
        apollo.decisions.update(made.id, title="c", expect=1),
        apollo.decisions.accept(made.id, expect=1),
        apollo.decisions.delete(made.id, expect=1),
        apollo.decisions.supersede(made.id, title="d", expect=1),
    ):
        with pytest.raises(Conflict, match="at version 2"):
            await change
    assert (await apollo.decisions.get(made.id)).title == "b"
    assert await apollo.decisions.count() == 1


async def test_the_chain_is_found_from_either_end(apollo: Project, clock: ProjectClock) -> None:
    first = await apollo.decisions.create(title="1")
    clock.tick()
    second = await apollo.decisions.supersede(first.id, title="2")
    clock.tick()
    third = await apollo.decisions.create(title="3")
    assert (await apollo.decisions.supersede(second.id, third.id)).id == third.id
    for end in (first, second, third):
        assert [each.title for each in await apollo.decisions.history(end.id)] == ["1", "2", "3"]
    then = await apollo.decisions.history(second.id, at=third.created_at - timedelta(milliseconds=1))
    assert [(each.title, each.status) for each in then] == [("1", "superseded"), ("2", "accepted")]
    assert await apollo.life() == (first.created_at, third.created_at)
    assert [each.title for each in await apollo.decisions.active()] == []
    await apollo.decisions.accept(third.id)
    assert [each.title for each in await apollo.decisions.active()] == ["3"]
    assert [each.title for each in await apollo.decisions.list()] == ["3"]
    shown = await apollo.decisions.list(include_superseded=True)
    assert [each.title for each in shown] == ["3", "2", "1"]


async def test_a_chain_does_not_branch_or_close(apollo: Project) -> None:
    first = await apollo.decisions.create(title="1")
    second = await apollo.decisions.supersede(first.id, title="2")
    other = await apollo.decisions.create(title="other")
    with pytest.raises(InvalidTransition):
        await apollo.decisions.supersede(first.id, other.id)
    for old, new in ((other, second), (second, first), (other, other)):
        with pytest.raises(InvalidItem, match="already part of a chain"):
            await apollo.decisions.supersede(old.id, new.id)
    for wrong in (
        apollo.decisions.supersede(other.id),
        apollo.decisions.supersede(other.id, first.id, title="both"),
    ):
        with pytest.raises(InvalidItem, match="pass either `by`, or the fields"):
            await wrong


async def test_a_link_is_seen_from_both_ends_until_it_ends(apollo: Project) -> None:
    decision, task = await apollo.decisions.create(title="d"), await apollo.tasks.create(title="t")
    assert (await apollo.decisions.link_task(decision.id, task.id)).related_tasks == (task.id,)
    assert (await apollo.tasks.get(task.id)).related_decisions == (decision.id,)
    await apollo.tasks.unlink_decision(task.id, decision.id)
    assert (await apollo.decisions.get(decision.id)).related_tasks == ()
    await apollo.tasks.link_decision(task.id, decision.id)
    assert (await apollo.decisions.get(decision.id)).related_tasks == (task.id,)
    other = await apollo.decisions.create(title="o", related_tasks=[task.id], related_decisions=[decision.id])
    assert (await apollo.tasks.get(task.id)).related_decisions == (decision.id, other.id)
    assert (await apollo.decisions.get(decision.id)).related_decisions == (other.id,)
    await apollo.decisions.unlink_decision(decision.id, other.id)
    assert (await apollo.decisions.get(other.id)).related_decisions == ()
    await apollo.tasks.delete(task.id)
    for each in (decision, other):
        assert (await apollo.decisions.get(each.id)).related_tasks == ()
    with pytest.raises(ItemNotFound):
        await apollo.decisions.link_task(decision.id, task.id)
    with pytest.raises(InvalidItem, match="itself"):
        await apollo.decisions.link_decision(decision.id, decision.id)


async def test_what_is_deleted_is_still_known_as_of_then(apollo: Project, clock: ProjectClock) -> None:
    made = await apollo.decisions.create(title="a", tags=["x"])
    then = clock.now
    clock.tick()
    await apollo.decisions.delete(made.id)
    assert not await apollo.decisions.exists(made.id)
    assert await apollo.decisions.exists(made.id, at=then)
    assert (await apollo.decisions.get(made.id, at=then)).title == "a"
    assert [len(await apollo.decisions.list(tags=["x"])), await apollo.decisions.count()] == [0, 0]
    assert [each.id for each in await apollo.decisions.list(tags=["x"], at=then)] == [made.id]
    for gone in (apollo.decisions.get(made.id), apollo.decisions.update(made.id, title="b")):
        with pytest.raises(ItemNotFound):
            await gone
    assert len(await apollo.decisions.versions(made.id)) == 2


async def test_clear_leaves_nothing_of_a_kind(apollo: Project, raw: Any, namespace: str) -> None:
    task = await apollo.tasks.create(title="stays")
    for number in range(60):
        made = await apollo.decisions.create(
            title=f"number {number}", tags=["x"], related_tasks=[task.id][: number % 2]
        )
        await apollo.decisions.accept(made.id)
    assert await apollo.decisions.clear() == 60
    keys = [key.decode() async for key in raw.scan_iter(f"rm:{{{namespace}:@apollo}}:*")]
    left = [key for key in keys if ":t:" not in key]
    assert sorted(key.partition("}:")[2] for key in left) == ["changes", "items", f"versions:{task.id}"]
    assert (await apollo.tasks.get(task.id)).related_decisions == ()


WRONG: list[dict[str, Any]] = [
    {"title": ""},
    {"title": "  "},
    {"title": "a\nb"},
    {"title": "\ud800"},
    {"title": 5},
    {"title": "a", "rationale": None},
    {"title": "a", "tags": "db"},
    {"title": "a", "tags": [""]},
    {"title": "a", "status": "superseded"},
    {"title": "a", "related_tasks": ["d-000000000000000000"]},
    {"title": "a", "related_tasks": ["t-"]},
    {"title": "a", "alternatives": [5]},
    {"title": "a", "valid_until": "tomorrow"},
]


@pytest.mark.parametrize("fields", WRONG)
async def test_what_cannot_be_stored_is_refused_and_not_repeated(
    apollo: Project, raw: Any, namespace: str, fields: Any
) -> None:
    with pytest.raises(InvalidItem) as refused:
        await apollo.decisions.create(**fields)
    assert "superseded by" not in str(refused.value)
    assert [key async for key in raw.scan_iter(f"rm:{{{namespace}:@apollo}}:*")] == []


async def test_what_is_too_large_is_refused(apollo: Project) -> None:
    for fields in ({"title": "x" * 301}, {"title": "x", "context": "é" * 9_000}, {"title": "x", "tags": ["t" * 65]}):
        with pytest.raises(TooLarge):
            await apollo.decisions.create(**fields)
    texts = ["y" * 16_000] * 20
    with pytest.raises(TooLarge, match="bytes"):
        await apollo.decisions.create(title="x", alternatives=texts)
    assert await apollo.decisions.count() == 0


@pytest.mark.parametrize("name", ["", "a b", "a{b}", "é", "x" * 65, "-a", None, 5])
async def test_the_name_of_a_project_is_plain(apollo: Project, name: Any) -> None:
    with pytest.raises(InvalidItem, match="project name"):
        Project(apollo._items.store, name)
