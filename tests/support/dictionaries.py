"""Dictionaries of made-up sessions, and namespaces with enough text to train one."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

from redismem import Memory, Session, Settings
from redismem.inspection.doctor import examine
from redismem.inspection.findings import Finding
from redismem.messages.encoding import encode_message
from redismem.originals.blocks import BLOCK_COUNT, dictionary_of
from redismem.originals.dictionaries import SETTLED_MS, Dictionary
from redismem.originals.training import Person, train_dictionary
from redismem.workers.summaries import Worker
from support.clock import Clock
from support.stores import Store
from support.writers import Echo

STAMP = b"\xcf" + (1_700_000_000_123).to_bytes(8, "big")
ENDINGS = ("ment", "ing", "ed", "s")
WORDS = [f"{one}{two}" for one in ("ship", "order", "parcel", "invoice", "return") for two in ENDINGS]
OTHER_WORDS = [f"{one}{two}{'xyz' * 4}" for one in "abcdefgh" for two in "jklmn"]
Blocks = dict[Person, list[list[bytes]]]


def element(text: object) -> bytes:
    return encode_message({"role": "user", "content": text})[0] + STAMP


def person(name: object, is_owner: bool = False) -> Person:
    return Person(str(name), is_owner)


def sessions(seed: int, count: int = 8) -> Blocks:
    """Return three blocks per session; each session has a word of its own."""
    chosen = random.Random(seed)
    return {
        person(number): [
            [element(f"secret{number}x " + " ".join(chosen.choices(WORDS, k=20))) for _ in range(BLOCK_COUNT)]
            for _ in range(3)
        ]
        for number in range(count)
    }


@cache
def make_dictionary(version: int, seed: int = 0) -> Dictionary:
    content = train_dictionary(sessions(seed))
    assert content is not None
    return Dictionary(version, 7, content)


def make_message(number: int, secret: str = "") -> dict[str, Any]:
    chosen = random.Random(number)
    text = f"{secret} {' '.join(chosen.choices(WORDS, k=14))} {number}"
    return {"role": "user" if number % 2 else "assistant", "content": text}


async def append_messages(session: Session, count: int, begin: int = 0) -> None:
    await session.append(
        *(make_message(number, "mine" + session.id.replace(" ", "")) for number in range(begin, begin + count))
    )


async def fill_sessions(memory: Memory, worker: Worker, count: int = 6) -> None:
    """Fill `count` sessions, six of which are enough to train on."""
    for number in range(count):
        await append_messages(memory.session(f"other {number}"), 40, begin=1_000 * number)
        await worker.drain()


def train_content(seed: int = 0) -> bytes:
    """Return the content of a dictionary trained on other sessions."""
    return make_dictionary(1, seed).content


async def texts(session: Session) -> list[Any]:
    return [message.content for message in await session.messages(include_originals=True)]


async def block_dictionaries(memory: Memory, raw: Any, session_id: str) -> list[int | None]:
    """Return the number of the dictionary of each block of a session."""
    found = await raw.hgetall(memory.store.keys.session(session_id).originals)
    return [dictionary_of(found[b"%d" % number]) for number in range(100) if b"%d" % number in found]


async def doctor(memory: Memory) -> Finding:
    return next(each for each in await examine(memory.store, embedded=True) if each.name == "dictionaries")


def open_with(store: Store, namespace: str, **changed: Any) -> Any:
    return store.memory(namespace, Settings(shards=2, max_summary_bytes=1024 * 1024, **changed))


@asynccontextmanager
async def open_trained(store: Store, namespace: str, clock: Clock) -> AsyncIterator[tuple[Memory, Worker]]:
    """Open a memory whose namespace has a dictionary that is old enough for use."""
    async with open_with(store, namespace) as memory:
        worker = Worker(memory.store, Echo())
        await fill_sessions(memory, worker)
        clock.now_ms += SETTLED_MS
        yield memory, worker
