"""The reply to a claim is lost: the claim is sent again, and the worker has the lease that it got."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import redis.asyncio
from support.checks import until, user
from support.proxy import Proxy
from support.worked import ranges
from support.writers import Echo, fill

from redismem import Context, Memory, Settings
from redismem.protocol import scripts
from redismem.protocol.layout import ClaimOutcome, EvictionReason
from redismem.protocol.queue.calls import Job, queue_eviction
from redismem.workers.eviction import Eviction
from redismem.workers.summaries import Worker

# Leases that end only if a test ends them, and many attempts, as each test may need several.
SETTINGS = Settings(deadline_s=60, reply_timeout_s=0.15, lease_s=3600, max_attempts=100)


@pytest.fixture
async def memory(proxy: Proxy, namespace: str) -> AsyncIterator[Memory]:
    """A memory behind the proxy."""
    async with Memory.connect(proxy.url, namespace=namespace, settings=SETTINGS) as memory:
        await memory.store.run(memory.store.queue_calls("other").claim())  # loads the scripts
        await memory.store.run(memory.store.queue_calls("other").claim_eviction())
        yield memory


async def run_despite_lost_replies(proxy: Proxy, name: str, work: Awaitable[Any], meanwhile: Callable[[], Any]) -> Any:
    """Do the work while the replies to a script are lost, until the server has run it and `meanwhile` is done."""
    proxy.break_next("freeze", float("inf"), to=scripts.load(name).sha)
    working = asyncio.ensure_future(work)
    await until(lambda: proxy.frozen_count > 0)
    await meanwhile()
    proxy.heal()
    return await working


async def test_a_claim_whose_reply_was_lost_is_worked_on_at_once(
    proxy: Proxy, memory: Memory, direct_memory: Memory
) -> None:
    session = direct_memory.session("a")
    await fill(session, 11)

    async def claim_elsewhere() -> None:
        outcome = await direct_memory.store.run(direct_memory.store.queue_calls("a").claim())
        assert outcome is ClaimOutcome.LEASED

    worker = Worker(memory.store, Echo())
    outcome = await run_despite_lost_replies(proxy, "claim", worker.attend("a"), claim_elsewhere)
    assert outcome == "ok"
    assert await ranges(session) == [(1, 5)]


async def test_a_claim_sent_again_gets_no_lease_that_another_worker_has_by_then(
    proxy: Proxy, memory: Memory, direct_memory: Memory, redis_server: Any
) -> None:
    await fill(direct_memory.session("a"), 11)
    calls = direct_memory.store.queue_calls("a")

    async def claim_elsewhere_after_the_lease() -> None:
        async with redis.asyncio.Redis(port=redis_server.port) as raw:

            async def is_claimed() -> bool:
                await raw.zadd(calls.keys.shard.leased, {"a": 1})
                claimed = await direct_memory.store.run(calls.claim())
                return isinstance(claimed, Job)

            await until(is_claimed)

    worker = Worker(memory.store, Echo())
    outcome = await run_despite_lost_replies(proxy, "claim", worker.attend("a"), claim_elsewhere_after_the_lease)
    assert outcome == "leased"
    assert await ranges(direct_memory.session("a")) == []


async def test_an_eviction_whose_claim_lost_its_reply_is_handed_over_at_once(
    proxy: Proxy, memory: Memory, direct_memory: Memory
) -> None:
    session, calls = direct_memory.session("a"), direct_memory.store.queue_calls("a")
    await session.append(user())
    seen = [(calls.keys, (await session.info()).active_ms)]
    chosen = queue_eviction(calls.keys.shard, seen, EvictionReason.LIMIT, None, kept=True)
    assert await direct_memory.store.run(chosen) == (1, 0)
    handed_over: list[str] = []

    async def on_evict(session_id: str, context: Context) -> None:
        handed_over.append(session_id)

    async def claim_elsewhere() -> None:
        assert not await direct_memory.store.run(calls.claim_eviction())

    work = Eviction(memory.store, on_evict).evict("a")
    assert await run_despite_lost_replies(proxy, "claim_eviction", work, claim_elsewhere)
    assert handed_over == ["a"]
    assert not await session.exists()
