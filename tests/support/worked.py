"""Memories with a worker of their own, and what a drain made of a session."""

from __future__ import annotations

from typing import Any

from redismem import Memory, Session, Settings
from redismem.workers.summaries import Worker
from support.stores import Store
from support.writers import Echo

FEW = Settings(shards=2)
Worked = tuple[Memory, Echo, Worker]


async def seqs(session: Session) -> list[int]:
    return [message.seq for message in (await session.read()).messages]


async def ranges(session: Session) -> list[tuple[int, int]]:
    return [(summary.first_seq, summary.last_seq) for summary in (await session.read()).summaries]


def open_with(store: Store, namespace: str, **changed: Any) -> Any:
    return store.memory(namespace, Settings(shards=2, **changed))
