"""Redis was rolled back and got another dictionary of the same version, while processes kept running."""

from __future__ import annotations

from typing import Any

import pytest
from recall.test_recall import trips_of
from support.clock import Clock
from support.dictionaries import (
    append_messages,
    block_dictionaries,
    make_message,
    open_trained,
    open_with,
    texts,
    train_content,
)
from support.quarantined import quarantine_of
from support.stores import Store
from support.writers import Echo

from redismem.originals.dictionaries import SETTLED_MS
from redismem.workers import samples
from redismem.workers.summaries import Worker


@pytest.fixture(autouse=True)
def _soon_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "MIN_SAMPLE_BYTES", 10_000)
    monkeypatch.setattr(samples, "MIN_SESSIONS", 5)


def message_texts(count: int, secret: str = "minea") -> list[str]:
    return [make_message(number, secret)["content"] for number in range(count)]


async def became_another(raw: Any, key: bytes) -> None:
    """The dictionary is lost, and trained again by a worker that never read it."""
    await raw.delete(key)
    await raw.hset(key, "1", b"\0" * 8 + train_content())


async def test_nothing_is_written_that_nobody_else_could_read(
    store: Store, namespace: str, raw: Any, clock: Clock
) -> None:
    async with open_trained(store, namespace, clock) as (memory, worker):
        await append_messages(memory.session("b"), 40)
        await worker.drain()
        assert set(await block_dictionaries(memory, raw, "b")) == {1}
        await became_another(raw, memory.store.keys.dictionaries)
        clock.now_ms += SETTLED_MS
        await append_messages(memory.session("a"), 60)
        await worker.drain()
        assert set(await block_dictionaries(memory, raw, "a")) == {1}
        async with open_with(store, namespace) as fresh:
            assert await texts(fresh.session("a")) == message_texts(60)


@pytest.mark.parametrize("there", [b"\0" * 8 + b"x", None])
async def test_what_cannot_be_read_compresses_nothing(
    there: bytes | None, store: Store, namespace: str, raw: Any, clock: Clock
) -> None:
    async with open_trained(store, namespace, clock) as (memory, worker):
        key = memory.store.keys.dictionaries
        await append_messages(memory.session("b"), 40)
        await worker.drain()
        if there is None:
            await raw.delete(key)
            await raw.set(key, "x")
        else:
            await raw.hset(key, "1", there)
        clock.now_ms += SETTLED_MS
        await append_messages(memory.session("a"), 60)
        await worker.drain()
        assert set(await block_dictionaries(memory, raw, "a")) == {None}


async def test_who_has_read_the_one_before_reads_what_the_other_made(
    store: Store, namespace: str, raw: Any, clock: Clock
) -> None:
    async with open_trained(store, namespace, clock) as (memory, worker), open_with(store, namespace) as other:
        await append_messages(memory.session("b"), 40)
        await worker.drain()
        await became_another(raw, memory.store.keys.dictionaries)
        await append_messages(other.session("a"), 30)
        await Worker(other.store, Echo()).drain()
        assert await block_dictionaries(memory, raw, "a") == [1, 1]
        assert 8 in [found.seq for found in await memory.session("a").recall(message_texts(30)[7], limit=1)]
        assert await texts(memory.session("a")) == message_texts(30)
        await append_messages(memory.session("a"), 30, begin=30)
        await worker.drain()
        assert [key async for key in raw.scan_iter(quarantine_of(memory.store.keys.session("a")) + b":*")] == []
        async with open_with(store, namespace) as fresh:
            assert await texts(fresh.session("a")) == message_texts(60), "the begun block was no stranger's"


async def test_it_is_not_looked_for_with_each_block(store: Store, namespace: str, raw: Any, clock: Clock) -> None:
    async with open_trained(store, namespace, clock) as (memory, worker):
        await append_messages(memory.session("a"), 40)
        await worker.drain()
        await became_another(raw, memory.store.keys.dictionaries)
        async with open_with(store, namespace) as fresh:
            read = await texts(fresh.session("a"))
            assert read == message_texts(40)[34:], "what stands in the window: the dictionary of the blocks is lost"
            with trips_of(fresh) as sent:
                assert await texts(fresh.session("a")) == read
            assert fresh.store.keys.dictionaries not in {command[1] for commands in sent for command in commands}
