"""`TaskStore` keeps the tasks of an agent: the last save of a task wins."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import NamedTuple

from redismem.adapters.a2a.places import SUMMARY, TASK, Places
from redismem.adapters.sessions import read_or_begin
from redismem.record import Change, Record, RecordEntry
from redismem.settings.extras import from_extra

with from_extra("a2a", __name__):
    from a2a.server import tasks as theirs
    from a2a.server.context import ServerCallContext
    from a2a.types import ListTasksRequest, ListTasksResponse, Task
    from a2a.utils.constants import DEFAULT_LIST_TASKS_PAGE_SIZE
    from a2a.utils.errors import InvalidParamsError
    from a2a.utils.task import ListTasksCursor, decode_list_tasks_cursor, decode_page_token, encode_list_tasks_cursor


class _Row(NamedTuple):
    """The facts by which a list sorts and filters a task, and its record."""

    sort_key: tuple[bool, int, str]
    context_id: str
    state: int
    entry: RecordEntry


class Tasks(Places):
    """Reads, lists and deletes tasks."""

    async def list(self, params: ListTasksRequest, context: ServerCallContext) -> ListTasksResponse:
        """Return a page of the owner's tasks, last updated first. Reads the status of each of them.

        Raises:
            InvalidParamsError: The page token does not come from a list.
            StoreUnavailable: Redis does not answer.
        """
        rows = [_row(entry) async for entry in self.tasks_of(self.owner_of(context)) if entry.values[0] is not None]
        rows = sorted((row for row in rows if _is_wanted(row, params)), reverse=True, key=lambda row: row.sort_key)
        first = _place_of(rows, params.page_token) if params.page_token else 0
        size = params.page_size or DEFAULT_LIST_TASKS_PAGE_SIZE
        shown = rows[first : first + size]
        found = await asyncio.gather(*(read_task(self.at(row.entry)) for row in shown))
        return ListTasksResponse(
            tasks=[task for task in found if task is not None],
            next_page_token=_token_of(shown[-1]) if first + size < len(rows) else None,
            total_size=len(rows),
            page_size=size,
        )

    async def delete(self, task_id: str, context: ServerCallContext) -> None:
        """Remove a task with its events, and the owner's push notification configs for it.

        Raises:
            StoreUnavailable: Redis does not answer. The same call removes the rest.
        """
        owner = self.owner_of(context)
        await self.push(task_id, owner).clear()
        await self.task(task_id, owner).clear()


class TaskStore(Tasks, theirs.TaskStore):
    """A task store for one replica, or for replicas that never write the same task at once.

    >>> store = TaskStore("redis://127.0.0.1:6379/0")
    >>> handler = DefaultRequestHandler(agent_executor=executor, task_store=store, agent_card=card)

    Any replica reads what another one has saved. The last save of a task wins: see `VersionedTaskStore`.

    Every method may raise StoreUnavailable, and InvalidSessionId if a task has no id.
    """

    async def save(self, task: Task, context: ServerCallContext) -> None:
        """Store a task, in place of an earlier one.

        Raises:
            TooLarge: The task is larger than 64 MiB.
        """
        await self.task(task.id, self.owner_of(context)).write(Change(sets=encode_task(task)))

    async def get(self, task_id: str, context: ServerCallContext) -> Task | None:
        """Return a task, `None` if the owner has none with this id."""
        return await read_task(self.task(task_id, self.owner_of(context)))


def encode_task(task: Task) -> Mapping[bytes, bytes]:
    """Return the fields of a task."""
    has_time = task.HasField("status") and task.status.HasField("timestamp")
    time_ns = task.status.timestamp.ToNanoseconds() if has_time else None
    summary = [task.id, task.context_id, task.status.state, time_ns]
    return {TASK: task.SerializeToString(), SUMMARY: json.dumps(summary).encode()}


async def read_task(record: Record) -> Task | None:
    """Return the task in a record. A damaged record goes into quarantine, and has none."""
    [value] = await read_or_begin(record, lambda: record.get(TASK, renew=True))
    return None if value is None else Task.FromString(value)


def _row(entry: RecordEntry) -> _Row:
    task_id, context_id, state, time_ns = json.loads(entry.values[0] or b"")
    return _Row((time_ns is not None, time_ns or 0, task_id), context_id, state, entry)


def _is_wanted(row: _Row, params: ListTasksRequest) -> bool:
    has_time, time_ns, _ = row.sort_key
    if params.HasField("status_timestamp_after"):
        is_new = has_time and time_ns >= params.status_timestamp_after.ToNanoseconds()
    else:
        is_new = True
    return is_new and params.context_id in ("", row.context_id) and params.status in (0, row.state)


def _token_of(row: _Row) -> str:
    has_time, time_ns, task_id = row.sort_key
    return encode_list_tasks_cursor(ListTasksCursor(timestamp_ns=time_ns if has_time else None, task_id=task_id))


def _place_of(rows: list[_Row], token: str) -> int:
    """Return the place of the first row behind a page."""
    cursor = decode_list_tasks_cursor(token)
    if cursor is not None:
        key = cursor.sort_key()
        return next((at for at, row in enumerate(rows) if row.sort_key < key), len(rows))
    first_id = decode_page_token(token)  # of an older release of the SDK: it names the first task of the page
    for at, row in enumerate(rows):
        if row.sort_key[2] == first_id:
            return at
    raise InvalidParamsError(f"Invalid page token: {token}")
