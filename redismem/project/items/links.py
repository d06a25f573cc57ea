"""Links between items. A link is stored in both items, and removed when one of them ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from redismem.errors import TooLarge
from redismem.project.items.items import ItemChange, Items, StoredItem
from redismem.project.items.schema import TASK
from redismem.project.items.versions import State
from redismem.protocol.project.calls import LATEST
from redismem.text.normal_forms import fold_case

DEPENDENTS_COUNT = 200
# (kind, field) → the field of the other item that holds the reverse link
TWINS = {
    ("d", "related_decisions"): "related_decisions",
    ("d", "related_tasks"): "related_decisions",
    ("t", "related_decisions"): "related_tasks",
}
# kind letter → the field with links to items of the same kind that must not form a cycle, and its wording
_WAYS = {
    "d": ("superseded_by", "is superseded by"),
    "t": ("dependencies", "needs"),
    "e": ("merged_into", "is merged into"),
}
_TOLD_COUNT = 10


def links(stored: StoredItem) -> Iterator[tuple[str, str, Any]]:
    """Yield, for each link of an item, the other item, its field, and the value that this field must contain."""
    for (letter, name), twin in TWINS.items():
        if letter == stored.kind.letter:
            yield from ((other, twin, stored.id) for other in stored.state[name])
    for name, other, outgoing in stored.state.get("relations", ()):
        yield other, "relations", [name, stored.id, not outgoing]


def entity_names(state: State) -> list[str]:
    """Return the names that find an entity, case-folded: its own name, and the names of entities merged into it."""
    names = [] if state["merged_into"] or state["deleted"] else [state["name"], *state["aliases"]]
    return list(dict.fromkeys(fold_case(name) for name in names))


def find_broken_links(by_id: Mapping[str, StoredItem]) -> Iterator[str]:
    """Describe each link that the other item lacks, and each cycle. Links to missing items are ignored."""
    passed: set[str] = set()
    for _, stored in sorted(by_id.items()):
        yield from find_broken_links_of(stored, by_id)
        yield from find_cycle(stored, by_id, passed)


def find_broken_links_of(stored: StoredItem, by_id: Mapping[str, StoredItem]) -> Iterator[str]:
    """Describe the broken links of one item."""
    if stored.state["deleted"]:
        return
    for other_id, name, value in links(stored):
        other = by_id.get(other_id)
        if other is not None and not other.state["deleted"] and value not in other.state[name]:
            yield f"{stored.id} names {other_id}, which does not name it in {name}"
    for name, twin in (("superseded_by", "supersedes"), ("supersedes", "superseded_by")):
        other = by_id.get(stored.state.get(name) or "")
        if other is not None and other.state[twin] != stored.id:
            yield f"{stored.id} is {name.replace('_', ' ')} {other.id}, which says otherwise"


def find_cycle(stored: StoredItem, by_id: Mapping[str, StoredItem], passed: set[str]) -> Iterator[str]:
    """Describe the first cycle that is reachable from this item, if there is one.

    `passed` collects the visited items, so that several calls with the same `passed` visit each item once.
    """
    path: dict[str, Iterator[StoredItem]] = {}
    following = iter([stored])
    while True:
        for each in following:
            if each.id in path:
                ids = list(path)
                passed.update(path)
                yield _circle(ids[ids.index(each.id) :])
                return
            if each.id not in passed and not each.state["deleted"]:
                path[each.id] = following
                following = _follow(each, by_id)
                break
        else:
            if not path:
                return
            item_id, following = path.popitem()
            passed.add(item_id)


def _follow(stored: StoredItem, by_id: Mapping[str, StoredItem]) -> Iterator[StoredItem]:
    if stored.kind.letter in _WAYS:
        value = stored.state[_WAYS[stored.kind.letter][0]]
        others = value if isinstance(value, list) else [value]
        yield from (by_id[other] for other in others if other in by_id)


def _circle(ids: Sequence[str]) -> str:
    path = ", ".join(ids[1:_TOLD_COUNT]) + (f" and {len(ids) - _TOLD_COUNT} more" if len(ids) > _TOLD_COUNT else "")
    return f"{ids[0]} {_WAYS[ids[0][0]][1]} itself{path and f', over {path}'}: a circle"


async def unlink_all(items: Items, change: ItemChange, ending: Sequence[StoredItem]) -> None:
    """Remove ending items from all items that link to them. The commit raises Conflict if one of these has changed."""
    endings = {stored.id for stored in ending}
    drops: dict[str, dict[str, list[Any]]] = {}
    for stored in ending:
        for other, name, value in links(stored):
            drops.setdefault(other, {}).setdefault(name, []).append(value)
        if stored.kind is TASK:
            for index, name in (("needs", "dependencies"), ("waits", "blocked_by")):
                others = await load_dependents(items, change, stored.id, index)
                for other in others:
                    drops.setdefault(other, {}).setdefault(name, []).append(stored.id)
    others = [other for other in drops if other not in endings]
    for linked in await items.read(others):
        if linked is not None and not linked.state["deleted"]:
            change.alter(linked, drops=drops[linked.id])


async def check_dependents(items: Items, task_ids: Sequence[str], index: str) -> None:
    """Raise TooLarge if more tasks depend on, or wait for, one of these tasks than one change can update."""
    indexes = [items.keys.index(TASK.letter, f"{index}:{task_id}") for task_id in task_ids]
    counts = await items.run(items.calls.counts(indexes)) if indexes else []
    for task_id, count in zip(task_ids, counts, strict=True):
        if count >= DEPENDENTS_COUNT:
            raise TooLarge(f"{count} tasks depend on {task_id}, and {DEPENDENTS_COUNT} is a fixed limit")


async def load_dependents(items: Items, change: ItemChange, task_id: str, index: str) -> list[str]:
    """Return the tasks that depend on a task, or wait for it. The commit is refused if their number has changed."""
    name = f"{index}:{task_id}"
    task_ids = await items.run(items.calls.members(items.keys.index(TASK.letter, name), 0, LATEST, 0, 1_000))
    change.check_size(TASK, name, len(task_ids))
    return task_ids
