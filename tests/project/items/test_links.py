"""Links between items: cycles are found, and shared dependencies are not mistaken for cycles."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from inspection.test_projects import create_project
from support.clock import ProjectClock
from support.project_scenes import read_project

from redismem import CorruptSession, InvalidItem, Memory
from redismem.project.items import links
from redismem.project.items.items import StoredItem
from redismem.project.items.links import find_broken_links
from redismem.project.items.schema import TASK
from redismem.project.project import Project


def tasks(needed: Mapping[int, Sequence[int]], *, deleted: int = -1) -> dict[str, StoredItem]:
    """Create tasks from numbers, each with the numbers it depends on."""
    made = (
        StoredItem(
            TASK,
            id_of(number),
            TASK.defaults() | {"dependencies": [id_of(other) for other in others], "deleted": number == deleted},
            None,
            None,
        )
        for number, others in needed.items()
    )
    return {stored.id: stored for stored in made}


def id_of(number: int) -> str:
    return f"t-{number:018}"


@pytest.mark.parametrize(
    ("needed", "circles"),
    [
        ({0: [1, 2], 1: [3], 2: [3], 3: []}, []),
        ({0: [9]}, []),
        ({0: [0]}, [f"{id_of(0)} needs itself: a circle"]),
        ({0: [1], 1: [2, 3], 2: [], 3: [1]}, [f"{id_of(1)} needs itself, over {id_of(3)}: a circle"]),
        (
            {0: [1], 1: [0], 2: [3, 0], 3: [2]},
            [
                f"{id_of(0)} needs itself, over {id_of(1)}: a circle",
                f"{id_of(2)} needs itself, over {id_of(3)}: a circle",
            ],
        ),
    ],
)
def test_each_circle_is_told_once_whatever_the_order(needed: dict[int, list[int]], circles: list[str]) -> None:
    found = tasks(needed)
    assert list(find_broken_links(found)) == circles
    assert list(find_broken_links(dict(reversed(found.items())))) == circles


def test_what_is_deleted_leads_nowhere() -> None:
    assert list(find_broken_links(tasks({0: [1], 1: [2], 2: [0]}, deleted=1))) == []


def test_a_long_circle_is_told_by_its_first() -> None:
    (told,) = find_broken_links(tasks({number: [(number + 1) % 5_000] for number in range(5_000)}))
    assert told.startswith(f"{id_of(0)} needs itself, over {id_of(1)}, {id_of(2)}, ")
    assert told.endswith(f"{id_of(9)} and 4990 more: a circle")


def test_each_item_is_looked_at_once_however_many_ways_lead_there(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    inner = links._follow

    def counted(stored: StoredItem, found: Mapping[str, StoredItem]) -> object:
        looked.append(stored.id)
        return inner(stored, found)

    monkeypatch.setattr(links, "_follow", counted)
    found = tasks({number: [number + 1, number + 2] for number in range(100)})
    assert list(find_broken_links(found)) == []
    assert sorted(looked) == sorted(found)


async def test_a_chain_that_leads_back_to_itself_is_told(
    apollo: Project, clock: ProjectClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No call creates a cycle, so this one is written directly."""
    first = await apollo.decisions.create(title="1")
    second = await apollo.decisions.supersede(first.id, title="2")
    third = await apollo.decisions.supersede(second.id, title="3")
    outside = await apollo.decisions.create(title="outside")

    async def alter(**sets: Any) -> None:
        change = await apollo._items.change()
        change.alter(await apollo._items.get(first.id), sets={"supersedes": sets["before_first"]})
        change.alter(await apollo._items.get(third.id), sets={"superseded_by": sets["after_third"]})
        change.alter(await apollo._items.get(outside.id), sets={"superseded_by": sets["after_outside"]})
        await change.commit()

    await alter(before_first=third.id, after_third=first.id, after_outside=first.id)
    closed = clock.now
    clock.tick()
    await alter(before_first=None, after_third=None, after_outside=None)
    ids = [first.id, second.id, third.id]
    assert [each.id for each in await apollo.decisions.history(second.id)] == ids
    inner, reads = apollo._items.read, 0

    async def read(*args: Any, **options: Any) -> Any:
        nonlocal reads
        reads += 1
        assert reads < 50, "it goes round and round"
        return await inner(*args, **options)

    monkeypatch.setattr(apollo._items, "read", read)
    for start in (*ids, outside.id):
        reads = 0
        with pytest.raises(
            CorruptSession, match=r"item d-\w+ of project apollo: its chain leads back to d-\w+, a circle"
        ):
            await apollo.decisions.history(start, at=closed)


def find_by_name(documents: Any, kind: str, name: str) -> Any:
    return next(each for each in documents[f"{kind}.json"][kind] if name in (each.get("title"), each.get("name")))


def decisions_in_a_circle(documents: Any) -> set[str]:
    old, new = (find_by_name(documents, "decisions", title) for title in ("Use Postgres", "Use Redis"))
    old["versions"][0]["sets"]["supersedes"] = new["id"]
    new["versions"][0]["sets"]["superseded_by"] = old["id"]
    return {old["id"], new["id"]}


def a_decision_in_its_own_place(documents: Any) -> set[str]:
    alone = find_by_name(documents, "decisions", "Use Redis")
    documents["decisions.json"]["decisions"] = [alone]
    alone["versions"][0]["sets"] |= {"supersedes": alone["id"], "superseded_by": alone["id"]}
    return {alone["id"]}


def tasks_in_a_circle(documents: Any) -> set[str]:
    first, second = (find_by_name(documents, "tasks", title) for title in ("Move", "Write"))
    first["versions"][0]["sets"]["dependencies"] = [second["id"]]
    return {first["id"], second["id"]}


def entities_in_a_circle(documents: Any) -> set[str]:
    ada, double = (find_by_name(documents, "entities", name) for name in ("Ada", "A."))
    ada["versions"][0]["sets"]["merged_into"] = double["id"]
    return {ada["id"], double["id"]}


CIRCLES = [decisions_in_a_circle, a_decision_in_its_own_place, tasks_in_a_circle, entities_in_a_circle]


@pytest.mark.parametrize("close", CIRCLES)
async def test_what_leads_back_to_itself_is_refused_by_name_and_nothing_is_written(
    memory: Memory, raw: Any, close: Callable[[Any], set[str]]
) -> None:
    apollo = await create_project(memory)
    documents = {name: json.loads(text) for name, text in (await apollo.export_files()).items()}
    ids = close(documents)
    files = {name: json.dumps(document) for name, document in documents.items()}
    other = memory.project("other")
    for replace in (False, True):
        with pytest.raises(InvalidItem, match=r"the import is inconsistent: .* itself.*: a circle") as refused:
            await other.import_files(files, replace=replace)
        assert set(re.findall(r"[cdet]-\w{18}", str(refused.value))) == ids
        assert await read_project(other, raw) == {}
