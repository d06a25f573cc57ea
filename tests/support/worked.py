"""Memories with a worker, and readers of a session after a drain."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from redismem import Memory, Session, Settings
from redismem.models import Draft, Provider, open_model
from redismem.workers.strategies import Summarize
from redismem.workers.summaries import Worker
from support.checks import until
from support.clock import Clock
from support.stores import PATIENCE, Store
from support.writers import Echo

FEW = Settings(shards=2)
EAGER = Settings(shards=2, tick_s=0.02, max_attempts=3, max_backoff_s=0.01, **PATIENCE)
WorkerParts = tuple[Memory, Echo, Worker]
PATIENCE_S = 0.25
"""The time limit of a request to a model that does not answer. Nothing healthy may have to happen within it."""
PROVIDERS: list[Provider] = ["openai", "gemini", "anthropic"]


async def seqs(session: Session) -> list[int]:
    return [message.seq for message in (await session.read()).messages]


async def ranges(session: Session) -> list[tuple[int, int]]:
    return [(summary.first_seq, summary.last_seq) for summary in (await session.read()).summaries]


def open_with(store: Store, namespace: str, **changed: Any) -> Any:
    return store.memory(namespace, Settings(shards=2, **changed))


@contextlib.asynccontextmanager
async def open_strategy(provider: Provider, base_url: str, timeout_s: float = 60) -> AsyncIterator[Summarize]:
    """Open a strategy with a model at this address."""
    model = open_model(provider, "some-model", "key", base_url=base_url, allow_http=True, timeout_s=timeout_s)
    strategy = Summarize(model)
    try:
        yield strategy
    finally:
        await strategy.aclose()


async def until_summarised(session: Session) -> None:
    async def reached() -> bool:
        return bool((await session.read()).summaries)

    await until(reached)


class Bearing:
    """A strategy that raises `error` for the session with "poison", and summarizes all others."""

    provider = "a model"

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.failures_count = 0

    async def compact(self, messages: Any, previous: str | None) -> Draft:
        if "poison" in str([message.content for message in messages]):
            self.failures_count += 1
            raise self.error
        return Draft("told", 0, 0, "a model")


async def drain_at(worker: Worker, at_ms: int) -> int:
    """Set the memory's clock, drain, and return the number of summaries."""
    clock = worker._store.clock
    assert isinstance(clock, Clock)
    return await clock.run_at(at_ms, worker.drain())
