"""The parts that all adapters share."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
import redis.asyncio
from support.redis_server import RedisServer

from redismem import InvalidSessionId, InvalidSettings, Memory, Message, Policy, blocking
from redismem.adapters.sessions import (
    Sessions,
    borrow_memory,
    decode_in_slices,
    join_id,
    make_policy,
    memory_over,
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


@pytest.mark.parametrize("prefix", [None, 42])
def test_a_prefix_that_is_missing_is_refused_as_tenants_would_share_their_sessions(prefix: Any) -> None:
    with pytest.raises(InvalidSessionId, match="key_prefix is not a string"):
        join_id(prefix, "42")


async def test_a_store_refuses_its_mistakes_when_it_is_made_and_keeps_no_connection(redis_server: RedisServer) -> None:
    def make(*, memory: Any = None, client: Any = None, prefix: Any = "p", ttl: Any = None) -> Sessions:
        url = redis_server.url if memory is None and client is None else None
        return Sessions(url, memory, client, prefix, make_policy(ttl, summarise=False))

    with blocking.Memory.connect(redis_server.url) as blocked:
        for wrong in (blocked, redis_server.url):
            with pytest.raises(
                InvalidSettings, match=r"must be a redismem\.Memory, not a (redismem\.blocking\.Memory|str)$"
            ):
                make(memory=wrong)
    with pytest.raises(InvalidSettings, match="the client is a str"):
        make(client=redis_server.url)
    for ttl in (0, -1, "3600", float("nan")):
        with pytest.raises(InvalidSettings, match="idle_timeout_s"):
            make(ttl=ttl)
    for prefix in (None, " ", "p" * 256, "a\n"):
        with pytest.raises(InvalidSessionId):
            make(prefix=prefix)
    first = borrow_memory(redis_server.url)
    await return_memory(redis_server.url)
    with pytest.raises(RuntimeError, match="closed"):  # the mistakes above gave back what they had borrowed
        await first.ping()


async def test_decoding_a_long_history_lets_other_tasks_run() -> None:
    messages = [Message.opaque({"n": number}) for number in range(1_000)]
    sizes: list[int] = []
    turns_count = 0

    def decode(part: Sequence[Message]) -> list[Any]:
        sizes.append(len(part))
        return [message.to_openai()["n"] for message in part]

    async def count_turns() -> None:
        nonlocal turns_count
        while True:
            turns_count += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_turns())
    assert await decode_in_slices(messages, decode) == list(range(1_000))
    counting.cancel()
    assert turns_count >= 1_000 // max(sizes)
    assert max(sizes) <= 128
    assert await decode_in_slices([], decode) == []


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
