"""Two entities that turn out to be the same become one."""

from __future__ import annotations

from typing import Any

from redismem.errors import InvalidItem
from redismem.project.items import fields
from redismem.project.items.items import Change, Items, Stored
from redismem.project.items.links import entity_names
from redismem.project.items.versions import State


async def merge(items: Items, primary: Stored, duplicate: Stored) -> dict[str, State]:
    """Writes the merge. Gives what the items are then. Raises InvalidItem, Conflict."""
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
    found = {name: value for name, value in duplicate["properties"].items() if name not in primary["properties"]}
    fields.properties(primary["properties"] | found, "properties")
    names = dict.fromkeys((duplicate["name"], *duplicate["aliases"]))  # one may be an alias of its own
    return {
        "properties": found,
        "mentions": duplicate["mentions"],
        "mention_count": duplicate["mention_count"],
        "aliases": [name for name in names if name != primary["name"]],
    }


async def _move_relations(items: Items, change: Change, primary: Stored, duplicate: Stored) -> State:
    """What the duplicate is linked with is linked with the primary instead. Gives what the primary gets."""
    moved: list[Any] = []
    relations = duplicate.state["relations"]
    others = sorted({other for _, other, _ in relations} - {primary.id})
    found = {stored.id: stored for stored in await items.read(others) if stored is not None}
    for name, other_id, outgoing in relations:
        if other_id == primary.id:
            change.alter(primary, drops={"relations": [[name, duplicate.id, not outgoing]]})
        elif other_id in found:
            moved.append([name, other_id, outgoing])
            change.alter(
                found[other_id],
                drops={"relations": [[name, duplicate.id, not outgoing]]},
                adds={"relations": [[name, primary.id, not outgoing]]},
            )
    return {"relations": moved} if moved else {}
