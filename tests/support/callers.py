"""One way to call a memory for asyncio and a blocking one, with what it told of each call."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from redismem import Context, Memory, Receipt, Settings, StoreUnavailable, Unconfirmed
from redismem.blocking import memory as blocking_memory
from redismem.events import Event
from redismem.store.store import Store
from redismem.transport.nodes.slots import slot_of
from support.checks import until

PATIENT = Settings(shards=16, deadline_s=120, reply_timeout_s=1)  # sentinels on a busy machine take their time


class Caller:
    """The memory of one pod."""

    def __init__(self, memory: Any, events: list[Event], *, blocks: bool) -> None:
        self.memory = memory
        self.events = events
        self._blocks = blocks

    @property
    def store(self) -> Store:
        store: Store = self.memory.store
        return store

    async def _call(self, session_id: str, name: str, *given: Any, **more: Any) -> Any:
        call = partial(getattr(self.memory.session(session_id), name), *given, **more)
        return await (asyncio.to_thread(call) if self._blocks else call())

    async def append(self, session_id: str, text: str, id: str | None = None) -> Receipt:
        message = {"role": "user", "content": text}
        receipt: Receipt = await self._call(session_id, "append", message, id=id)
        return receipt

    async def append_confirmed(self, session_id: str, text: str) -> None:
        """A replica has it: a failover does not lose it."""

        async def is_confirmed() -> bool:
            try:
                await self._call(session_id, "append", {"role": "user", "content": text}, id=text, confirm=1)
            except (StoreUnavailable, Unconfirmed):
                return False
            return True

        await until(is_confirmed)

    async def turn(self, session_id: str, text: str) -> Context:
        context: Context = await self._call(session_id, "append_and_read", {"role": "user", "content": text})
        return context

    async def texts(self, session_id: str) -> list[Any]:
        messages = await self._call(session_id, "messages")
        return [message.content for message in messages]

    async def count(self) -> int:
        counted = await (asyncio.to_thread(self.memory.count) if self._blocks else self.memory.count())
        return int(counted)

    def slot(self, session_id: str) -> int:
        """The cluster slot of a session's shard."""
        return slot_of(self.store.keys.session(session_id).state)

    def slot_of_record(self) -> int:
        """The cluster slot of the namespace's own record."""
        return slot_of(self.store.keys.record)

    def sends(self, op: str = "append") -> list[int]:
        """How often each call of this name was sent."""
        return [event.sent_count for event in self.events if event.op == op]


@contextlib.asynccontextmanager
async def calling(
    kind: str, url: str, namespace: str, settings: Settings = PATIENT, *, fallback: bool = False
) -> AsyncIterator[Caller]:
    """A memory of the kind, which is `asyncio` or `blocking`."""
    events: list[Event] = []
    given: Any = {"namespace": namespace, "settings": settings, "on_event": events.append, "fallback": fallback}
    if kind == "asyncio":
        async with Memory.connect(url, **given) as memory:
            yield Caller(memory, events, blocks=False)
    else:
        blocking = blocking_memory.Memory.connect(url, **given)
        await asyncio.to_thread(blocking.__enter__)
        try:
            yield Caller(blocking, events, blocks=True)
        finally:
            await asyncio.to_thread(blocking.close)


def on_each(caller: Caller, owners: list[str], count: int = 1) -> dict[str, list[str]]:
    """So many sessions for each owner of slots, by its place."""
    found: dict[str, list[str]] = {place: [] for place in dict.fromkeys(owners)}
    number = 0
    while any(len(names) < count for names in found.values()):
        name, number = f"session-{number}", number + 1
        names = found[owners[caller.slot(name)]]
        if len(names) < count:
            names.append(name)
    return found
