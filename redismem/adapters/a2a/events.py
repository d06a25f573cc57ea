"""`TaskEventStream` tells every replica the events of a task that another replica runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from redismem import InvalidSettings, Memory, StoreUnavailable
from redismem.adapters.a2a.places import EVENT, VERSION, Places
from redismem.adapters.a2a.versioned import Version
from redismem.record import Record
from redismem.record.pages import all_members
from redismem.settings.extras import from_extra

with from_extra("a2a", __name__):
    from a2a.server import cluster
    from a2a.server.cluster import TaskVersion, VersionedEvent
    from a2a.server.events import Event
    from a2a.types import StreamResponse

_PAGE_COUNT = 100


class TaskEventStream(Places, cluster.TaskEventStream):
    """The events that `VersionedTaskStore` stores with its tasks, for subscribers on other replicas.

    >>> stream = TaskEventStream("redis://127.0.0.1:6379/0")

    Give it the memory, or the URL and `key_prefix`, of the store. Each subscriber looks for new events in one small
    round trip per `poll_s`, and goes on after an outage.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        memory: Memory | None = None,
        redis_client: Any = None,
        key_prefix: str = "a2a",
        poll_s: float = 0.25,
    ) -> None:
        """Make a stream. It connects on first use.

        Args:
            url: The URL of Redis. `None` means `REDISMEM_URL`.
            memory: A memory to use instead of a URL. The caller closes it.
            redis_client: A redis.asyncio client to use instead of a URL. The caller closes it.
            key_prefix: The `key_prefix` of the store.
            poll_s: The seconds between two looks for new events, 0.001 to 3,600.

        Raises:
            InvalidSessionId: `key_prefix` is not a string, or ends in `-push`.
            InvalidSettings: URL, memory or client is invalid, or more than one of them is given. Or `poll_s` is out of
                range.
        """
        if not isinstance(poll_s, int | float) or not 0.001 <= poll_s <= 3_600:
            raise InvalidSettings("poll_s is a number of seconds, 0.001 to 3,600")
        super().__init__(url, memory=memory, redis_client=redis_client, key_prefix=key_prefix)
        self._poll_s = poll_s

    async def publish(self, task_id: str, event: VersionedEvent) -> None:
        """Do nothing: the store has stored the event with the task."""

    async def subscribe(self, task_id: str, *, after: TaskVersion) -> AsyncGenerator[VersionedEvent, None]:
        """Yield the events of a task that are newer than a version, until the task is deleted.

        A version from `VersionedTaskStore.get` names the task of its owner. With any other version, the task is the one
        with this id.

        Raises:
            ValueError: Several owners have a task with this id.
        """
        record = await self._find(task_id, after)
        told = after.number if isinstance(after, Version) else 0
        while record is not None:
            try:
                [stored] = await record.get(VERSION)
                if stored is None:
                    return
                if int(stored) > told:
                    async for number, event in _read_events(record, told):
                        told = number
                        version = Version(number, record.id)
                        if version.is_after(after):
                            yield VersionedEvent(event, version)
                    told = max(told, int(stored))
            except StoreUnavailable:
                pass
            await asyncio.sleep(self._poll_s)

    async def destroy(self, task_id: str) -> None:
        """Remove the events of a task that has ended. The task stays.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        for entry in await self.entries_of(task_id, push=False):
            await self.at(entry).drop(EVENT)

    async def _find(self, task_id: str, version: TaskVersion) -> Record | None:
        if isinstance(version, Version):
            return self.memory.record(version.record_id)
        entries = await self.entries_of(task_id, push=False)
        if len(entries) > 1:
            raise ValueError("several owners have a task with this id: subscribe after a version of the store")
        return self.at(entries[0]) if entries else None


async def _read_events(record: Record, told: int) -> AsyncIterator[tuple[int, Event]]:
    async for found in all_members(record, EVENT, after=b"%b%016d" % (EVENT, told), limit=_PAGE_COUNT):
        if found.value is not None:
            yield int(found.member[len(EVENT) :]), _decode(found.value)


def _decode(value: bytes) -> Event:
    response = StreamResponse.FromString(value)
    event: Event = getattr(response, str(response.WhichOneof("payload")))
    return event
