"""Record decisions, tasks and entities once: the rules that HTTP and MCP share.

A client that lost an answer asks again. Under an id a change is made once. Without one, an item in force with exactly
this title is the one that was meant.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar

from redismem.errors import Conflict, InvalidItem
from redismem.project.items.items import ChangeKnown, change_id_of, known_id
from redismem.project.items.records import Decision, Entity, Item, Task
from redismem.project.items.schema import DecisionStatus, ItemKind, TaskStatus
from redismem.project.kinds.collection import Collection
from redismem.project.kinds.decisions import Decisions
from redismem.project.kinds.entities import Entities
from redismem.project.kinds.tasks import Tasks
from redismem.project.project import Project
from redismem.store.store import Store

R = TypeVar("R", bound=Item)
_SAME_COUNT = 100
_TASK_MOVES = {
    "backlog": "reopen",
    "planned": "plan",
    "in_progress": "start",
    "completed": "complete",
    "cancelled": "cancel",
}
_DECISION_MOVES = {"accepted": "accept", "rejected": "reject", "deprecated": "deprecate"}


class ChangeName(NamedTuple):
    """The id of a change, and the bytes of the request: another request under this id is refused."""

    id: str
    request: bytes


async def change_once(
    project: Project,
    store: Store,
    named: ChangeName,
    kind: ItemKind,
    change: Callable[[Project], Awaitable[R]],
    item_id: str | None = None,
) -> tuple[R, bool]:
    """Make a change of a project once. Return the item as it is now, and False if the change was made before.

    `item_id` is the item that it changes, `None` if it creates one. Raises the errors of the change, and InvalidItem if
    the id belongs to another change.
    """
    change_id = change_id_of(named.id, named.request)
    handle = Project(store, project.name, change_id=change_id)
    try:
        return await change(handle), True
    except ChangeKnown as error:
        known = error
    except Conflict:
        found = await _find_known(handle, kind, item_id or known_id(kind, change_id))
        if found is None:
            raise
        known = found  # another attempt was faster
    if not known.is_same:
        raise InvalidItem("this id was used for another change of the project")
    items = _items_of(project, kind)
    made_id = item_id or known_id(kind, change_id)
    return await items.get(made_id if await items.exists(made_id) else known.item_id), False


async def _find_known(handle: Project, kind: ItemKind, item_id: str) -> ChangeKnown | None:
    try:
        await _items_of(handle, kind).exists(item_id)
    except ChangeKnown as known:
        return known
    return None


def _items_of(project: Project, kind: ItemKind) -> Collection[Any]:
    stores: dict[str, Collection[Any]] = {"d": project.decisions, "t": project.tasks, "e": project.entities}
    return stores[kind.letter]


async def record_decision(
    decisions: Decisions, title: str, supersedes: str | None = None, **fields: Any
) -> tuple[Decision, bool]:
    """Record a decision, or let it supersede another one. Returns False beside one in force with exactly this title."""
    if same := await _with_title(decisions, title):
        return same, False
    return await make_decision(decisions, title, supersedes, **fields), True


async def make_decision(decisions: Decisions, title: str, supersedes: str | None = None, **fields: Any) -> Decision:
    """Create a decision, or supersede another one by it."""
    if supersedes:
        return await decisions.supersede(supersedes, title=title, **fields)
    return await decisions.create(title, **fields)


async def record_task(tasks: Tasks, title: str, **fields: Any) -> tuple[Task, bool]:
    """Record a task. Returns False beside the open one with exactly this title."""
    if same := await _with_title(tasks, title):
        return same, False
    return await tasks.create(title, **fields), True


async def record_entity(entities: Entities, name: str, **fields: Any) -> tuple[Entity, bool]:
    """Record a person or thing, and fill in what is missing of a known one. Returns False beside a known one."""
    known = await entities.find_by_name(name)
    return await entities.find_or_create(name, **fields), known is None


async def set_task_status(
    tasks: Tasks, task_id: str, status: TaskStatus, reason: str = "", blocked_by: str = "", **options: Any
) -> Task:
    """Move a task to a status. A task that has it, and waits for `blocked_by` already, stays as it is."""
    if (status == "blocked") != bool(blocked_by):
        raise InvalidItem("give blocked_by with the status blocked, and with no other")
    task = await tasks.get(task_id)
    _check_seen(task, options.get("expect"))
    if status == "blocked":
        return task if blocked_by in task.blocked_by else await tasks.block(task_id, blocked_by, reason, **options)
    if task.status == status:
        return task
    moved: Task = await getattr(tasks, _TASK_MOVES[status])(task_id, reason, **options)
    return moved


async def set_decision_status(
    decisions: Decisions, decision_id: str, status: DecisionStatus, reason: str = "", by: str = "", **options: Any
) -> Decision:
    """Move a decision to a status; `by` is the decision that supersedes it. One that has the status stays as it is."""
    if (status == "superseded") != bool(by):
        raise InvalidItem("give superseded_by with the status superseded, and with no other")
    decision = await decisions.get(decision_id)
    _check_seen(decision, options.get("expect"))
    if decision.status == status and by in ("", decision.superseded_by):
        return decision
    if by:
        await decisions.supersede(decision_id, by, reason=reason, **options)
        return await decisions.get(decision_id)
    if status not in _DECISION_MOVES:
        raise InvalidItem(f"no decision becomes {status} again: record a new one")
    moved: Decision = await getattr(decisions, _DECISION_MOVES[status])(decision_id, reason, **options)
    return moved


def _check_seen(item: Item, expect: int | None) -> None:
    if expect is not None and expect != item.version:
        raise Conflict(f"another writer was faster: {item.id} is at version {item.version} now")


async def _with_title(items: Any, title: str) -> Any:
    """Return an item in force with exactly this title, among the first 100 with its words; else `None`."""
    line = " ".join(title.split())
    if not any(map(str.isalnum, line)):
        return None
    page = await items.list(text=line[:2_000], fields=["title"], limit=_SAME_COUNT)
    return next((each for each in page if " ".join(each.title.split()) == line), None)
