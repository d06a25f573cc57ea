"""Tasks of a project."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TypedDict, Unpack

from redismem.errors import InvalidItem, InvalidTransition
from redismem.project.items import fields as checks
from redismem.project.items import graph
from redismem.project.items.items import ItemChange, require_present
from redismem.project.items.links import check_dependents, load_dependents
from redismem.project.items.records import Page, Task
from redismem.project.items.schema import TASK, Priority, TaskStatus
from redismem.project.kinds.collection import Collection
from redismem.project.queries import pages
from redismem.project.queries.query import Query, TaskCriteria


class TaskDetails(TypedDict, total=False):
    """The fields of a task besides its title."""

    description: str
    priority: Priority
    assignee: str | None
    due_date: datetime | None
    tags: Sequence[str]
    valid_until: datetime | None


class TaskFields(TaskDetails, total=False):
    """The fields that an update of a task may set."""

    title: str


class TaskQuery(TaskCriteria, total=False):
    """The arguments of `list` and `count`; `at` and `known_at` select an earlier moment."""

    at: datetime
    known_at: datetime


class Tasks(Collection[Task]):
    """The tasks of a project, by priority, then newest first."""

    kind = TASK
    record = Task

    async def create(
        self,
        title: str,
        *,
        status: TaskStatus = "backlog",
        dependencies: Sequence[str] = (),
        related_decisions: Sequence[str] = (),
        at: datetime | None = None,
        **fields: Unpack[TaskDetails],
    ) -> Task:
        """Create a task: backlog, planned or in_progress. `at` is when it became true, now by default.

        Raises InvalidItem, TooLarge, and ItemNotFound if a dependency or a linked item is missing.
        """
        needed: list[str] = checks.item_ids("t")(dependencies, "dependencies")
        related: list[str] = checks.item_ids("d")(related_decisions, "related_decisions")
        others = await self._load_others(needed + related, at)
        await check_dependents(self._items, needed, "needs")
        sets = self.kind.check_fields({"title": title, **fields})
        sets["status"] = checks.choice(*self.kind.begins)(status, "status")
        change = await self._items.change()
        at_ms = None if at is None else checks.moment(at, "at")
        new_id = change.create(self.kind, sets | {"dependencies": needed, "related_decisions": related}, at_ms)
        for other in others:
            if other.id in related:
                change.alter(other, at_ms, adds={"related_tasks": [new_id]})
            else:
                change.check(other)
        return self._to_record(await change.commit(), new_id)

    async def update(
        self, id: str, *, expect: int | None = None, at: datetime | None = None, **fields: Unpack[TaskFields]
    ) -> Task:
        """Set these fields. `expect` is the version that the caller has seen.

        Raises ItemNotFound, InvalidItem, TooLarge, Conflict.
        """
        return await self._update_fields(id, fields, expect, at)

    async def plan(self, id: str, reason: str = "", *, expect: int | None = None, at: datetime | None = None) -> Task:
        """Move a task from backlog, in_progress or blocked to planned.

        Raises ItemNotFound, InvalidTransition, Conflict.
        """
        return await self._move(id, "planned", reason, expect, at)

    async def start(self, id: str, reason: str = "", *, expect: int | None = None, at: datetime | None = None) -> Task:
        """Move a task from backlog, planned or blocked to in_progress. Ignores `can_start`. Raises like `plan`."""
        return await self._move(id, "in_progress", reason, expect, at)

    async def complete(
        self, id: str, reason: str = "", *, expect: int | None = None, at: datetime | None = None
    ) -> Task:
        """Move a task from in_progress to completed, and in the same step remove it from the blockers of other tasks.

        A task that has no blockers left gets its previous status back. Raises like `plan`.
        """
        return await self._move(id, "completed", reason, expect, at)

    async def cancel(self, id: str, reason: str = "", *, expect: int | None = None, at: datetime | None = None) -> Task:
        """Move a task from any status but completed to cancelled. Raises like `plan`."""
        return await self._move(id, "cancelled", reason, expect, at)

    async def reopen(self, id: str, reason: str = "", *, expect: int | None = None, at: datetime | None = None) -> Task:
        """Move a task from any other status back to backlog. Raises like `plan`."""
        return await self._move(id, "backlog", reason, expect, at)

    async def block(
        self, id: str, by: str, reason: str = "", *, expect: int | None = None, at: datetime | None = None
    ) -> Task:
        """Block a task by a text, or by the id of another task. A task that is blocked already gets one more blocker.

        Raises InvalidTransition, ItemNotFound, Conflict, and InvalidItem if the blocking task has ended.
        """
        stored, at_ms = await self._open(id, expect, at)
        blocker = checks.line(by, "by")
        change = await self._items.change()
        change.alter(stored, at_ms, sets={"status": "blocked"}, adds={"blocked_by": [blocker]}, reason=reason)
        if checks.is_item_id("t", blocker):
            (other,) = require_present(await self._items.read([blocker]), [blocker])
            waits = blocker in change.state(id)["blocked_by"]
            if other.id == id or (waits and other.state["status"] in TASK.ended):
                raise InvalidItem(f"{other.id} cannot block: it is {other.state['status']}, or the task itself")
            await check_dependents(self._items, [blocker], "waits")
            change.check(other)
        return self._to_record(await change.commit(), id)

    async def unblock(
        self, id: str, reason: str = "", *, expect: int | None = None, at: datetime | None = None
    ) -> Task:
        """Remove all blockers and restore the status from before the task was blocked. Raises like `plan`."""
        stored, at_ms = await self._open(id, expect, at)
        state = stored.as_of(at_ms, None) or stored.state
        if state["status"] != "blocked":
            raise InvalidTransition(
                f"a task that is {state['status']} is not blocked", None, state["status"], "unblocked"
            )
        change = await self._items.change()
        change.alter(stored, at_ms, sets={"blocked_by": []}, reason=reason)
        return self._to_record(await change.commit(), id)

    async def can_start(self, id: str) -> bool:
        """True if all dependencies are completed. Raises ItemNotFound."""
        task = await self.get(id)
        dependencies = await self._items.read(task.dependencies)
        return all(other is None or other.state["status"] == "completed" for other in dependencies)

    async def add_dependency(self, id: str, needed_id: str, *, at: datetime | None = None) -> Task:
        """Add a dependency to a task. Raises ItemNotFound, Conflict, and InvalidItem if this makes a cycle."""
        stored, at_ms = await self._open(id, None, at)
        await check_dependents(self._items, [self._id(needed_id)], "needs")
        change = await self._items.change()
        for other in await graph.load_reachable(self._items, [self._id(needed_id)]):
            if other.id == id:
                raise InvalidItem(f"{id} cannot need {needed_id}, which needs it: a cycle")
            change.check(other)
        change.alter(stored, at_ms, adds={"dependencies": [needed_id]})
        return self._to_record(await change.commit(), id)

    async def remove_dependency(self, id: str, needed_id: str, *, at: datetime | None = None) -> Task:
        """Remove a dependency from a task. Raises ItemNotFound, Conflict."""
        stored, at_ms = await self._open(id, None, at)
        change = await self._items.change()
        change.alter(stored, at_ms, drops={"dependencies": [self._id(needed_id)]})
        return self._to_record(await change.commit(), id)

    async def dependency_graph(self, id: str | None = None) -> dict[str, tuple[str, ...]]:
        """Return the dependencies by task: for one task and all that it depends on, or for all open tasks.

        Takes one round trip per level. Raises ItemNotFound.
        """
        if id is not None:
            found = await graph.load_reachable(self._items, [self._id(id)])
        else:
            open_ids = [task_id async for task_id, _ in pages.load_all(self._items, Query(TASK))]
            found = await graph.load_reachable(self._items, open_ids)
        return {stored.id: tuple(stored.state["dependencies"]) for stored in found}

    async def link_decision(self, id: str, decision_id: str, *, at: datetime | None = None) -> Task:
        """Link a task and a decision in both directions. Raises ItemNotFound, Conflict."""
        return await self._link(id, "related_decisions", decision_id, at)

    async def unlink_decision(self, id: str, decision_id: str, *, at: datetime | None = None) -> Task:
        """Remove the link between a task and a decision. Raises ItemNotFound, Conflict."""
        return await self._link(id, "related_decisions", decision_id, at, ends=True)

    async def active(self, *, limit: int = 100, cursor: str | None = None) -> Page[Task]:
        """Return the tasks that are neither completed nor cancelled."""
        return await self._list({}, limit, cursor)

    async def blocked(self, *, limit: int = 100, cursor: str | None = None) -> Page[Task]:
        """Return the blocked tasks."""
        return await self._list({"status": "blocked"}, limit, cursor)

    async def in_progress(self, *, limit: int = 100, cursor: str | None = None) -> Page[Task]:
        """Return the tasks in progress."""
        return await self._list({"status": "in_progress"}, limit, cursor)

    async def overdue(self, *, limit: int = 100, cursor: str | None = None) -> Page[Task]:
        """Return the tasks that are past their due date and neither completed nor cancelled."""
        now_ms = await self._items.now_ms()
        return await self._list({"due_before": checks.as_datetime(now_ms)}, limit, cursor)

    async def list(self, *, limit: int = 100, cursor: str | None = None, **criteria: Unpack[TaskQuery]) -> Page[Task]:
        """Return matching tasks, by priority, then newest first. Completed and cancelled tasks come only on request.

        Raises InvalidItem.
        """
        return await self._list(criteria, limit, cursor)

    async def count(self, **criteria: Unpack[TaskQuery]) -> int:
        """Count the matching tasks. Reads each of them."""
        return await self._count(criteria)

    async def _move(self, id: str, status: str, reason: str, expect: int | None, at: datetime | None) -> Task:
        stored, at_ms = await self._open(id, expect, at)
        change = await self._items.change()
        change.alter(stored, at_ms, sets={"status": status}, reason=reason)
        if change.state(id)["status"] == "completed":
            await self._unblock_waiting(change, id)
        return self._to_record(await change.commit(), id)

    async def _unblock_waiting(self, change: ItemChange, id: str) -> None:
        """Remove this task from the blockers of all tasks that wait for it."""
        waiting = await self._items.read(await load_dependents(self._items, change, id, "waits"))
        for other in waiting:
            if other is not None and not other.state["deleted"]:
                change.alter(other, drops={"blocked_by": [id]}, reason=f"{id} is completed")
