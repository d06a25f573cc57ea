"""Erase items permanently, with their versions, names and index entries."""

from __future__ import annotations

from redismem.errors import Conflict
from redismem.project.items.indexes import HISTORY, places
from redismem.project.items.items import Items, Stored
from redismem.project.items.links import entity_names, unlink_all
from redismem.project.items.schema import ENTITY, Kind
from redismem.protocol.project.calls import EARLIEST, LATEST

_BATCH_COUNT = 50
# Index entries removed in one step, unless a single item has more.
_PLACES_COUNT = 1_000
_TRIES_LIMIT = 20


async def erase(items: Items, item_ids: list[str]) -> int:
    """Erase as many of these items as fit in one step, from the first, and return how many. Raises Conflict."""
    batch = _take_first([stored for stored in await items.read(item_ids) if stored is not None])
    if not batch:
        return 0
    change = await items.change()
    await unlink_all(items, change, batch)
    for stored in batch:
        change.erase(stored)
        if stored.kind is ENTITY:
            for name in entity_names(stored.state):
                change.name(name, stored.id, "")
    await change.commit()
    return len(batch)


def _take_first(candidates: list[Stored]) -> list[Stored]:
    taken: list[Stored] = []
    places_count = 0
    for stored in candidates:
        places_count += len(places(stored.kind, stored.state))
        if taken and places_count > _PLACES_COUNT:
            break
        taken.append(stored)
    return taken


async def erase_all(items: Items, kind: Kind) -> int:
    """Erase all items of a kind in steps and return how many. Raises Conflict if other writers keep interfering."""
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
        if not erased:  # index entries without an item, left by a crash
            await items.run(items.calls.remove_from(index, item_ids))
    return count
