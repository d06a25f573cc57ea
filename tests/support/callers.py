"""Callers of both memories, and writers that append while a primary fails over."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any

from redismem import Context, Memory, Receipt, Session, Settings, StoreUnavailable, Unconfirmed
from redismem.blocking import memory as blocking_memory
from redismem.events import Event
from redismem.store.store import Store
from redismem.transport.nodes.slots import slot_of
from support.checks import until

PATIENT = Settings(shards=16, deadline_s=120, reply_timeout_s=1)  # sentinels on a busy machine take their time
STEADY = PATIENT.model_copy(update={"reply_timeout_s": 20})
"""For tests that count how often a call was sent: a slow reply must not be a lost one."""


class Awaiting:
    """A blocking memory or session, each call of which runs in a thread and is awaited, as on its asyncio `twin`."""

    def __init__(self, inner: Any, twin: type) -> None:
        self._inner = inner
        self._twin = twin

    def session(self, session_id: str) -> Awaiting:
        return Awaiting(self._inner.session(session_id), Session)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        on_twin = getattr(self._twin, name, None)
        is_plain = not callable(value) or (on_twin is not None and not inspect.iscoroutinefunction(on_twin))
        return value if is_plain else partial(asyncio.to_thread, value)


class Caller:
    """The memory of one pod."""

    def __init__(self, memory: Any, events: list[Event]) -> None:
        self.memory = memory
        self.events = events

    @property
    def store(self) -> Store:
        store: Store = self.memory.store
        return store

    async def append(self, session_id: str, text: str, id: str | None = None) -> Receipt:
        message = {"role": "user", "content": text}
        receipt: Receipt = await self.memory.session(session_id).append(message, id=id)
        return receipt

    async def append_confirmed(self, session_id: str, text: str, confirm: int = 1) -> None:
        """Append until all replicas confirm it, so that a failover does not lose it."""

        async def is_confirmed() -> bool:
            try:
                message = {"role": "user", "content": text}
                await self.memory.session(session_id).append(message, id=text, confirm=confirm)
            except (StoreUnavailable, Unconfirmed):
                return False
            return True

        await until(is_confirmed)

    async def turn(self, session_id: str, text: str) -> Context:
        message = {"role": "user", "content": text}
        context: Context = await self.memory.session(session_id).append_and_read(message)
        return context

    async def texts(self, session_id: str) -> list[Any]:
        messages = await self.memory.session(session_id).messages()
        return [message.content for message in messages]

    async def count(self) -> int:
        return int(await self.memory.count())

    def slot(self, session_id: str) -> int:
        """Return the cluster slot of a session's shard."""
        return slot_of(self.store.keys.session(session_id).state)

    def slot_of_record(self) -> int:
        """Return the cluster slot of the namespace's record."""
        return slot_of(self.store.keys.record)

    def sent_counts(self, op: str = "append") -> list[int]:
        """Return how many times each call with this name was sent."""
        return [event.sent_count for event in self.events if event.op == op]


@contextlib.asynccontextmanager
async def open_caller(
    kind: str, url: str, namespace: str, settings: Settings = PATIENT, *, fallback: bool = False, **more: Any
) -> AsyncIterator[Caller]:
    """Open a memory of this kind, which is `asyncio` or `blocking`. `more` are further arguments of `connect`."""
    events: list[Event] = []
    given: Any = {"namespace": namespace, "settings": settings, "on_event": events.append, "fallback": fallback} | more
    if kind == "asyncio":
        async with Memory.connect(url, **given) as memory:
            yield Caller(memory, events)
    else:
        blocking = blocking_memory.Memory.connect(url, **given)
        await asyncio.to_thread(blocking.__enter__)
        try:
            yield Caller(Awaiting(blocking, Memory), events)
        finally:
            await asyncio.to_thread(blocking.close)


def session_ids_by_place(caller: Caller, owners: list[str], count: int = 1) -> dict[str, list[str]]:
    """Return `count` session ids for each place that owns slots."""
    found: dict[str, list[str]] = {place: [] for place in dict.fromkeys(owners)}
    number = 0
    while any(len(names) < count for names in found.values()):
        name, number = f"session-{number}", number + 1
        names = found[owners[caller.slot(name)]]
        if len(names) < count:
            names.append(name)
    return found


AHEAD_COUNT = 3
"""The number of appends that a writer may be ahead of the slowest writer and still append.

A session remembers the last 16 appends, and two writers make at most 14 while the third retries.
"""


async def append_until_acked(caller: Caller, name: str, text: str) -> None:
    """Retry an append with its id after `StoreUnavailable`, as the error advises."""
    while True:
        try:
            await caller.append(name, text, id=text)
            return
        except StoreUnavailable:
            continue


class Writers:
    """Writers, each of which appends to these sessions in turn until `stop()`."""

    def __init__(self, callers: Sequence[Caller], names: list[str]) -> None:
        self.acked: list[Counter[str]] = [Counter() for _ in callers]
        self._callers = callers
        self._names = names
        self._stopping = False
        self._changed = asyncio.Condition()

    def begin(self) -> list[asyncio.Task[None]]:
        return [asyncio.create_task(self._write(number)) for number in range(len(self._callers))]

    async def _write(self, number: int) -> None:
        own = self.acked[number]
        while not self._stopping:
            for name in self._names:
                async with self._changed:
                    await self._changed.wait_for(partial(self._may_go_on, own, name))
                await append_until_acked(self._callers[number], name, f"{number}.{own[name]}")
                own[name] += 1
                async with self._changed:
                    self._changed.notify_all()

    def _may_go_on(self, own: Counter[str], name: str) -> bool:
        """True if the session still remembers the id of the slowest writer's append after one more."""
        return self._stopping or own[name] <= min(each[name] for each in self.acked) + AHEAD_COUNT

    def least_count(self) -> int:
        return min(own[name] for own in self.acked for name in self._names)

    async def stop(self) -> None:
        self._stopping = True
        async with self._changed:
            self._changed.notify_all()


def check_texts(texts: list[str], acked: list[int] | None) -> None:
    """Check that each text exists once, and each writer's texts are in order.

    `acked` is the number of texts that each writer must find; `None` allows lost ones.
    """
    assert max(Counter(texts).values()) == 1, "doubled"
    for number in range(3):
        own = [int(text.partition(".")[2]) for text in texts if text.startswith(f"{number}.")]
        assert own == sorted(own), "overtaken"
        if acked is not None:
            assert own == list(range(acked[number])), "lost on a node without a fault"
