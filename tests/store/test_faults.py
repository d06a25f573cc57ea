"""Faults between a memory and its Redis: lost replies, broken sockets, cancelled calls, flushed scripts."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from contextlib import aclosing, closing
from dataclasses import replace
from typing import Any

import pytest
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from support.checks import catch_unavailable, check_silent, contents, insist, silent_logs, until, user  # noqa: F401 (an autouse fixture)
from support.proxy import How, Proxy
from support.redis_server import RedisServer

import redismem.blocking
from redismem import Memory, Receipt, Settings, StoreUnavailable
from redismem.protocol.scripts import load

# A long timeout: an attempt that times out too early would be a repetition that the test has not asked for.
PATIENT = Settings(deadline_s=60, reply_timeout_s=20)
# For tests to which a further repetition makes no difference.
QUICK = Settings(deadline_s=60, reply_timeout_s=0.15)
GIVES_UP = Settings(deadline_s=0.4, reply_timeout_s=0.1)
HOWS: list[How] = ["reset", "close", "half_close", "truncate", "freeze", "swallow", "delay", "split"]
LOST: list[tuple[How, int]] = [("reset", 11), *((how, count) for how in HOWS[:6] for count in (1, 3))]


@pytest.fixture
async def raw(redis_server: RedisServer) -> AsyncIterator[Any]:
    async with redis.asyncio.Redis(port=redis_server.port) as raw:
        yield raw


async def test_a_lost_reply_leaves_one_copy(redis_server: RedisServer, direct_memory: Memory) -> None:
    async def lose(how: How, count: int, read: bool) -> None:
        async with (
            Proxy(redis_server.port) as proxy,
            Memory.connect(proxy.url, namespace=direct_memory.store.keys.namespace, settings=QUICK) as memory,
        ):
            session = memory.session(f"{how}-{count}-{read}")
            first = await session.append(user(1))
            proxy.break_next(how, count, to=b"EVALSHA")
            if read:
                context = await session.append_and_read(user(2), user(3), merge={"a": 1})
                receipt = context.receipt
                assert [message.content for message in context.messages] == [user(n)["content"] for n in (1, 2, 3)]
                assert context.state.params == {"a": 1}
            else:
                receipt = await session.append(user(2), user(3), merge={"a": 1})
            assert proxy.broken_count == count
        assert (first.created, first.duplicate) == (True, False)
        assert receipt is not None
        assert (receipt.first_seq, receipt.last_seq, receipt.total, receipt.created) == (2, 3, 3, False)
        assert not receipt.duplicate, "the caller sent it once"
        assert await contents(direct_memory.session(session.id)) == [user(n)["content"] for n in (1, 2, 3)]

    await asyncio.gather(*(lose(how, count, read) for how, count in LOST for read in (False, True)))


@pytest.mark.parametrize("count", [1, 5])
async def test_lost_replies_of_the_append_that_began_the_session(
    proxy: Proxy, direct_memory: Memory, count: int
) -> None:
    async with Memory.connect(proxy.url, namespace=direct_memory.store.keys.namespace, settings=PATIENT) as memory:
        proxy.break_next("reset", count, to=b"EVALSHA")
        receipt = await memory.session("a").append(user(1), user(2), id="first")
        again = await memory.session("a").append(user(1), user(2), id="first")
    assert receipt == Receipt(first_seq=1, last_seq=2, total=2, created=True, duplicate=False)
    assert again == replace(receipt, duplicate=True)


async def test_lost_replies_of_a_state_change(proxy: Proxy, direct_memory: Memory) -> None:
    async with Memory.connect(proxy.url, namespace=direct_memory.store.keys.namespace, settings=PATIENT) as memory:
        session = memory.session("a")
        await session.append(user())
        proxy.break_next("reset", 5, to=b"EVALSHA")
        await session.update(merge={"a": [1, None]}, waiting="b", plan={"step": 1})
        state = await session.state()
        assert (state.params, state.waiting_for_param, state.plan) == ({"a": [1, None]}, "b", {"step": 1})
        assert (await session.info()).total_messages == 1


async def until_resent(proxy: Proxy) -> None:
    """Let the server run one more attempt whose reply is lost, and then answer."""
    kept_count = proxy.frozen_count
    await until(lambda: proxy.frozen_count > kept_count)
    proxy.heal()


async def test_an_append_replayed_after_others(proxy: Proxy, direct_memory: Memory) -> None:
    """It returns its own receipt, not the newest one; does not undo later state changes; and reads the current
    context."""
    async with Memory.connect(proxy.url, namespace=direct_memory.store.keys.namespace, settings=QUICK) as memory:
        await memory.session("a").append(user(1))
        proxy.break_next("freeze", float("inf"), to=b"EVALSHA")
        appending = asyncio.ensure_future(
            memory.session("a").append_and_read(user(2), user(3), merge={"step": "old"}),
        )
        other = direct_memory.session("a")

        async def merge() -> bool:
            return await other.params() == {"step": "old"}

        await until(merge)
        await other.append(user(4), user(5), merge={"step": "new"})
        await other.append(user(6))
        await until_resent(proxy)
        context = await appending
        assert context.receipt == Receipt(first_seq=2, last_seq=3, total=3, created=False, duplicate=False)
        assert [message.content for message in context.messages] == [user(n)["content"] for n in range(1, 7)]
        assert context.state.params == {"step": "new"}
    assert len(await contents(other)) == 6


async def test_a_repeated_clear_spares_later_appends(proxy: Proxy, direct_memory: Memory, raw: Any) -> None:
    async with Memory.connect(proxy.url, namespace=direct_memory.store.keys.namespace, settings=QUICK) as memory:
        await direct_memory.session("a").append(user("old"), merge={"old": 1})
        proxy.break_next("freeze", float("inf"), to=load("clear").sha)
        clearing = asyncio.ensure_future(memory.session("a").clear(missing_ok=False))
        state = direct_memory.store.keys.session("a").state

        async def is_cleared() -> bool:
            return not await raw.exists(state)

        await until(is_cleared)
        receipt = await direct_memory.session("a").append(user("new"))
        await until_resent(proxy)
        assert await clearing is True
    assert (receipt.first_seq, receipt.created) == (1, True)
    assert await contents(direct_memory.session("a")) == [user("new")["content"]]
    assert await direct_memory.session("a").params() == {}


async def test_a_repeated_prune_returns_its_first_result_and_drops_no_more(proxy: Proxy, direct_memory: Memory) -> None:
    async with Memory.connect(proxy.url, namespace=direct_memory.store.keys.namespace, settings=QUICK) as memory:
        await direct_memory.session("a").append(*map(user, range(6)))
        await direct_memory.session("a").prune(5)
        proxy.break_next("freeze", float("inf"), to=load("edit").sha)
        pruning = asyncio.ensure_future(memory.session("a").prune(2))

        async def is_pruned() -> bool:
            return (await direct_memory.session("a").info()).first_seq == 5

        await until(is_pruned)
        await direct_memory.session("a").append(user(6))
        await until_resent(proxy)
        assert await pruning == 3
    assert await contents(direct_memory.session("a")) == [user(n)["content"] for n in (4, 5, 6)]


@pytest.mark.parametrize("read", [False, True])
async def test_a_client_that_repeats_writes_still_leaves_one_copy(
    proxy: Proxy, direct_memory: Memory, read: bool
) -> None:
    async with redis.asyncio.Redis(port=proxy.port, retry=Retry(NoBackoff(), 10)) as client:
        async with Memory.connect(
            client=client, namespace=direct_memory.store.keys.namespace, settings=PATIENT
        ) as memory:
            session = memory.session("a")
            await session.append(user(1))
            proxy.forget()
            proxy.break_next("reset", 10, to=b"EVALSHA")
            result: Any = await (session.append_and_read if read else session.append)(user(2))
            receipt = result.receipt if read else result
        assert proxy.count(b"EVALSHA") == 11, "redis-py repeated it, we did not"
        assert (receipt.first_seq, receipt.duplicate) == (2, False)
        assert await client.ping(), "it stays the caller's"
    assert await contents(direct_memory.session("a")) == [user(n)["content"] for n in (1, 2)]


async def test_a_broken_socket_never_gives_a_wrong_value(redis_server: RedisServer, direct_memory: Memory) -> None:
    """Break anything, greetings of new connections too, and check each answer."""

    async def talk(how: How, random_: random.Random) -> None:
        expected: list[str] = []
        failed = 0
        async with (
            Proxy(redis_server.port) as proxy,
            aclosing(
                Memory.connect(proxy.url, namespace=direct_memory.store.keys.namespace, settings=GIVES_UP)
            ) as memory,
        ):
            session = memory.session(f"a-{how}")
            for number in range(12):
                expected.append(user(number)["content"])
                if memory.health().is_away:  # else no call goes out that could be broken
                    proxy.heal()
                    await insist(memory.ping)
                proxy.break_next(how, random_.choice([1, 2, 3, 100]), delay_s=random_.choice([0.01, 0.2]))
                try:
                    context = await session.append_and_read(user(number), id=str(number))
                    assert [message.content for message in context.messages] == expected
                except StoreUnavailable as error:
                    check_silent(error)
                    failed += 1
                    proxy.heal()
                    assert (
                        await direct_memory.session(session.id).append(user(number), id=str(number))
                    ).last_seq == number + 1
                try:
                    assert [message.content for message in (await session.read(limit=3)).messages] == expected[-3:]
                except StoreUnavailable as error:
                    check_silent(error)
            assert proxy.broken_count > 6, "in most rounds"
        assert await contents(direct_memory.session(session.id)) == expected
        assert how == "split" or failed, "a hundred in a row are too many"

    await asyncio.gather(*(talk(how, random.Random(17)) for how in HOWS))


async def test_a_call_to_a_silent_store_ends_at_its_deadline(proxy: Proxy, direct_memory: Memory) -> None:
    namespace = direct_memory.store.keys.namespace
    async with aclosing(Memory.connect(proxy.url, namespace=namespace, settings=GIVES_UP)) as memory:

        async def append() -> Receipt | StoreUnavailable:
            try:
                return await memory.session("a").append(user(1), id="1")
            except StoreUnavailable as error:
                check_silent(error)
                return error

        async def give_up() -> StoreUnavailable | None:
            error = await append()
            assert isinstance(error, StoreUnavailable)
            return error if error.may_be_done and proxy.frozen_count >= 3 else None  # else the machine was too busy

        proxy.break_next("freeze", float("inf"), to=b"EVALSHA")
        error = await until(give_up)
        assert error.session_id == "a"
        assert "may have been carried out" in error.text
        # The deadlines of the call and of its connection fall into the same moment.
        assert error.reason in {"TimeoutError", "StalledConnection"}
        proxy.heal()

        async def is_answered() -> bool:
            receipt = await append()
            return isinstance(receipt, Receipt) and receipt.duplicate

        await until(is_answered)
    assert await contents(direct_memory.session("a")) == [user(1)["content"]]


async def test_the_blocking_memory_survives_lost_replies(redis_server: RedisServer, direct_memory: Memory) -> None:
    def talk(how: How, proxy: Proxy) -> None:
        namespace = direct_memory.store.keys.namespace
        with redismem.blocking.Memory.connect(proxy.url, namespace=namespace, settings=QUICK) as memory:
            session = memory.session(how)
            for number, count in enumerate((0, 2, 1, 3)):
                proxy.break_next(how, count, to=b"EVALSHA")
                if number % 2:
                    assert session.append_and_read(user(number)).last_seq == number + 1
                else:
                    assert session.append(user(number)).last_seq == number + 1
            for script, edit, result in (("edit", lambda: session.prune(1), 3), ("clear", session.clear, True)):
                proxy.break_next(how, 2, to=load(script).sha)
                assert edit() == result
                assert proxy.broken_count >= 2

    async def survive(how: How) -> None:
        async with Proxy(redis_server.port) as proxy:
            await asyncio.to_thread(talk, how, proxy)
        assert not await direct_memory.session(how).exists()

    await asyncio.gather(*(survive(how) for how in HOWS if how != "delay"))


async def test_a_blocking_call_to_a_silent_store_ends_at_its_deadline(proxy: Proxy, direct_memory: Memory) -> None:
    def talk() -> None:
        namespace = direct_memory.store.keys.namespace
        with closing(redismem.blocking.Memory.connect(proxy.url, namespace=namespace, settings=GIVES_UP)) as memory:
            may_be_done = False
            while not (may_be_done and proxy.frozen_count >= 3):
                with pytest.raises(StoreUnavailable) as raised:
                    memory.session("a").append(user(1), id="1")
                check_silent(raised.value)
                may_be_done = raised.value.may_be_done
            proxy.heal()
            while True:
                with contextlib.suppress(StoreUnavailable):
                    assert memory.session("a").append(user(1), id="1").duplicate
                    break

    proxy.break_next("freeze", float("inf"), to=b"EVALSHA")
    await asyncio.to_thread(talk)
    assert await contents(direct_memory.session("a")) == [user(1)["content"]]
