"""Namespaces that have told enough to train a dictionary on."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from redismem import Memory, Session, Settings
from redismem.inspection.doctor import examine
from redismem.inspection.rules import Finding
from redismem.originals.blocks import dictionary_of
from redismem.workers.dictionaries import SETTLED_MS
from redismem.workers.summaries import Worker
from support.clock import Clock
from support.dictionaries import WORDS, made
from support.stores import Store
from support.writers import Echo


def telling(number: int, secret: str = "") -> dict[str, Any]:
    chosen = random.Random(number)
    text = f"{secret} {' '.join(chosen.choices(WORDS, k=14))} {number}"
    return {"role": "user" if number % 2 else "assistant", "content": text}


async def tell(session: Session, count: int, begin: int = 0) -> None:
    await session.append(
        *(telling(number, "mine" + session.id.replace(" ", "")) for number in range(begin, begin + count))
    )


async def told(memory: Memory, worker: Worker, count: int = 6) -> None:
    """Makes so many sessions: enough to train on."""
    for number in range(count):
        await tell(memory.session(f"other {number}"), 40, begin=1_000 * number)
        await worker.drain()


def content(seed: int = 0) -> bytes:
    """The content of a dictionary that was trained on other sessions."""
    return made(1, seed).content


async def texts(session: Session) -> list[Any]:
    return [message.content for message in await session.messages(include_originals=True)]


async def named(memory: Memory, raw: Any, session_id: str) -> list[int | None]:
    """The dictionaries that the blocks of a session name."""
    found = await raw.hgetall(memory.store.keys.session(session_id).originals)
    return [dictionary_of(found[b"%d" % number]) for number in range(100) if b"%d" % number in found]


async def doctor(memory: Memory) -> Finding:
    return next(each for each in await examine(memory.store, embedded=True) if each.name == "dictionaries")


def open_with(store: Store, namespace: str, **changed: Any) -> Any:
    return store.memory(namespace, Settings(shards=2, max_summary_bytes=1024 * 1024, **changed))


@asynccontextmanager
async def trained_on(store: Store, namespace: str, clock: Clock) -> AsyncIterator[tuple[Memory, Worker]]:
    """A memory whose namespace has a dictionary that may be used by now."""
    async with open_with(store, namespace) as memory:
        worker = Worker(memory.store, Echo())
        await told(memory, worker)
        clock.now_ms += SETTLED_MS
        yield memory, worker
