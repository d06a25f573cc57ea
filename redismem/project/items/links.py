"""Links between items, each seen from both ends, and how they end when an item does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from redismem.errors import TooLarge
from redismem.project.items.fields import fold_case
from redismem.project.items.items import Change, Items, Stored
from redismem.project.items.schema import TASK
from redismem.project.items.versions import State
from redismem.protocol.project.calls import LATEST

DEPENDENTS_COUNT = 200
# (kind, field) → the field of the other item that names this one
TWINS = {
    ("d", "related_decisions"): "related_decisions",
    ("d", "related_tasks"): "related_decisions",
    ("t", "related_decisions"): "related_tasks",
}
# letter of the kind → the field that leads from an item to others of its kind, and never back to it; what it says
_WAYS = {
    "d": ("superseded_by", "is superseded by"),
    "t": ("dependencies", "needs"),
    "e": ("merged_into", "is merged into"),
}
_TOLD_COUNT = 10


def links(stored: Stored) -> Iterator[tuple[str, str, Any]]:
    """For each link of an item: the other item, and what it holds in which field because of it."""
    for (letter, name), twin in TWINS.items():
        if letter == stored.kind.letter:
            yield from ((other, twin, stored.id) for other in stored.state[name])
    for name, other, outgoing in stored.state.get("relations", ()):
        yield other, "relations", [name, stored.id, not outgoing]


def entity_names(state: State) -> list[str]:
    """What an entity is found by: its own name and those of what was merged into it, without case."""
    names = [] if state["merged_into"] or state["deleted"] else [state["name"], *state["aliases"]]
    return list(dict.fromkeys(fold_case(name) for name in names))


def find_broken_links(found: Mapping[str, Stored]) -> Iterator[str]:
    """What the links of these items say that the other end does not. A link to what is not there is none."""
    passed: set[str] = set()
    for _, stored in sorted(found.items()):
        yield from find_broken_links_of(stored, found)
        yield from find_cycle(stored, found, passed)


def find_broken_links_of(stored: Stored, found: Mapping[str, Stored]) -> Iterator[str]:
    """The same of one of them."""
    if stored.state["deleted"]:
        return
    for other_id, name, value in links(stored):
        other = found.get(other_id)
        if other is not None and not other.state["deleted"] and value not in other.state[name]:
            yield f"{stored.id} names {other_id}, which does not name it in {name}"
    for name, twin in (("superseded_by", "supersedes"), ("supersedes", "superseded_by")):
        other = found.get(stored.state.get(name) or "")
        if other is not None and other.state[twin] != stored.id:
            yield f"{stored.id} is {name.replace('_', ' ')} {other.id}, which says otherwise"


def find_cycle(stored: Stored, found: Mapping[str, Stored], passed: set[str]) -> Iterator[str]:
    """The first circle that one of these items leads into, if it does, in words.

    `passed`: items that need not be looked at again. It grows, so that all calls together look at each item once.
    """
    path: dict[str, Iterator[Stored]] = {}
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
                following = _follow(each, found)
                break
        else:
            if not path:
                return
            item_id, following = path.popitem()
            passed.add(item_id)


def _follow(stored: Stored, found: Mapping[str, Stored]) -> Iterator[Stored]:
    if stored.kind.letter in _WAYS:
        value = stored.state[_WAYS[stored.kind.letter][0]]
        others = value if isinstance(value, list) else [value]
        yield from (found[other] for other in others if other in found)


def _circle(ids: Sequence[str]) -> str:
    told = ", ".join(ids[1:_TOLD_COUNT]) + (f" and {len(ids) - _TOLD_COUNT} more" if len(ids) > _TOLD_COUNT else "")
    return f"{ids[0]} {_WAYS[ids[0][0]][1]} itself{told and f', over {told}'}: a circle"


async def unlink_all(items: Items, change: Change, ending: Sequence[Stored]) -> None:
    """Takes items that end out of all others that name them, now. The others of the change must not have changed."""
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
    wanted = [other for other in drops if other not in endings]
    for found in await items.read(wanted):
        if found is not None and not found.state["deleted"]:
            change.alter(found, drops=drops[found.id])


async def check_dependents(items: Items, task_ids: Sequence[str], index: str) -> None:
    """Raises TooLarge for tasks that as many need, or wait for, as one change can follow."""
    indexes = [items.keys.index(TASK.letter, f"{index}:{task_id}") for task_id in task_ids]
    counts = await items.run(items.calls.counts(indexes)) if indexes else []
    for task_id, count in zip(task_ids, counts, strict=True):
        if count >= DEPENDENTS_COUNT:
            raise TooLarge(f"{count} tasks depend on {task_id}, and no more may")


async def load_dependents(items: Items, change: Change, task_id: str, index: str) -> list[str]:
    """The tasks that need a task, or wait for it. The change is refused if there are others by then."""
    name = f"{index}:{task_id}"
    found = await items.run(items.calls.members(items.keys.index(TASK.letter, name), 0, LATEST, 0, 1_000))
    change.check_size(TASK, name, len(found))
    return found
