"""`VersionedTaskStore` keeps the tasks of an agent that runs on several replicas: no save overwrites a newer one."""

from __future__ import annotations

from typing import Any

from redismem import RecordConflict
from redismem.adapters.a2a.places import EVENT, TASK, VERSION
from redismem.adapters.a2a.tasks import Tasks, encode_task
from redismem.adapters.sessions import read_or_begin
from redismem.record import Change, Record
from redismem.settings.extras import from_extra

with from_extra("a2a", __name__):
    from a2a.server import cluster
    from a2a.server.cluster import ConcurrentTaskModificationError, StoredTask, TaskVersion
    from a2a.server.context import ServerCallContext
    from a2a.server.events import Event
    from a2a.types import Task, TaskState
    from a2a.utils.proto_utils import to_stream_response

_TERMINAL = (
    TaskState.TASK_STATE_COMPLETED,
    TaskState.TASK_STATE_CANCELED,
    TaskState.TASK_STATE_FAILED,
    TaskState.TASK_STATE_REJECTED,
)


class Version(TaskVersion):
    """A version of a stored task: the number of its writes. It also knows the task's record."""

    __slots__ = ("number", "record_id")

    def __init__(self, number: int, record_id: str) -> None:
        """Make a version of the task in a record."""
        super().__init__(number)
        self.number, self.record_id = number, record_id


class VersionedTaskStore(Tasks, cluster.VersionedTaskStore):
    """A task store for an agent that runs on any number of replicas.

    >>> store = VersionedTaskStore("redis://127.0.0.1:6379/0")
    >>> handler = DefaultRequestHandler(..., task_store=store, event_stream=TaskEventStream("redis://127.0.0.1:6379/0"))

    A save names the version that it derives from, and is refused if another replica has saved since. Its event is
    stored with it in one step, for the `TaskEventStream` of every replica. A save whose reply is lost is made once.

    Every method may raise StoreUnavailable, and InvalidSessionId if a task has no id.
    """

    async def save(
        self,
        task: Task,
        *,
        event: Event | None = None,
        prev: Task | None = None,
        prev_version: TaskVersion,
        context: ServerCallContext,
    ) -> TaskVersion:
        """Store a task with the event that led to it, and return its version.

        A task that is canceled overwrites any version of a task that has not ended.

        Args:
            task: The task.
            event: The event, for the subscribers of the task on all replicas. `None` without one.
            prev: Unused: the whole task is stored.
            prev_version: The version that the task derives from. `TaskVersion.MISSING` is a new task.
            context: The call, which names the owner.

        Raises:
            ConcurrentTaskModificationError: The stored task has another version. Or the task is to be canceled, and has
                ended, or does not exist.
            TooLarge: The task is larger than 64 MiB.
        """
        del prev
        record = self.task(task.id, self.owner_of(context))
        if task.status.state == TaskState.TASK_STATE_CANCELED:
            return await _cancel(record, task, event)
        number = await _number_of(record, prev_version)
        try:
            return await _write(record, task, event, number)
        except RecordConflict:
            raise ConcurrentTaskModificationError(task.id) from None

    async def get(self, task_id: str, context: ServerCallContext) -> StoredTask | None:
        """Return a task with its version, `None` if the owner has none with this id."""
        record = self.task(task_id, self.owner_of(context))
        value, number = await read_or_begin(record, lambda: record.get(TASK, VERSION, renew=True))
        if value is None:
            return None
        version = TaskVersion.MISSING if number is None else Version(int(number), record.id)
        return StoredTask(Task.FromString(value), version)


async def _cancel(record: Record, task: Task, event: Event | None) -> TaskVersion:
    while True:
        value, number = await record.get(TASK, VERSION)
        if value is None or Task.FromString(value).status.state in _TERMINAL:
            raise ConcurrentTaskModificationError(task.id)
        try:
            return await _write(record, task, event, int(number or b"0"))
        except RecordConflict:
            pass  # another replica has saved meanwhile; a task that is canceled overwrites that


async def _write(record: Record, task: Task, event: Event | None, number: int) -> TaskVersion:
    checks: dict[str, Any] = {"equals": {VERSION: b"%d" % number}} if number else {"absent": [VERSION]}
    sets = {**encode_task(task), VERSION: b"%d" % (number + 1)}
    adds = list[bytes]()
    if event is not None:
        adds = [b"%b%016d" % (EVENT, number + 1)]
        sets[adds[0]] = to_stream_response(event).SerializeToString()
    await record.write(Change(**checks, sets=sets, adds=adds))
    return Version(number + 1, record.id)


async def _number_of(record: Record, version: TaskVersion) -> int:
    if isinstance(version, Version):
        return version.number
    if version.is_missing:
        return 0
    [stored] = await record.get(VERSION)  # a version from elsewhere: nothing but comparing it tells its number
    number = int(stored or b"0")
    return number if TaskVersion(number) == version else -1
