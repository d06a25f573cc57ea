"""`PushNotificationConfigStore` keeps the addresses to which an agent reports the progress of its tasks."""

from __future__ import annotations

import contextlib

from redismem import RecordConflict
from redismem.adapters.a2a.places import Places
from redismem.adapters.sessions import read_or_begin
from redismem.record import Change, Record
from redismem.settings.extras import from_extra

with from_extra("a2a", __name__):
    from a2a.server import tasks as theirs
    from a2a.server.context import ServerCallContext
    from a2a.server.tasks.push_notification_config_store import normalize_push_notification_config
    from a2a.types import TaskPushNotificationConfig

_CONFIG = b"c:"


class PushNotificationConfigStore(Places, theirs.PushNotificationConfigStore):
    """A store of push notification configs, in place of `InMemoryPushNotificationConfigStore`.

    >>> configs = PushNotificationConfigStore("redis://127.0.0.1:6379/0")

    With the `key_prefix` of the task store, the configs of a task go with it.

    Every method may raise StoreUnavailable, and InvalidSessionId if a task has no id.
    """

    async def set_info(
        self, task_id: str, notification_config: TaskPushNotificationConfig, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        """Store a config for a task, in place of the owner's earlier one with this id, and return it as stored."""
        stored = normalize_push_notification_config(task_id, notification_config)
        field = _CONFIG + stored.id.encode()
        record = self.push(task_id, self.owner_of(context))
        await record.write(Change(sets={field: stored.SerializeToString()}, adds=[field]))
        return stored

    async def get_info(self, task_id: str, context: ServerCallContext) -> list[TaskPushNotificationConfig]:
        """Return the owner's configs for a task, by their ids."""
        return await _read_configs(self.push(task_id, self.owner_of(context)))

    async def get_info_for_dispatch(self, task_id: str) -> list[TaskPushNotificationConfig]:
        """Return the configs of all owners for a task."""
        entries = await self.entries_of(task_id, push=True)
        return [config for entry in entries for config in await _read_configs(self.at(entry))]

    async def delete_info(self, task_id: str, context: ServerCallContext, config_id: str | None = None) -> None:
        """Remove a config of the owner for a task, or all of them."""
        record = self.push(task_id, self.owner_of(context))
        if config_id is None:
            await record.clear()
            return
        field = _CONFIG + config_id.encode()
        with contextlib.suppress(RecordConflict):  # there is none
            await record.write(Change(present=[field], drops=[field], removes=[field]))


async def _read_configs(record: Record) -> list[TaskPushNotificationConfig]:
    page = await read_or_begin(record, lambda: record.page(_CONFIG, renew=True))
    values = [found.value for found in page.found]
    while page.after is not None:
        page = await record.page(_CONFIG, after=page.after)
        values += [found.value for found in page.found]
    return [TaskPushNotificationConfig.FromString(value) for value in values if value is not None]
