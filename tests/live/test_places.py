"""Turns in all places: embedded, over a caller's client, in a cluster, behind sentinels, in an outage, blocking."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
import redis.asyncio
from support.checks import until
from support.conversations import contents, user_message
from support.proxy import Proxy

from redismem import Memory, Session, Settings, StoreUnavailable, TurnKnown, TurnLost, blocking
from redismem.live.ending import end_if_dead

ASK = user_message("What is the capital of France?")


@asynccontextmanager
async def two_sessions(make: Callable[[], Any]) -> AsyncIterator[tuple[Session, Session]]:
    async with make() as one, make() as other:
        yield one.session("user-42"), other.session("user-42")


async def check_a_turn(own: Session, other: Session) -> None:
    """Write a turn of which the other session hears everything, and stops."""
    heard: list[dict[str, Any]] = []
    begun = asyncio.Event()

    async def listen() -> None:
        async for _, event in other.follow():
            heard.append(event)
            begun.set()

    async with own.turn(ASK, id="t1") as turn:
        listening = asyncio.create_task(listen())
        await begun.wait()
        for number in range(50):
            await turn.write(f"{number} ")
        await until(lambda: "49" in str(heard))
        assert await other.stop("enough")
        await asyncio.Event().wait()
    assert (turn.outcome, turn.reason) == ("stopped", "enough")
    await asyncio.wait_for(listening, 10)
    whole = "".join(f"{number} " for number in range(50))
    assert "".join(event.get("delta", "") for event in heard) == whole
    assert heard[-1]["outcome"] == "stopped"
    assert contents((await other.read()).messages) == [ASK["content"], whole]


async def test_the_embedded_store(namespace: str) -> None:
    async with Memory.connect("memory://", namespace=namespace) as memory:
        await check_a_turn(memory.session("user-42"), memory.session("user-42"))


async def test_a_client_of_the_caller_is_polled(redis_server: Any, namespace: str) -> None:
    async with AsyncExitStack() as stack:
        sessions = []
        for _ in range(2):
            client = await stack.enter_async_context(redis.asyncio.Redis(port=redis_server.port))
            memory = await stack.enter_async_context(Memory.connect(client=client, namespace=namespace))
            sessions.append(memory.session("user-42"))
        await check_a_turn(*sessions)


async def test_a_cluster(cluster_servers: Any, namespace: str) -> None:
    async with two_sessions(lambda: Memory.connect(cluster_servers.url, namespace=namespace)) as sessions:
        await check_a_turn(*sessions)


async def test_a_primary_behind_sentinels(sentinel_servers: Any, namespace: str) -> None:
    async with two_sessions(lambda: Memory.connect(sentinel_servers.url, namespace=namespace)) as sessions:
        await check_a_turn(*sessions)


async def test_with_the_fallback_a_turn_begins_while_redis_is_down(proxy: Proxy, namespace: str) -> None:
    settings = Settings(deadline_s=0.5, reply_timeout_s=0.2, fallback=True, fallback_after_s=0.2)
    async with Memory.connect(proxy.url, namespace=namespace, settings=settings) as memory:
        session = memory.session("user-42")
        await session.append(user_message("before"))
        await proxy.refuse()
        async with session.turn(ASK, id="t1") as turn:
            assert turn.context.degraded
            heard: asyncio.Task[Any] = asyncio.ensure_future(anext(session.follow()))
            await turn.write("Paris")
            await heard
            with pytest.raises(TurnKnown):
                await asyncio.create_task(enter(session))
        assert turn.outcome == "done"
        assert contents((await session.read()).messages) == ["before", ASK["content"], "Paris"]
        await proxy.accept_again()
        await until(lambda: memory.health().backlog_message_count == 0, 30)
        assert contents((await session.read()).messages) == ["before", ASK["content"], "Paris"]


async def enter(session: Session) -> None:
    async with session.turn(ASK, id="t1"):
        pytest.fail("twice")


async def test_without_the_fallback_a_turn_needs_redis(proxy: Proxy, namespace: str) -> None:
    settings = Settings(deadline_s=0.5, reply_timeout_s=0.2)
    async with Memory.connect(proxy.url, namespace=namespace, settings=settings) as memory:
        await proxy.refuse()
        with pytest.raises(StoreUnavailable):
            await enter(memory.session("user-42"))


async def test_an_outage_in_mid_turn_loses_nothing(proxy: Proxy, redis_server: Any, namespace: str) -> None:
    settings = Settings(deadline_s=0.3, reply_timeout_s=0.1, live_lease_s=30)
    async with Memory.connect(proxy.url, namespace=namespace, settings=settings) as memory:
        session = memory.session("user-42")
        async with session.turn(ASK, id="t1") as turn:
            await turn.write("one ")
            await proxy.refuse()
            local = asyncio.create_task(collect(session))
            for number in range(100):
                await turn.write(f"{number} ")
            await asyncio.sleep(0)
            await proxy.accept_again()
        whole = "one " + "".join(f"{number} " for number in range(100))
        assert (await session.read()).messages[-1].content == whole
        assert await local == whole
        async with Memory.connect(redis_server.url, namespace=namespace) as other:
            assert await collect(other.session("user-42"), turn="t1") == whole


async def collect(session: Session, **where: Any) -> str:
    return "".join([event.get("delta", "") async for _, event in session.follow(**where)])


async def test_a_turn_longer_than_an_outage_of_a_lease_goes_on(proxy: Proxy, redis_server: Any, namespace: str) -> None:
    settings = Settings(deadline_s=0.3, reply_timeout_s=0.1, live_lease_s=0.6)
    async with (
        Memory.connect(proxy.url, namespace=namespace, settings=settings) as memory,
        Memory.connect(redis_server.url, namespace=namespace, settings=settings) as other,
    ):
        session, keys = memory.session("user-42"), other.store.keys.session("user-42")
        async with session.turn(ASK, id="t1") as turn:
            await turn.write("one ")
            await proxy.refuse()
            await until(lambda: end_if_dead_at_last(other, keys))
            await proxy.accept_again()
            await turn.write("two")
        assert turn.outcome == "done"
        assert (await session.read()).messages[-1].content == "one two"


async def end_if_dead_at_last(memory: Memory, keys: Any) -> bool:
    """Return True once the turn is doubted: its lease was over, and half a one is granted."""
    await end_if_dead(memory.store, keys)
    (doubt,) = await memory.store.transport.run([("HGET", keys.state, "doubt")], 5)
    return doubt is not None


async def test_workers_end_a_turn_that_nobody_follows(redis_server: Any, namespace: str) -> None:
    settings = Settings(live_lease_s=0.2, tick_s=0.05)
    async with (
        Memory.connect(redis_server.url, namespace=namespace, settings=settings) as memory,
        Memory.connect(redis_server.url, namespace=namespace, settings=settings, workers=True),
    ):
        session = memory.session("user-42")
        turn = session.turn(ASK, id="t1")
        await turn.__aenter__()
        turn._live.end(turn._writing)  # its process says nothing more
        await until(lambda: has_ended(session), 20)
        with pytest.raises(TurnLost):
            await turn.__aexit__(None, None, None)


async def has_ended(session: Session) -> bool:
    known = await session.turn_of("t1")
    return known is not None and known.outcome == "lost"


@pytest.mark.parametrize("place", ["a server", "this process"])
def test_a_blocking_caller(redis_server: Any, namespace: str, place: str) -> None:
    url = redis_server.url if place == "a server" else "memory://"
    with blocking.Memory.connect(url, namespace=namespace) as memory:
        session = memory.session("user-42")
        with pytest.raises(RuntimeError, match=r"first: with session\.turn"):
            session.turn(ASK, id="t1").write("Par")
        with session.turn(ASK, id="t1") as turn:
            assert contents(turn.context.messages) == [ASK["content"]]
            events: list[Any] = []
            listening = threading.Thread(target=lambda: events.extend(session.follow()))
            listening.start()
            turn.write("Par")
            turn.write("is")
        listening.join(10)
        assert (turn.outcome, turn.reply_seq) == ("done", 2)
        assert contents(session.read().messages) == [ASK["content"], "Paris"]
        known = session.turn_of("t1")
        assert known is not None
        assert known.reply is not None
        assert known.reply.content == "Paris"
        with pytest.raises(TurnKnown), session.turn(ASK, id="t1"):
            pytest.fail("twice")
        told = [event for _, event in session.follow(turn="t1")]
        assert "".join(event.get("delta", "") for event in told) == "Paris"
        assert told[-1]["outcome"] == "done"


def test_a_stop_of_a_blocking_caller_ends_its_block(redis_server: Any, namespace: str) -> None:
    with (
        blocking.Memory.connect(redis_server.url, namespace=namespace) as memory,
        blocking.Memory.connect(redis_server.url, namespace=namespace) as other,
    ):
        session = memory.session("user-42")
        with session.turn(ASK, id="t1") as turn:
            turn.write("Par")
            assert other.session("user-42").stop("enough")
            while True:
                turn.write("is")
        assert (turn.outcome, turn.reason) == ("stopped", "enough")
        assert str(session.read().messages[-1].content).startswith("Par")
