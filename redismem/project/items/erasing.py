"""Erasing items for good, with their versions, their names and their places in the indexes."""

from __future__ import annotations

from redismem.errors import Conflict
from redismem.project.items.indexes import HISTORY, places
from redismem.project.items.items import Items, Stored
from redismem.project.items.links import entity_names, unlink_all
from redismem.project.items.schema import ENTITY, Kind
from redismem.protocol.project.calls import EARLIEST, LATEST

_BATCH_COUNT = 50
# So many places in indexes are left at once, or those of one item.
_PLACES_COUNT = 1_000
_TRIES_LIMIT = 20


async def erase(items: Items, item_ids: list[str]) -> int:
    """Erases the first of these items in one step, as many as that may take. Gives how many. Raises Conflict."""
    found = _take_first([stored for stored in await items.read(item_ids) if stored is not None])
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


def _take_first(found: list[Stored]) -> list[Stored]:
    taken: list[Stored] = []
    places_count = 0
    for stored in found:
        places_count += len(places(stored.kind, stored.state))
        if taken and places_count > _PLACES_COUNT:
            break
        taken.append(stored)
    return taken


async def erase_all(items: Items, kind: Kind) -> int:
    """Erases all items of a kind, some at a time. Gives how many there were. Raises Conflict if others keep writing."""
    index, count, lost = items.keys.index(kind.letter, HISTORY), 0, 0
    while item_ids := await items.run(items.calls.members(index, EARLIEST, LATEST, 0, _BATCH_COUNT)):
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
