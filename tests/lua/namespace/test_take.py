"""take.lua: a rate limit shared by all callers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from redis.exceptions import ResponseError
from support.checks import until

from redismem import Memory
from redismem.protocol import scripts
from redismem.protocol.keys import Keys
from redismem.protocol.namespace import calls as namespace_calls

SLOW_PER_S = 0.001  # one per thousand seconds: no token is earned during a test


async def test_after_a_burst_the_caller_must_wait(memory: Memory) -> None:
    waits_ms = [await memory.take("caller", SLOW_PER_S, 3) for _ in range(5)]
    assert waits_ms[:3] == [0, 0, 0]
    assert all(900_000 < wait_ms <= 1_000_000 for wait_ms in waits_ms[3:])
    assert await memory.take("another", SLOW_PER_S, 3) == 0


async def test_an_earned_token_can_be_taken(memory: Memory) -> None:
    assert [await memory.take("caller", 20) for _ in range(1)] == [0]

    async def is_taken() -> bool:
        return await memory.take("caller", 20) == 0

    await until(is_taken)


async def test_all_pods_take_from_one_rate(store: Any, namespace: str) -> None:
    async with store.memory(namespace) as one, store.memory(namespace) as other:
        calls = [memory.take("caller", SLOW_PER_S, 10) for memory in (one, other) * 20]
        assert (await asyncio.gather(*calls)).count(0) == 10


async def test_a_resent_call_takes_nothing_more(memory: Memory, raw: Any, namespace: str) -> None:
    call = namespace_calls.take(Keys(namespace, 64), "caller", SLOW_PER_S, 2)
    assert await memory.store.run(call) == 0
    (key,) = await raw.keys(f"rm:{{{namespace}}}:rate:*")
    before = await raw.get(key)
    assert await memory.store.run(call.again()) == 0
    assert await raw.get(key) == before
    assert 1_990_000 >= await raw.pttl(key) > 900_000
    assert await memory.take("caller", SLOW_PER_S, 2) == 0
    assert await memory.take("caller", SLOW_PER_S, 2) > 0


@pytest.mark.parametrize("stored", ["", "x", "999999999999999999 ab", "1 ab"])
async def test_an_unreadable_or_future_value_blocks_for_one_burst_at_most(
    memory: Memory, raw: Any, namespace: str, stored: str
) -> None:
    """A clock that was set back leaves a time in the future, which counts as one full burst at most."""
    await raw.set(f"rm:{{{namespace}}}:rate:caller", stored)
    assert await memory.take("caller", SLOW_PER_S, 2) <= 1_000_000


async def test_a_key_of_a_foreign_type_is_left_unchanged(memory: Memory, raw: Any, namespace: str) -> None:
    key = f"rm:{{{namespace}}}:rate:caller"
    await raw.rpush(key, "x")
    script = scripts.load("take")
    await raw.script_load(script.source)
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        await raw.evalsha(script.sha.decode(), 1, key, 1000, 1, "ab")
    assert await raw.lrange(key, 0, -1) == [b"x"]


@pytest.mark.parametrize(("per_s", "burst"), [(0, 1), (-1, 1), (float("nan"), 1), (1, 0), (2_000_000, 1), (1, 10**7)])
async def test_an_invalid_rate_is_refused(memory: Memory, per_s: float, burst: int) -> None:
    with pytest.raises(ValueError, match="a rate is"):
        await memory.take("caller", per_s, burst)
