"""What takes the place of a project is whole, whatever was wrong with what stood there."""

from __future__ import annotations

from typing import Any

from inspection.test_projects import found, worked

from redismem import Memory
from redismem.project.folding import encode_body


async def test_an_item_that_is_not_what_its_versions_make_of_it_is_replaced(memory: Memory, raw: Any) -> None:
    """As one is that was written by a release that made something else of the same versions."""
    apollo = await worked(memory)
    (old,) = await apollo.decisions.list(status="superseded")
    (stored,) = await apollo._items.read([old.id], with_versions=True)
    assert stored is not None
    assert stored.deltas is not None
    wrong = stored.state | {"valid_until": None, "title": "Use something else"}
    await raw.hset(apollo._items.keys.items, old.id, encode_body(stored.kind, wrong, stored.deltas[-1]))
    assert [rule for rule, _ in await found(memory) if rule == "P1"]
    files = await apollo.export_files()
    told = await apollo.import_files(files, replace=True)
    assert (told.added, told.lengthened, told.erased) == (0, 1, 0)
    assert await apollo.decisions.get(old.id) == old
    assert await found(memory) == []
