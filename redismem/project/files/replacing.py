"""Compute the writes of a replacement, from the difference between the import and everything that is stored.

A merge derives the indexes and names from the stored items. A replacement reads every index and name as it is stored,
so it also removes inconsistencies, and works if a stored item is unreadable.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from redismem.project.files import import_ as importing
from redismem.project.items import stored as holdings
from redismem.project.items.items import Items, StoredItem
from redismem.protocol.call import Call
from redismem.protocol.project.imports import Pieces


async def load_readable(items: Items) -> tuple[dict[str, StoredItem], list[str]]:
    """Load all readable items, including deleted items, and the ids of unreadable items."""
    stored_items: dict[str, StoredItem] = {}
    lost: list[str] = []
    async for item_id, stored, fault in holdings.load_items(items):
        if stored is not None:
            stored_items[item_id] = stored
        elif fault is not None:
            lost.append(item_id)
    return stored_items, lost


async def build_pieces(
    items: Items, there: Mapping[str, StoredItem], lost: Collection[str], result: Mapping[str, StoredItem]
) -> Pieces:
    """Build the writes. `lost` are the ids of stored items that cannot be read. Raises TooLarge."""
    pieces = Pieces()
    wanted, stale = await _places(items, result.values()), await _places(items, there.values())
    async for index, seen in holdings.load_indexes(items, [*wanted, *stale]):
        key, members = items.keys.index(*index), wanted.get(index, {})
        for member, score in members.items():
            if seen.get(member) != score:
                pieces.add("ZADD", key, score, member)
        for member in seen.keys() - members.keys():
            pieces.add("ZREM", key, member)
    names = await items.run(items.calls.all_names())
    importing.add_names(pieces, items, names, dict(importing.names_of(result)))
    for at, item_id in enumerate(dict.fromkeys([*there, *lost, *result])):
        await importing.breathe(items, at)
        if there.get(item_id) is not result.get(item_id) or item_id in lost:
            numbers = await _numbers(items, item_id) if item_id in lost else importing.numbers_of(there.get(item_id))
            for write in importing.item_writes(items, item_id, numbers, result.get(item_id)):
                pieces.add(*write)
    return pieces


async def _places(items: Items, found: Iterable[StoredItem]) -> dict[holdings.Index, dict[str, int]]:
    indexes: dict[holdings.Index, dict[str, int]] = {}
    for at, stored in enumerate(found):
        await importing.breathe(items, at)
        holdings.add_places(indexes, stored)
    return indexes


async def _numbers(items: Items, item_id: str) -> Collection[int]:
    """Read the version numbers of an item that cannot be decoded."""

    def decode(numbers: list[bytes]) -> list[int]:
        return [int(number) for number in numbers]

    return await items.run(Call(None, (("HKEYS", items.keys.versions(item_id)),), decode))
