"""Compute statistics of a project."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from redismem.project.items.fields import as_datetime
from redismem.project.items.indexes import ALL, CHANGED, HISTORY, OPEN, TAGS
from redismem.project.items.items import Items
from redismem.project.items.schema import DECISION, ENTITY_TYPES, KINDS, PRIORITIES, TASK
from redismem.project.queries import pages
from redismem.project.queries.query import Query
from redismem.protocol.project.calls import EARLIEST, Group

_MOST_MENTIONED = 10


@dataclass(frozen=True, slots=True)
class Statistics:
    """Counts of a project. Archived items count in `totals` and by their status."""

    totals: dict[str, int]
    """the number of items that are not deleted, by kind: decision, task, entity, conversation"""
    decisions_by_status: dict[str, int]
    tasks_by_status: dict[str, int]
    tasks_by_priority: dict[str, int]
    entities_by_type: dict[str, int]
    """the number of entities by type, without merged entities"""
    open_tasks_count: int
    blocked_count: int
    overdue_count: int
    mean_completion: timedelta | None
    """the mean time from a task's valid_from to its completion; `None` if no task is completed"""
    most_mentioned: tuple[tuple[str, int], ...]
    """the names of entities, with their mention counts"""
    tags: dict[str, int]
    """the tags of all kinds with their counts, most used first"""


class Life(NamedTuple):
    """The time span of a project: from the moment its first item became true to its last change."""

    first: datetime
    last: datetime


async def read_life(items: Items) -> Life | None:
    """Read the time span of decisions, tasks and entities, including deleted items; `None` if there are no items."""
    indexes = [items.keys.index(letter, name) for letter in "dte" for name in (HISTORY, CHANGED)]
    ends = await items.run(items.calls.ends(indexes))
    return Life(as_datetime(min(ends)), as_datetime(max(ends))) if ends else None


async def read_statistics(items: Items) -> Statistics:
    """Read the statistics in a few round trips. Completed tasks are read one by one."""
    states = await _read_counts(items, {"open": f"t/{OPEN}", "blocked": "t/status:blocked"})
    totals = await _read_counts(items, {kind.name: f"{kind.letter}/{ALL}" for kind in KINDS.values()})
    return Statistics(
        totals,
        await _read_counts(items, {status: f"d/status:{status}" for status in DECISION.transitions or ()}),
        await _read_counts(items, {status: f"t/status:{status}" for status in TASK.transitions or ()}),
        await _read_counts(items, {priority: f"t/priority:{priority}" for priority in PRIORITIES[::-1]}),
        await _read_counts(items, {type: f"e/type:{type}" for type in ENTITY_TYPES}),
        states["open"],
        states["blocked"],
        await items.run(items.calls.count_between(items.keys.index("t", "due"), EARLIEST, await items.now_ms() - 1)),
        await _compute_mean_completion(items),
        await _read_most_mentioned(items),
        await _count_tags(items),
    )


async def _read_counts(items: Items, indexes: dict[str, str]) -> dict[str, int]:
    """Return the size of each index. An index is named as `letter/index`."""
    keys = [items.keys.index(*index.split("/", 1)) for index in indexes.values()]
    counts = await items.run(items.calls.counts(keys))
    return dict(zip(indexes, counts, strict=True))


async def _compute_mean_completion(items: Items) -> timedelta | None:
    completed = pages.load_all(items, Query(TASK, statuses=("completed",), with_archived=True))
    took_ms = [state["completed_at"] - state["valid_from_ms"] async for _, state in completed]
    return timedelta(milliseconds=sum(took_ms) / len(took_ms)) if took_ms else None


async def _read_most_mentioned(items: Items) -> tuple[tuple[str, int], ...]:
    index = items.keys.index("e", "mentioned")
    raw = await items.run(items.calls.find(index, [Group((index,))], _MOST_MENTIONED))
    states = [items.decode(item_id, body).state for item_id, body in raw.found]
    return tuple((state["name"], state["mention_count"]) for state in states if state["mention_count"])


async def _count_tags(items: Items) -> dict[str, int]:
    tag_counts: dict[str, int] = {}
    for letter in KINDS:
        (tags,) = await items.run(items.calls.words(items.keys.index(letter, TAGS), [""], 10_000))
        if tags:
            for tag, count in (await _read_counts(items, {tag: f"{letter}/tag:{tag}" for tag in tags})).items():
                tag_counts[tag] = tag_counts.get(tag, 0) + count
    return dict(sorted(tag_counts.items(), key=lambda pair: (-pair[1], pair[0])))
