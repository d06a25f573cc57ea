"""The records of the tasks of an agent and of their push notification configs, and the memory that has them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Any, Self

from redismem import InvalidSessionId, Memory
from redismem.adapters.sessions import Opened, check_prefix, quote_part, unquote_part
from redismem.record import Record, RecordEntry
from redismem.record.pages import all_listed
from redismem.settings.extras import from_extra

with from_extra("a2a", "redismem.adapters.a2a"):
    from a2a.server.context import ServerCallContext
    from a2a.server.owner_resolver import OwnerResolver, resolve_user_scope

TASK, SUMMARY, VERSION, EVENT = b"task", b"summary", b"version", b"e:"
"""The fields of a task: itself, a summary for lists, the number of its writes, and an event of each write.

Events are members too.
"""
_PAGE_COUNT = 1_000
_PUSH = "-push"


class Places(Opened):
    """A memory with a record per task and owner, and another one for the push notification configs of both."""

    def __init__(
        self,
        url: str | None = None,
        *,
        memory: Memory | None = None,
        redis_client: Any = None,
        key_prefix: str = "a2a",
        ttl: float | None = None,
        owner_resolver: OwnerResolver | None = None,
    ) -> None:
        """Make a store. It connects on first use.

        Args:
            url: The URL of Redis. `None` means `REDISMEM_URL`.
            memory: A memory to use instead of a URL. The caller closes it.
            redis_client: A redis.asyncio client to use instead of a URL. The caller closes it.
            key_prefix: The task `t` of the user `anna` is the record `<key_prefix>:t/anna` of redismem.
            ttl: The seconds after its last use after which Redis removes a task. `None` keeps it.
            owner_resolver: A function that returns the owner of a call; `None` means the name of its user, which is ""
                without one. An owner sees no tasks of another one, and `memory.forget(owner=...)` removes them.

        Raises:
            InvalidRecord: `ttl` is out of range.
            InvalidSessionId: `key_prefix` is not a string, or ends in `-push`.
            InvalidSettings: URL, memory or client is invalid, or more than one of them is given.
        """
        check_prefix(key_prefix)
        if key_prefix.endswith(_PUSH):
            raise InvalidSessionId(f"key_prefix ends in {_PUSH}, as the push configs of another prefix do")
        super().__init__(url, memory, redis_client)
        self._prefix, self._ttl_s, self._owner_resolver = key_prefix, ttl, owner_resolver or resolve_user_scope
        try:
            self._record("x", "x", "")  # refuses prefix and ttl at the start of the program, not in its first call
        except BaseException:
            self.close()
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def owner_of(self, context: ServerCallContext) -> str:
        """Return the owner of a call; "" without a user."""
        return self._owner_resolver(context)

    def task(self, task_id: str, owner: str) -> Record:
        """Return the record of a task."""
        return self._record(self._prefix, task_id, owner)

    def push(self, task_id: str, owner: str) -> Record:
        """Return the record of the push notification configs of an owner for a task."""
        return self._record(f"{self._prefix}{_PUSH}", task_id, owner)

    def at(self, entry: RecordEntry) -> Record:
        """Return the record of an entry of a list."""
        return self.memory.record(entry.id, tag=entry.tag, owner=entry.owner, ttl_s=self._ttl_s)

    async def tasks_of(self, owner: str) -> AsyncIterator[RecordEntry]:
        """Yield the tasks of an owner, with their summaries."""
        beginning = f"{self._prefix}:"
        async for entry in self._entries(beginning, owner or None):
            task_id, _, its_owner = entry.id[len(beginning) :].partition("/")
            if unquote_part(its_owner) == owner and task_id and _is_quoted(task_id + its_owner):
                yield entry

    async def entries_of(self, task_id: str, *, push: bool) -> list[RecordEntry]:
        """Return the records of a task, or of its push notification configs, of all owners."""
        beginning = f"{self._prefix}{_PUSH if push else ''}:{quote_part(task_id)}/"
        found = [entry async for entry in self._entries(beginning, None)]
        return [entry for entry in found if _is_quoted(entry.id[len(beginning) :])]

    async def _entries(self, beginning: str, owner: str | None) -> AsyncIterator[RecordEntry]:
        read = partial(self.memory.records, beginning, _PAGE_COUNT, owner=owner, fields=(SUMMARY,))
        async for page in all_listed(read):
            for entry in page.records:
                yield entry

    def _record(self, prefix: str, task_id: str, owner: str) -> Record:
        if not task_id:
            raise InvalidSessionId("a task has no id, so all such tasks would be one")
        record_id = f"{prefix}:{quote_part(task_id)}/{quote_part(owner)}"
        return self.memory.record(record_id, owner=owner or None, ttl_s=self._ttl_s)


def _is_quoted(part: str) -> bool:
    """True unless a part of an id belongs to a store with a longer prefix."""
    return ":" not in part and "/" not in part
