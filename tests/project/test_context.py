"""The context of a project: what is in it, how few round trips it takes, and its text within a budget."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.clock import BEGIN, ProjectClock

from redismem import InvalidItem, Memory
from redismem.project.background import ProjectContext, Summary
from redismem.project.items.records import Decision, Entity, Task
from redismem.project.items.schema import DECISION, ENTITY, TASK
from redismem.project.items.versions import Delta, fold
from redismem.project.project import Project

SECTIONS = ("PROJECT CONTEXT", "RECENT DECISIONS", "ACTIVE TASKS", "KNOWN ENTITIES")


async def create_items(apollo: Project, clock: ProjectClock, count: int = 12) -> None:
    for number in range(count):
        clock.tick()
        made = await apollo.decisions.create(title=f"decision {number}", rationale="why")
        if number % 4:
            await apollo.decisions.accept(made.id)
        task = await apollo.tasks.create(title=f"task {number}", status="in_progress")
        if number == 3:
            await apollo.tasks.complete(task.id)
        if number == 4:
            await apollo.tasks.block(task.id, "a review")
        await apollo.entities.create(f"Entity{number}", "component", tags=["e"])


async def test_it_holds_what_is_newest_and_what_the_terms_begin(apollo: Project, clock: ProjectClock) -> None:
    await create_items(apollo, clock)
    context = await apollo.context(["ENTITY1", "entity7 nothing"])
    assert [each.title for each in context.decisions] == [f"decision {number}" for number in (11, 10, 9, 7, 6)]
    assert [each.title for each in context.tasks] == [f"task {number}" for number in (11, 10, 9, 8, 7, 6, 5, 4, 2, 1)]
    assert {each.name for each in context.entities} == {"Entity1", "Entity10", "Entity11", "Entity7"}
    assert context.summary == Summary(9, 11, 1, 12)
    assert [each.name for each in (await apollo.context()).entities] == [
        f"Entity{number}" for number in range(11, 1, -1)
    ]
    assert (await apollo.context(["nothing"])).entities == ()


async def test_it_takes_two_round_trips_at_most(memory: Memory, clock: ProjectClock) -> None:
    apollo = memory.project("apollo")
    await create_items(apollo, clock, 3)
    trips: list[int] = []
    inner = memory.store.transport

    class Counting:
        async def run(self, *arguments: Any) -> Any:
            trips.append(1)
            return await inner.run(*arguments)

        def __getattr__(self, name: str) -> Any:
            return getattr(inner, name)

    memory.store.transport = Counting()
    counts = []
    for call in (apollo.context(), apollo.context(["entity"]), apollo.search("entity"), apollo.by_tag("e")):
        trips.clear()
        await call
        counts.append(len(trips))
    assert counts == [1, 2, 2, 1]


async def test_text_has_the_four_sections(apollo: Project, clock: ProjectClock) -> None:
    await create_items(apollo, clock)
    ada = await apollo.entities.create("Ada", "person", "leads", properties={"team": "red"})
    text = (await apollo.context(["ada"])).format(max_tokens=1500)
    assert [line for line in text.splitlines() if line.isupper()] == list(SECTIONS)
    assert "apollo: 9 active decisions, 11 open tasks (1 blocked), 13 entities." in text
    assert "- decision 11 (2100-01-01). Why: why" in text
    assert "- task 4 [medium, blocked, waits for a review]" in text
    assert f"- {ada.name} (person) leads {{team: red}}" in text
    empty = (await Project(apollo._items.store, "empty").context()).format()
    assert empty.count("(none)") == 3
    one = Project(apollo._items.store, "one")
    for made in (one.decisions.create("d", status="accepted"), one.tasks.create("t"), one.entities.create("e")):
        await made
    assert "one: 1 active decision, 1 open task (0 blocked), 1 entity." in (await one.context()).format()


def a_context(texts: list[str]) -> ProjectContext:
    """Create a context with these texts, without a store."""
    ms = int(BEGIN.timestamp() * 1000)

    def state(kind: Any, **sets: Any) -> Any:
        return fold(kind, [Delta(1, ms, ms, "n", sets)])

    first = texts[0]
    return ProjectContext(
        "apollo",
        Summary(1, 2, 3, 4),
        tuple(Decision.of("d", state(DECISION, title=each, rationale=first, status="accepted")) for each in texts[:5]),
        tuple(Task.of("t", state(TASK, title=each, description=first, status="backlog")) for each in texts[:10]),
        tuple(Entity.of("e", state(ENTITY, name=each, properties={"a": first})) for each in texts[:10]),
    )


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=400)


@given(
    texts=st.lists(TEXTS, min_size=1, max_size=12),
    max_tokens=st.integers(50, 900),
)
def test_text_never_exceeds_its_budget_and_keeps_its_sections(texts: list[str], max_tokens: int) -> None:
    text = a_context(texts).format(max_tokens=max_tokens)
    assert len(text.encode()) <= max_tokens * 4
    places = [text.find(f"\n{section}\n") for section in SECTIONS[1:]]
    assert text.startswith(SECTIONS[0])
    assert -1 not in places
    assert sum(line in SECTIONS for line in text.splitlines()) == 4, "no text makes a section of its own"


async def test_a_property_with_half_a_character_ends_no_turn(apollo: Project) -> None:
    await apollo.entities.create("Ada", properties={"p": "half \ud83d of a pair"})
    assert "{p: half ? of a pair}" in (await apollo.context(["ada"])).format()


async def test_what_cannot_be_asked_for_is_refused(apollo: Project) -> None:
    for terms in ("redis", [5], [" ".join(f"w{number}" for number in range(21))]):
        with pytest.raises(InvalidItem):
            await apollo.context(terms)  # type: ignore[arg-type]
    context = await apollo.context()
    for tokens in (49, 0, "9", True):
        with pytest.raises(InvalidItem):
            context.format(tokens)  # type: ignore[arg-type]


async def test_search_finds_across_the_stores_whatever_the_status(apollo: Project, clock: ProjectClock) -> None:
    old = await apollo.decisions.create(title="Use Redis 6", tags=["DB"])
    new = await apollo.decisions.supersede(old.id, title="Use redis 7")
    task = await apollo.tasks.create(title="Install", description="(redis)", tags=["db"])
    await apollo.tasks.cancel(task.id)
    entity = await apollo.entities.create("REDIS")
    found = await apollo.search("Redi")
    assert {each.id for each in found.decisions} == {old.id, new.id}
    assert [each.id for each in (*found.tasks, *found.entities)] == [task.id, entity.id]
    found = await apollo.search("redis 7")
    assert ([each.id for each in found.decisions], found.tasks, found.entities) == ([new.id], (), ())
    found = await apollo.by_tag("db")
    assert [each.id for each in (*found.decisions, *found.tasks, *found.entities)] == [old.id, task.id]


@pytest.mark.parametrize("wanted", [1, 30, 200])
async def test_a_beginning_of_very_many_words_still_finds_all(apollo: Project, wanted: int) -> None:
    for number in range(20):
        await apollo.tasks.create(title=f"other {number}")
    for number in range(7):
        words = " ".join(f"a{number}x{place}" for place in range(12))
        await apollo.tasks.create(title="b", description=words)
    found = await apollo.tasks.list(text="a", limit=wanted)
    assert len(found) == min(7, wanted)
    assert len((await apollo.search("a", limit=wanted)).tasks) == min(7, wanted)
    assert await apollo.tasks.count(text="a") == 7
