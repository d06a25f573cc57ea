"""Erase items permanently, with their versions, names and index entries."""

from __future__ import annotations

from redismem.errors import Conflict
from redismem.project.items.indexes import HISTORY, places
from redismem.project.items.items import ItemChange, Items, StoredItem
from redismem.project.items.links import entity_names, unlink_all
from redismem.project.items.schema import DECISION, ENTITY, ItemKind, kind_of
from redismem.protocol.project.calls import EARLIEST, LATEST

_BATCH_COUNT = 50
_PAGE_COUNT = 500
# Index entries removed in one step, unless a single item has more.
_PLACES_COUNT = 1_000
_TRIES_LIMIT = 20


async def erase(items: Items, item_ids: list[str], *, closes_chain: bool = False) -> int:
    """Erase as many of these items as fit in one step, from the first, and return how many. Raises Conflict.

    With `closes_chain`, the decisions before and after an erased one are linked with each other.
    """
    batch = _take_first([stored for stored in await items.read(item_ids) if stored is not None])
    if not batch:
        return 0
    change = await items.change()
    await unlink_all(items, change, [stored for stored in batch if not stored.state["deleted"]])
    for stored in batch:
        if closes_chain and stored.kind is DECISION:
            await _close_chain(items, change, stored)
        change.erase(stored)
        if stored.kind is ENTITY:
            for name in entity_names(stored.state):
                change.name(name, stored.id, "")
    await change.commit()
    return len(batch)


async def _close_chain(items: Items, change: ItemChange, erased: StoredItem) -> None:
    """Link the decisions before and after an erased one with each other; a missing one ends the chain."""
    ids = [erased.state["supersedes"], erased.state["superseded_by"]]
    read = [stored for stored in await items.read([id for id in ids if id]) if stored is not None]
    by_id = {stored.id: stored for stored in read if not stored.state["deleted"]}
    before, after = (by_id.get(id or "") for id in ids)
    for one, name, other in ((before, "superseded_by", after), (after, "supersedes", before)):
        if one is not None and one.state[name] == erased.id:
            change.alter(one, sets={name: None if other is None else other.id})


async def erase_one(items: Items, item_id: str) -> bool:
    """Erase an item, even a deleted one, and return True if it existed. Entities merged into it are erased with it.

    Raises Conflict if other writers keep interfering.
    """
    lost = 0
    while True:
        try:
            if kind_of(item_id) is ENTITY:
                while merged := await _load_merged(items, item_id):
                    await erase(items, merged)
            return await erase(items, [item_id], closes_chain=True) > 0
        except Conflict:
            lost += 1
            if lost > _TRIES_LIMIT:
                raise


async def _load_merged(items: Items, item_id: str) -> list[str]:
    """Return the ids of the entities that were merged into this one, directly or through others."""
    index, into, read_count = items.keys.index(ENTITY.letter, "merged"), dict[str, str](), 0
    while page := await items.run(items.calls.members(index, EARLIEST, LATEST, read_count, _PAGE_COUNT)):
        read_count += len(page)
        into |= {stored.id: stored.state["merged_into"] for stored in await items.read(page) if stored is not None}
    merged, left = [item_id], [item_id]
    while left:
        left = [id for id, primary in into.items() if primary in left]
        merged += left
    return merged[1:]


def _take_first(candidates: list[StoredItem]) -> list[StoredItem]:
    taken: list[StoredItem] = []
    places_count = 0
    for stored in candidates:
        places_count += len(places(stored.kind, stored.state))
        if taken and places_count > _PLACES_COUNT:
            break
        taken.append(stored)
    return taken


async def erase_all(items: Items, kind: ItemKind) -> int:
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
