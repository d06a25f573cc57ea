"""The parts that all adapters share."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import redis.asyncio
from support.redis_server import RedisServer

from redismem import InvalidSessionId, Memory, Policy
from redismem.adapters.sessions import (
    borrow_memory,
    join_id,
    make_policy,
    memory_over,
    missing_framework,
    return_memory,
    settle,
)


async def test_sessions_with_one_url_share_a_memory_until_the_last_one_gives_it_back(redis_server: RedisServer) -> None:
    url = f"redis://127.0.0.1:{redis_server.port}/2"  # no other test borrows it
    first, second = borrow_memory(url), borrow_memory(url)
    assert first is second
    await return_memory(url)
    assert await first.ping()
    await return_memory(url)
    with pytest.raises(RuntimeError, match="closed"):
        await first.ping()
    later = borrow_memory(url)
    assert later is not first
    assert await later.ping()
    return_memory(url)  # nobody has to await it


def test_a_memory_may_be_given_back_outside_of_any_loop(redis_server: RedisServer) -> None:
    url = f"redis://127.0.0.1:{redis_server.port}/1"  # no other test borrows it
    memory = borrow_memory(url)
    assert asyncio.run(memory.ping())
    return_memory(url)
    with pytest.raises(RuntimeError, match="closed"):
        asyncio.run(memory.ping())


async def test_sessions_over_one_client_share_a_memory(redis_server: RedisServer) -> None:
    async with redis.asyncio.Redis(port=redis_server.port) as client, redis.asyncio.Redis(port=1) as other:
        assert memory_over(client) is memory_over(client) is not memory_over(other)
        assert await memory_over(client).ping()


@pytest.mark.parametrize("empty", ["", " ", None, 42])
def test_an_empty_id_is_refused_as_it_would_be_everyones(empty: Any) -> None:
    with pytest.raises(InvalidSessionId):
        join_id("agents:session", empty)
    assert join_id("agents:session", "42") == "agents:session:42"
    assert join_id("", "42") == "42"


async def test_a_policy_is_whole_and_outlasts_the_defaults_of_others(memory: Memory) -> None:
    session = memory.session("a", policy=make_policy(None, summarise=False))
    await session.append({"role": "user", "content": "hello"})
    policy = (await session.info()).policy
    assert (policy.keep_whole, policy.exempt) == (True, True)
    assert policy.idle_timeout_s == 10 * 365 * 86_400
    assert make_policy(60, summarise=True) == Policy(keep_whole=False, idle_timeout_s=60, exempt=True)


async def test_a_cancelled_mutation_settles_before_the_caller_hears_of_it() -> None:
    begun, go_on, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def mutate() -> str:
        begun.set()
        await go_on.wait()
        done.set()
        return "made"

    caller = asyncio.create_task(settle(mutate()))
    await begun.wait()
    for _ in range(2):  # a caller may be cancelled again while it waits
        caller.cancel()
        await asyncio.sleep(0)
        assert not caller.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert done.is_set()
    assert await settle(mutate()) == "made"


async def test_an_error_of_a_mutation_reaches_the_caller() -> None:
    async def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await settle(fail())


def test_the_error_for_a_missing_framework_names_the_extra_in_one_line() -> None:
    text = str(missing_framework("redismem.adapters.openai_agents", "openai-agents"))
    assert (
        text == "redismem.adapters.openai_agents needs the extra openai-agents: pip install 'redismem[openai-agents]'"
    )
