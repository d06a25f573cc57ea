"""Erasing items for good, with their versions, their names and their places in the indexes."""

from __future__ import annotations

from redismem.errors import Conflict
from redismem.project.indexes import HISTORY
from redismem.project.items import Items
from redismem.project.links import entity_names, unlink_all
from redismem.project.schema import ENTITY, Kind
from redismem.protocol.project_calls import LATEST

_BATCH_COUNT = 50
_TRIES_LIMIT = 20


async def erase(items: Items, item_ids: list[str]) -> int:
    """Erases these items in one step. Gives how many there were. Raises Conflict."""
    found = [stored for stored in await items.read(item_ids) if stored is not None]
    if not found:
        return 0
    change = await items.change()
    await unlink_all(items, change, found)
    for stored in found:
        change.erase(stored)
        if stored.kind is ENTITY:
            for name in entity_names(stored.state):
                change.name(name, stored.id, "")
    await change.commit()
    return len(found)


async def erase_all(items: Items, kind: Kind) -> int:
    """Erases all items of a kind, some at a time. Gives how many there were. Raises Conflict if others keep writing."""
    index, count, lost = items.keys.index(kind.letter, HISTORY), 0, 0
    while item_ids := await items.run(items.calls.members(index, 0, LATEST, 0, _BATCH_COUNT)):
        try:
            erased = await erase(items, item_ids)
        except Conflict:
            lost += 1
            if lost > _TRIES_LIMIT:
                raise
            continue
        count += erased
        if not erased:  # places of items that are not there, which a crash has left
            await items.run(items.calls.leave(index, item_ids))
    return count
