"""Merge two entities that turn out to be the same."""

from __future__ import annotations

from typing import Any

from redismem.errors import InvalidItem
from redismem.project.items import fields
from redismem.project.items.items import ItemChange, Items, StoredItem
from redismem.project.items.links import entity_names
from redismem.project.items.versions import State


async def merge(items: Items, primary: StoredItem, duplicate: StoredItem) -> dict[str, State]:
    """Merge the duplicate into the primary and return the new states. Raises InvalidItem, Conflict."""
    for each in (primary, duplicate):
        if each.state["merged_into"]:
            raise InvalidItem(f"{each.id} is merged into {each.state['merged_into']}")
    if primary.id == duplicate.id:
        raise InvalidItem(f"{primary.id} cannot be merged into itself")
    change = await items.change()
    names = entity_names(duplicate.state)
    moved = await _move_relations(items, change, primary, duplicate)
    change.alter(
        primary,
        sets=_missing_fields(primary.state, duplicate.state),
        adds=moved | _added_fields(primary.state, duplicate.state),
    )
    change.alter(
        duplicate,
        sets={"merged_into": primary.id, "valid_until": change.moment(duplicate, None), "relations": []},
        reason=f"merged into {primary.id}",
    )
    for name in names:
        change.name(name, duplicate.id, primary.id)
    return await change.commit()


def _missing_fields(primary: State, duplicate: State) -> State:
    sets: State = {"tags": sorted({*primary["tags"], *duplicate["tags"]})}
    if not primary["description"]:
        sets["description"] = duplicate["description"]
    if primary["type"] == "other":
        sets["type"] = duplicate["type"]
    return sets


def _added_fields(primary: State, duplicate: State) -> State:
    properties = {name: value for name, value in duplicate["properties"].items() if name not in primary["properties"]}
    fields.properties(primary["properties"] | properties, "properties")
    names = dict.fromkeys((duplicate["name"], *duplicate["aliases"]))  # its name may be among its aliases
    return {
        "properties": properties,
        "mentions": duplicate["mentions"],
        "mention_count": duplicate["mention_count"],
        "aliases": [name for name in names if name != primary["name"]],
    }


async def _move_relations(items: Items, change: ItemChange, primary: StoredItem, duplicate: StoredItem) -> State:
    """Move the duplicate's relations to the primary, and return the relations that the primary gains."""
    moved: list[Any] = []
    relations = duplicate.state["relations"]
    others = sorted({other for _, other, _ in relations} - {primary.id})
    by_id = {stored.id: stored for stored in await items.read(others) if stored is not None}
    for name, other_id, outgoing in relations:
        if other_id == primary.id:
            change.alter(primary, drops={"relations": [[name, duplicate.id, not outgoing]]})
        elif other_id in by_id:
            moved.append([name, other_id, outgoing])
            change.alter(
                by_id[other_id],
                drops={"relations": [[name, duplicate.id, not outgoing]]},
                adds={"relations": [[name, primary.id, not outgoing]]},
            )
    return {"relations": moved} if moved else {}
