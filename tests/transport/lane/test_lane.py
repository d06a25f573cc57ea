"""The lane over broken connections, and its life cycle. On both event loops."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import redis.asyncio
from support import selection
from support.checks import until
from support.lanes import SilentServer, connection_number, lane_to
from support.proxy import How, Proxy
from support.redis_server import RedisServer

from redismem import Memory, Settings
from redismem.protocol.server_errors import ConnectionLost
from redismem.store.store import Store
from redismem.transport.lane.lane import Lane
from redismem.transport.url import Address

MANY = 100 if selection.EVERYTHING else 25


@pytest.mark.parametrize("words", [b"+OK\r\n", b">2\r\n+a\r\n+b\r\n", b"*1\rx", b"?\r\n", b"-ERR who are you\r\n"])
async def test_an_unexpected_reply_ends_the_connection(words: bytes) -> None:
    async with SilentServer() as server, lane_to(server.port) as lane:
        echo = asyncio.ensure_future(lane.run([("ECHO", "a")], 60))
        await until(lambda: server.received.endswith(b"a\r\n"))
        server.say(b"$1\r\na\r\n" + words)
        assert await echo == [b"a"]
        lost = asyncio.ensure_future(lane.run([("ECHO", "b")], 60))
        await until(lambda: server.received.endswith(b"b\r\n"))
        assert len(server.connections) == 2
        server.say(b"$1\r\nb\r\n")
        assert await lost == [b"b"]


async def test_a_push_among_the_replies_ends_the_connection(redis_server: RedisServer, namespace: str) -> None:
    async with (
        lane_to(redis_server.port) as other,
        contextlib.aclosing(Lane(Address.from_url(f"{redis_server.url}?protocol=3"), stall_s=60)) as lane,
    ):
        number = await connection_number(lane)
        await lane.run_independent([("CLIENT", "TRACKING", "ON"), ("GET", namespace)], 60)
        await other.run([("SET", namespace, 1)], 60)
        with contextlib.suppress(ConnectionLost):
            await lane.run([("PING",)], 60)
        assert await lane.run([("GET", namespace)], 60) == [b"1"]
        assert await connection_number(lane) != number


async def test_a_deliberate_reconnect_delays_calls_but_loses_none() -> None:
    async with (
        SilentServer() as server,
        contextlib.aclosing(Lane(Address.from_url(f"redis://127.0.0.1:{server.port}/1"), stall_s=60)) as lane,
    ):
        asked = asyncio.ensure_future(lane.run([("PING",)], 60))
        for sent, answer in ((b"SELECT", b"+OK\r\n"), (b"PING", b"-READONLY it is a replica now\r\n")):
            await until(partial(server.has_received, sent, 1))
            server.say(answer)
        assert [error.word for error in await asked] == ["READONLY"]
        with pytest.raises(ConnectionLost) as late:
            await lane.run([("PING",)], 0.05)
        assert (late.value.reason, late.value.sent) == ("TimeoutError", False)


@contextlib.contextmanager
def impatient(lane: Lane, stall_s: float) -> Iterator[None]:
    """Let connections count as stalled sooner during calls that get no reply. A healthy call may take longer."""
    patient_s, lane._stall_s = lane._stall_s, stall_s
    yield
    lane._stall_s = patient_s


@pytest.mark.parametrize("how", ["reset", "close", "half_close", "truncate", "freeze"])
async def test_a_broken_connection_fails_its_calls_and_no_later_one(how: How, redis_server: RedisServer) -> None:
    async with Proxy(redis_server.port) as proxy, lane_to(proxy.port) as lane:
        assert await lane.run([("ECHO", "warm")], 60) == [b"warm"]
        proxy.break_next(how)
        with impatient(lane, 0.05 if how == "freeze" else 60):
            calls = [lane.run([("ECHO", f"{at}"), ("ECHO", "x")], 60) for at in range(20)]
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
        for at, outcome in enumerate(outcomes):
            if isinstance(outcome, ConnectionLost):
                assert outcome.sent
            else:
                assert outcome == [b"%d" % at, b"x"]
        assert any(isinstance(outcome, ConnectionLost) for outcome in outcomes)
        assert how == "truncate" or not any(isinstance(outcome, list) for outcome in outcomes)
        assert await lane.run([("ECHO", "later")], 60) == [b"later"]
        assert proxy.connections_count == 2


async def test_a_call_that_never_arrives_ends_the_connection(redis_server: RedisServer) -> None:
    async with Proxy(redis_server.port) as proxy, lane_to(proxy.port) as lane:
        await lane.run([("PING",)], 60)
        proxy.break_next("swallow")
        with impatient(lane, 0.05), pytest.raises(ConnectionLost, match="StalledConnection"):
            await lane.run([("ECHO", "lost")], 60)
        assert await lane.run([("ECHO", "later")], 60) == [b"later"]
        assert proxy.connections_count == 2


async def test_replies_a_byte_at_a_time_and_late_ones_are_the_same(redis_server: RedisServer, namespace: str) -> None:
    async with Proxy(redis_server.port) as proxy, lane_to(proxy.port) as lane:
        memory = Memory(Store(lane, namespace, Settings()))
        session = memory.session("one")
        await session.append({"role": "user", "content": "a"})
        proxy.break_next("split")
        context = await session.append_and_read({"role": "user", "content": "b"})
        assert [message.content for message in context.messages] == ["a", "b"]
        proxy.break_next("delay", delay_s=0.05)
        context = await session.append_and_read({"role": "user", "content": "c"})
        assert [message.content for message in context.messages] == ["a", "b", "c"]
        assert proxy.connections_count == 1


async def test_nothing_is_lost_or_doubled_through_many_reconnects(redis_server: RedisServer, namespace: str) -> None:
    """Under load, unnoticed by the writers. The server counts the kills, each of which hits pending calls."""
    killed, acknowledged = 0, 0
    written: dict[int, list[str]] = {at: [] for at in range(24)}

    async def write(at: int) -> None:
        nonlocal acknowledged
        session, numbers = memory.session(f"writer-{at}"), itertools.count()
        while killed < MANY:
            text = f"{at}-{next(numbers)}"
            context = await session.append_and_read({"role": "user", "content": text}, id=text)
            written[at].append(text)
            acknowledged += 1
            assert context.messages[-1].content == text
            if len(written[at]) % 50 == 0:
                await session.prune(10)
                del written[at][:-10]

    def went_on(before: int) -> bool:
        return acknowledged > before + 24 or any(writer.done() for writer in writers)

    async with redis.asyncio.Redis(port=redis_server.port) as admin:
        lane = Lane(Address.from_url(f"{redis_server.url}?client_name={namespace}"), stall_s=20)
        async with Memory(Store(lane, namespace, Settings(deadline_s=60, threshold=1000))) as memory:
            writers = [asyncio.create_task(write(at)) for at in written]
            while killed < MANY and not any(writer.done() for writer in writers):
                await until(partial(went_on, acknowledged))
                for client in await admin.client_list():
                    if client["name"] == namespace:
                        killed += await admin.client_kill_filter(_id=client["id"])
            await asyncio.gather(*writers)
            for at, texts in written.items():
                found = await memory.session(f"writer-{at}").messages()
                assert [message.content for message in found] == texts
    assert killed >= MANY


async def test_scripts_are_loaded_again_after_a_flush(redis_server: RedisServer, namespace: str) -> None:
    async with lane_to(redis_server.port) as lane:
        session = Memory(Store(lane, namespace, Settings())).session("one")
        for at in range(20):
            await lane.run([("SCRIPT", "FLUSH")], 60)
            context = await session.append_and_read({"role": "user", "content": f"{at}"})
            assert context.total_messages == at + 1


async def test_the_lane_waits_for_a_server_that_is_not_up_yet(tmp_path: Any) -> None:
    server = RedisServer(tmp_path)
    async with lane_to(server.port) as lane:

        async def is_refused() -> bool:
            with pytest.raises(ConnectionLost, match=r"ConnectionRefusedError|TimeoutError") as lost:
                await lane.run([("PING",)], 0.05)
            assert not lost.value.sent
            return lost.value.reason != "TimeoutError"

        await until(is_refused)
        waiting = asyncio.ensure_future(lane.run([("PING",)], 60))
        await asyncio.to_thread(server.start)
        try:
            assert await waiting == [b"PONG"]
        finally:
            server.stop()


async def test_a_server_with_too_many_clients_is_retried(tmp_path: Any) -> None:
    server = RedisServer(tmp_path, options=("--maxclients", "1"))
    server.start()
    try:
        async with lane_to(server.port) as holder, lane_to(server.port) as lane:
            await holder.run([("PING",)], 60)
            for commands in ([("PING",)], [("PING",), ("PING",)]):
                with pytest.raises(ConnectionLost):
                    await lane.run(commands, 0.05)
            await holder.aclose()
            answered = None
            while answered is None:
                with contextlib.suppress(ConnectionLost):
                    answered = await lane.run([("PING",)], 60)
            assert answered == [b"PONG"]
    finally:
        server.stop()


async def test_calls_of_one_event_loop_iteration_share_few_writes(
    redis_server: RedisServer,
) -> None:
    async with Proxy(redis_server.port) as proxy, lane_to(proxy.port) as lane:
        await lane.run([("PING",)], 60)
        proxy.forget()
        await asyncio.gather(*(lane.run([("ECHO", "a"), ("ECHO", "b")], 60) for _ in range(64)))
        assert len(proxy.sent) <= 2
        assert (proxy.count(b"ECHO"), proxy.connections_count) == (len(proxy.sent), 0)
        proxy.forget()
        await lane.run([("ECHO", "a"), ("ECHO", "b")], 60)
        assert (len(proxy.sent), len(proxy.received)) == (1, 1)


async def test_a_closed_lane_ends_its_calls_and_takes_no_more(redis_server: RedisServer, namespace: str) -> None:
    lane = Lane(Address.from_url(redis_server.url), stall_s=60)
    waiting = asyncio.ensure_future(lane.run([("BLPOP", namespace, 0)], 60))
    await until(lambda: lane._connection is not None and lane._connection.sent)
    await lane.aclose()
    with pytest.raises(ConnectionLost, match="closed"):
        await waiting
    with pytest.raises(RuntimeError, match="closed"):
        await lane.run([("PING",)], 60)
    await lane.aclose()


async def test_a_lane_that_is_closed_while_it_connects_leaves_nothing_behind() -> None:
    async with SilentServer() as server:
        lane = Lane(Address.from_url(f"redis://:secret@127.0.0.1:{server.port}/1"), stall_s=60)
        waiting = asyncio.ensure_future(lane.run([("PING",)], 60))
        await until(lambda: b"AUTH" in server.received and b"SELECT" in server.received)
        assert b"PING" not in server.received
        await lane.aclose()
        with pytest.raises(ConnectionLost, match="closed") as lost:
            await waiting
        assert not lost.value.sent
        gc.collect()


def test_a_lane_goes_on_in_a_new_loop_once_the_first_one_is_closed(redis_server: RedisServer) -> None:
    lane = Lane(Address.from_url(redis_server.url), stall_s=60)

    async def ask() -> None:
        assert await lane.run([("PING",)], 60) == [b"PONG"]

    asyncio.run(ask())
    asyncio.run(ask())


async def test_an_unencodable_command_disturbs_no_other_call(lane: Lane) -> None:
    with pytest.raises(TypeError):
        await lane.run([("SET", "a", None)], 60)  # type: ignore[list-item]
    with pytest.raises(UnicodeEncodeError):
        await lane.run([("SET", "a", "\ud800"), ("GET", "a")], 60)
    assert await lane.run([("ECHO", "a")], 60) == [b"a"]
