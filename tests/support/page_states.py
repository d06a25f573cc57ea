"""The states in which the page must stay true, each in a namespace of its own of one Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from redismem import Memory, Settings
from redismem.errors import ModelFailed, ProviderUnavailable
from redismem.models import Draft
from redismem.workers.scheduler import Scheduler
from redismem.workers.summaries import Worker
from support.quarantined import move_session

OPTIONS = ("--maxmemory", "100mb", "--client-output-buffer-limit", "normal 64mb 16mb 10")
"""The options of a server in which the doctor finds nothing, with `aof=True`."""
SETTINGS = Settings(
    deadline_s=60, reply_timeout_s=20, extractive_after_s=0, max_attempts=1, tick_s=300, max_sessions=10_000
)
"""A scheduler with them ticks once and holds its work for long."""
BRIEF_SETTINGS = SETTINGS.model_copy(update={"tick_s": 0.02})
"""A scheduler with them is soon taken for dead."""
REASON = "openai answered 400 context_length_exceeded"
SICK = "user-42/anna"
"""The conversation that a state is about."""
MANY_COUNT = 2_000
LONG_COUNT = 3_000


class Writer:
    """A strategy that writes summaries, unless the test sets an error."""

    provider = "openai"

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    async def compact(self, messages: Any, previous: str | None) -> Draft:
        if self.error is not None:
            raise self.error
        return Draft("they said x", 0, 0, "m")


def down() -> Writer:
    """Return a strategy whose provider is down for all sessions."""
    return Writer(ProviderUnavailable("503", reason="openai answered 503 overloaded", retry_after_s=3_600))


def refusing() -> Writer:
    """Return a strategy that refuses every summary for good."""
    return Writer(ModelFailed("400", reason=REASON, permanent=True))


async def talk(memory: Memory, name: str, count: int = 12) -> None:
    """Append messages, as many as make the session due for a summary unless `count` is lower."""
    messages = [{"role": "user", "content": f"Where is parcel {number}?"} for number in range(count)]
    for at in range(0, count, 500):
        await memory.session(name).append(*messages[at : at + 500])


async def tick(memory: Memory, writer: Writer) -> None:
    """Let a process with workers do its work once. It then holds its work for a few `tick_s` of the settings."""
    scheduler = Scheduler(memory.store, writer)
    await scheduler.tick()
    await asyncio.gather(*scheduler._running)


async def drain(memory: Memory, writer: Writer) -> None:
    await Worker(memory.store, writer).drain()


async def make_healthy(memory: Memory) -> None:
    await talk(memory, SICK, 4)
    await talk(memory, "user-43", 12)
    await tick(memory, Writer())
    await drain(memory, Writer())


async def make_empty(memory: Memory) -> None:
    await memory.store.agreement.look()


async def make_many(memory: Memory) -> None:
    names = [f"user-{number}" for number in range(MANY_COUNT - 1)]
    for at in range(0, len(names), 200):
        await asyncio.gather(*(talk(memory, name, 1) for name in names[at : at + 200]))
    await talk(memory, SICK, 2)


async def make_long(memory: Memory) -> None:
    await talk(memory, SICK, LONG_COUNT)
    await drain(memory, Writer())


async def make_worker_dead(memory: Memory) -> None:
    """Needs `BRIEF_SETTINGS`."""
    await tick(memory, Writer())
    for number in range(41):
        await talk(memory, f"late-{number}")
    await talk(memory, SICK, 4)


async def make_dead(memory: Memory) -> None:
    await make_healthy(memory)
    for name in (SICK, "dead/2", "dead/3"):
        await talk(memory, name)
    await drain(memory, refusing())


async def make_failing(memory: Memory) -> None:
    await talk(memory, SICK)
    await tick(memory, down())


async def make_quarantined(memory: Memory) -> None:
    await make_healthy(memory)
    for at, name in enumerate((SICK, "user-44")):
        await talk(memory, name, 5)
        assert await move_session(memory.store, name, await memory.server_time_ms() - 60_000 * (at + 1))
    await talk(memory, SICK, 2)


STATES: dict[str, Callable[[Memory], Awaitable[None]]] = {
    "healthy": make_healthy,
    "empty": make_empty,
    "many": make_many,
    "long": make_long,
    "worker-dead": make_worker_dead,
    "dead-letters": make_dead,
    "model-failing": make_failing,
    "quarantine": make_quarantined,
}
