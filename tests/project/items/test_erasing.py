"""Erase a single item: nothing of it is left in Redis, and the items around it stay whole."""

from __future__ import annotations

from typing import Any

import pytest
from support.clock import ProjectClock
from support.stored import read_namespace

from redismem import Conflict, InvalidItem, ItemNotFound, Memory
from redismem.inspection.projects import check_projects
from redismem.project.background import Found
from redismem.project.items.links import unlink_all
from redismem.project.project import Project

WORDS = ("zanzibar", "quokka", "vermilion", "oregano")
TEXT = "Zanzibar sells quokka and vermilion"


async def left_of(raw: Any, namespace: str) -> set[str]:
    """Return the words that are anywhere in the namespace."""
    content = repr(await read_namespace(raw, namespace)).casefold()
    return {word for word in WORDS if word in content}


async def check_whole(memory: Memory) -> None:
    assert [violation async for violation in check_projects(memory.store)] == []


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_no_word_version_or_index_entry_of_an_erased_item_is_left(
    apollo: Project, memory: Memory, clock: ProjectClock, raw: Any, namespace: str, is_deleted: bool
) -> None:
    task = await apollo.tasks.create("Buy paper")
    made = await apollo.decisions.create(TEXT, tags=["oregano"], related_tasks=[task.id])
    then = clock.tick()
    await apollo.decisions.update(made.id, rationale="oregano is cheaper", context=TEXT)
    entity = await apollo.entities.create("Quokka", "person", description=TEXT)
    blocked = await apollo.tasks.create(TEXT, assignee="Quokka", tags=["oregano"], description=TEXT)
    waits = await apollo.tasks.create("Wait", dependencies=[blocked.id])
    await apollo.entities.link(entity.id, "owns", (await apollo.entities.create("Shop")).id)
    assert await left_of(raw, namespace) == set(WORDS)
    stores = ((apollo.decisions, made.id), (apollo.entities, entity.id), (apollo.tasks, blocked.id))
    for store, item_id in stores:
        clock.tick()
        if is_deleted:
            await store.delete(item_id)
        assert await store.erase(item_id) is True
        assert await store.erase(item_id) is False
        assert not await store.exists(item_id, at=then)
        with pytest.raises(ItemNotFound):
            await store.versions(item_id)
    assert await left_of(raw, namespace) == set()
    assert (await apollo.tasks.get(task.id)).related_decisions == ()
    assert (await apollo.tasks.get(waits.id)).dependencies == ()
    assert await apollo.search("zanzibar quokka") == Found((), (), ())
    assert "uokka" not in await apollo.background([{"role": "user", "content": TEXT}], 500)
    exported = str(await apollo.export_files())
    assert "paper" in exported
    assert not any(word in exported.casefold() for word in WORDS)
    await check_whole(memory)


@pytest.mark.parametrize(("erased", "chains"), [(0, [[1, 2]]), (1, [[0, 2]]), (2, [[0, 1]])])
async def test_a_chain_of_decisions_closes_around_an_erased_one(
    apollo: Project, memory: Memory, erased: int, chains: list[list[int]]
) -> None:
    first = await apollo.decisions.create("one", status="accepted")
    second = await apollo.decisions.supersede(first.id, title="two")
    third = await apollo.decisions.supersede(second.id, title="three")
    ids = [first.id, second.id, third.id]
    await apollo.decisions.link_decision(first.id, third.id)
    assert await apollo.decisions.erase(ids[erased])
    for chain in chains:
        for at in chain:
            assert [each.id for each in await apollo.decisions.history(ids[at])] == [ids[each] for each in chain]
    last = await apollo.decisions.get(ids[chains[0][-1]])
    assert last.superseded_by is None
    await check_whole(memory)


async def test_entities_merged_into_an_erased_one_are_erased_with_it(
    apollo: Project, memory: Memory, raw: Any, namespace: str
) -> None:
    ada, quokka, oregano = [await apollo.entities.create(name, "person") for name in ("Ada", "Quokka", "Oregano")]
    await apollo.entities.merge(quokka.id, oregano.id)
    await apollo.entities.merge(ada.id, quokka.id)
    other = await apollo.entities.create("Zanzibar")
    assert await apollo.entities.erase(ada.id)
    assert await left_of(raw, namespace) == {"zanzibar"}
    assert [await apollo.entities.exists(each.id) for each in (ada, quokka, oregano)] == [False] * 3
    assert (await apollo.entities.list())[0].id == other.id
    assert await apollo.entities.find_by_name("quokka") is None
    await check_whole(memory)


async def test_a_conversation_is_erased_with_its_messages(apollo: Project, raw: Any, namespace: str) -> None:
    talk = await apollo.conversations.start(TEXT, tags=["oregano"])
    await apollo.conversations.add(talk.id, {"role": "user", "content": TEXT.casefold()})
    await apollo.conversations.end(talk.id, TEXT)
    assert await apollo.conversations.erase(talk.id) is True
    assert await left_of(raw, namespace) == set()
    assert await apollo.conversations.erase(talk.id) is False


async def test_another_writer_delays_an_erasure_and_an_id_of_another_kind_is_refused(
    apollo: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = await apollo.tasks.create("stays")
    made = await apollo.decisions.create("goes", related_tasks=[task.id])
    writes = [1]

    async def unlink_late(*arguments: Any) -> None:
        await unlink_all(*arguments)
        if writes.pop() < 3:
            await apollo.tasks.update(task.id, description="written meanwhile")
            writes.append(3)

    monkeypatch.setattr("redismem.project.items.erasing.unlink_all", unlink_late)
    assert await apollo.decisions.erase(made.id) is True
    assert (await apollo.tasks.get(task.id)).related_decisions == ()
    with pytest.raises(InvalidItem):
        await apollo.decisions.erase(task.id)
    again = await apollo.decisions.create("goes", related_tasks=[task.id])

    async def refuse(*_: Any) -> None:
        raise Conflict("always")

    monkeypatch.setattr("redismem.project.items.erasing.unlink_all", refuse)
    with pytest.raises(Conflict):
        await apollo.decisions.erase(again.id)
    assert await apollo.decisions.exists(again.id)
