"""A replacement is complete, whatever was wrong with the stored project."""

from __future__ import annotations

from typing import Any

import pytest
from inspection.test_projects import DAMAGE, create_project, find_violations

from redismem import Memory
from redismem.project.items.versions import encode_body


async def test_an_item_that_is_not_what_its_versions_make_of_it_is_replaced(memory: Memory, raw: Any) -> None:
    """Written by a release that derived another state from the same versions."""
    apollo = await create_project(memory)
    (old,) = await apollo.decisions.list(status="superseded")
    (stored,) = await apollo._items.read([old.id], with_versions=True)
    assert stored is not None
    assert stored.deltas is not None
    wrong = stored.state | {"valid_until": None, "title": "Use something else"}
    last = max(stored.deltas, key=lambda delta: delta.version)
    await raw.hset(apollo._items.keys.items, old.id, encode_body(stored.kind, wrong, last))
    assert [rule for rule, _ in await find_violations(memory) if rule == "P1"]
    files = await apollo.export_files()
    told = await apollo.import_files(files, replace=True)
    assert (told.added, told.lengthened, told.erased) == (0, 1, 0)
    assert await apollo.decisions.get(old.id) == old
    assert await find_violations(memory) == []


@pytest.mark.parametrize("damage", [each[0] for each in DAMAGE], ids=lambda damage: damage.__name__)
async def test_whatever_was_wrong_is_right_afterwards(memory: Memory, raw: Any, damage: Any) -> None:
    apollo = await create_project(memory)
    (old,) = await apollo.decisions.list(status="superseded")
    (new,) = await apollo.decisions.active()
    ids = {"new": new.id, "old": old.id, "first": (await apollo.tasks.list(text="move"))[0].id}
    ids["ada"] = (await apollo.entities.list(text="ada"))[0].id
    files = await apollo.export_files()
    await damage(raw, apollo._items.keys, ids)
    assert await find_violations(memory)
    await apollo.import_files(files, replace=True)
    assert await find_violations(memory) == []
    assert await apollo.export_files() == files


async def test_what_cannot_be_read_and_is_not_in_the_import_is_erased(memory: Memory, raw: Any) -> None:
    apollo = await create_project(memory)
    files = await apollo.export_files()
    lost = await apollo.tasks.create("Lost words", tags=["gone"])
    for title in ("Lost again", "Lost for good"):
        await apollo.tasks.update(lost.id, title=title)
    await raw.hset(apollo._items.keys.items, lost.id, "3 nothing")
    told = await apollo.import_files(files, replace=True)
    assert (told.added, told.lengthened, told.erased) == (0, 0, 1)
    assert await find_violations(memory) == []
    assert not await raw.exists(apollo._items.keys.versions(lost.id))
    assert await apollo.export_files() == files


async def test_more_strays_than_are_read_at_once_are_gone(memory: Memory, raw: Any) -> None:
    apollo = await create_project(memory)
    strays: dict[Any, float] = {f"stray {number}": 5 for number in range(1_100)}
    await raw.zadd(apollo._items.keys.index("d", "open"), strays)
    await apollo.import_files(await apollo.export_files(), replace=True)
    assert await raw.zcard(apollo._items.keys.index("d", "open")) == len(await apollo.decisions.list())
    assert await find_violations(memory) == []
