"""Cancelled calls, flushed scripts and few connections: no caller notices."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import redis.asyncio
from support.checks import contents, silent_logs, user  # noqa: F401 (an autouse fixture)
from support.proxy import Proxy
from support.redis_server import RedisServer

from redismem import Memory, Policy, Session, Settings


@pytest.fixture
async def raw(redis_server: RedisServer) -> AsyncIterator[Any]:
    async with redis.asyncio.Redis(port=redis_server.port) as raw:
        yield raw


async def test_a_cancelled_append_that_is_repeated_is_there_once(proxy: Proxy, direct_memory: Memory) -> None:
    random_ = random.Random(11)
    cancelled, applied, rounds_count, done = 0, 0, 0, False

    async def cancel(session: Session) -> None:
        nonlocal cancelled, applied
        for number in range(12):
            call = session.append_and_read if number % 2 else session.append
            task = asyncio.create_task(call(user(number), id=str(number)))
            await asyncio.wait([task], timeout=random_.uniform(0, 0.012))
            cancelled += task.cancel()
            await asyncio.wait([task])
            receipt = await session.append(user(number), id=str(number))
            applied += task.cancelled() and receipt.duplicate
            assert receipt.first_seq == number + 1

    async def bystand(session: Session) -> int:
        number = 0
        while number < 10 or (not done and number < 2_000):
            number += 1
            context = await session.append_and_read(user(f"{session.id} {number}"), id=str(number))
            assert context.receipt is not None
            assert (context.receipt.last_seq, context.receipt.duplicate) == (number, False)
            assert context.messages[-1].content == user(f"{session.id} {number}")["content"]
        return number

    settings = Settings(deadline_s=60, reply_timeout_s=20)
    async with Memory.connect(proxy.url, namespace=direct_memory.store.keys.namespace, settings=settings) as memory:
        proxy.break_next("delay", float("inf"), delay_s=0.004)
        bystanders = [asyncio.create_task(bystand(memory.session(f"by-{n}"))) for n in range(4)]
        # The machine decides how many calls are cancelled, and how many of these were made.
        while (cancelled < 100 or applied < 20) and rounds_count < 20:
            await asyncio.gather(*(cancel(memory.session(f"a-{rounds_count}-{n}")) for n in range(20)))
            rounds_count += 1
        done = True
        await asyncio.gather(*bystanders)
    assert cancelled >= 100
    assert applied >= 20, "many were carried out though cancelled"
    for session in (direct_memory.session(f"a-{at}-{n}") for at in range(rounds_count) for n in range(20)):
        assert await contents(session) == [user(number)["content"] for number in range(12)]


FORGOTTEN: list[tuple[Callable[[Session], Awaitable[Any]], Callable[[Any], bool]]] = [
    (lambda session: session.append(user(0)), lambda receipt: receipt.created),
    (
        lambda session: session.append_and_read(user(1)),
        lambda context: (len(context.messages), context.receipt.duplicate) == (2, False),
    ),
    (lambda session: session.merge({"a": 1}), lambda nothing: nothing is None),
    (lambda session: session.read(), lambda context: len(context.messages) == 2),
    (lambda session: session.messages(), lambda messages: len(messages) == 2),
    (lambda session: session.tail(1), lambda messages: len(messages) == 1),
    (lambda session: session.recall("x"), lambda messages: messages == []),
    (lambda session: session.touch(), lambda touched: touched is True),
    (lambda session: session.set_policy(Policy(exempt=True)), lambda was_set: was_set is True),
    (lambda session: session.prune(1), lambda dropped: dropped == 1),
    (lambda session: session.replace(2, user(2)), lambda message: message.seq == 2),
    (lambda session: session.append(user(3), user(4), user(5)), lambda receipt: receipt.last_seq == 5),
    (lambda session: session.pop(1), lambda popped: len(popped) == 1),
    (lambda session: session.undo(), lambda popped: len(popped) == 1),
    (lambda session: session.rewrite(8, [user(5)]), lambda receipt: receipt.last_seq == 8),
    (lambda session: session.append(user(6), pin=True), lambda receipt: receipt.last_seq == 9),
    (lambda session: session.unpin(9), lambda message: not message.pinned),
    (lambda session: session.archive(1), lambda archived: len(archived) == 1),
    (lambda session: session.forget(9), lambda forgotten: forgotten.seqs == (9,)),
    (lambda session: session.stop(turn="t1"), lambda was_running: was_running is False),
    (lambda session: session.clear(), lambda cleared: cleared is True),
]
"""For each operation with a script, in this order: its call, and a check of its result."""


async def test_forgotten_scripts_are_not_noticed(direct_memory: Memory, raw: Any) -> None:
    session = direct_memory.session("a")
    for number, (operation, expected) in enumerate(FORGOTTEN):
        await raw.script_flush()
        given = await operation(session)
        assert expected(given), f"operation {number}: {given}"


async def converse(session: Session, random_: random.Random) -> None:
    """Make forty calls, each of which must return as if nothing had happened."""
    total = 0
    for number in range(40):
        match random_.randrange(4):
            case 0:
                total += 1
                assert (await session.append(user(total))).last_seq == total
            case 1:
                total += 1
                context = await session.append_and_read(user(total))
                assert context.receipt is not None
                assert (context.last_seq, context.receipt.duplicate) == (total, False)
            case 2:
                await session.merge({"number": number})
                assert await session.params() == {"number": number}
            case _ if total:
                assert len(await session.messages()) == total
    assert await contents(session) == [user(n)["content"] for n in range(1, total + 1)]


async def test_scripts_forgotten_at_any_moment_are_not_noticed(direct_memory: Memory, raw: Any) -> None:
    random_ = random.Random(13)
    flushed, done = 0, False

    async def flush() -> None:
        nonlocal flushed
        while not done:
            flushed += await raw.script_flush()
            for _ in range(random_.randrange(8)):
                await raw.ping()

    flushing = asyncio.create_task(flush())
    for number in itertools.count():
        await asyncio.gather(*(converse(direct_memory.session(f"a-{number}-{n}"), random_) for n in range(10)))
        # The machine decides how often it happens during one round.
        if flushed > 20:
            break
    done = True
    await flushing


async def test_five_hundred_callers_share_ten_connections(proxy: Proxy, direct_memory: Memory) -> None:
    settings = Settings(max_connections=10, deadline_s=60, reply_timeout_s=20)
    async with Memory.connect(proxy.url, namespace=direct_memory.store.keys.namespace, settings=settings) as memory:
        receipts = await asyncio.gather(*(memory.session(f"a-{n % 50}").append(user(n)) for n in range(500)))
    assert sorted(receipt.last_seq for receipt in receipts) == sorted(list(range(1, 11)) * 50)
    assert not any(receipt.duplicate for receipt in receipts)
    assert proxy.connections_count <= 10
