"""The lane with many callers, some of which cancel, time out or wait in line. On both event loops."""

from __future__ import annotations

import asyncio
import math
import random
from functools import partial

import pytest
from support.checks import until
from support.lanes import SilentServer, connection_number, lane_to
from support.proxy import Proxy
from support.redis_server import RedisServer

from redismem import Memory, Settings
from redismem.errors import StoreUnavailable
from redismem.protocol.server_errors import ConnectionLost
from redismem.store.store import Store
from redismem.transport.lane.connection import PendingCall, end_late
from redismem.transport.lane.lane import Lane


async def test_thousands_of_cancelled_calls_disturb_no_other_call(lane: Lane) -> None:
    """One in three calls is cancelled before its reply; each other reply is the right one."""
    chance = random.Random(7)
    cancelled = answered = 0

    async def call(number: int) -> None:
        nonlocal answered
        text = b"%d" % number
        if number % 2:
            assert await lane.run([("ECHO", text), ("ECHO", text[::-1])], 60) == [text, text[::-1]]
        else:
            assert await lane.run([("ECHO", text)], 60) == [text]
        answered += 1

    connection = await connection_number(lane)
    number = 0
    while cancelled < 2_000:
        tasks = [asyncio.create_task(call(number + at)) for at in range(300)]
        number += len(tasks)
        victims = chance.sample(tasks, 150)
        for at, victim in enumerate(victims):
            if at % 10 == 0:
                await asyncio.sleep(0)
            victim.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            cancelled += isinstance(outcome, asyncio.CancelledError)
            assert outcome is None or isinstance(outcome, asyncio.CancelledError)
    assert answered >= 2_000
    assert await connection_number(lane) == connection


async def test_one_deadline_leaves_the_others_alone(lane: Lane, redis_server: RedisServer, namespace: str) -> None:
    number = await connection_number(lane)
    late = asyncio.ensure_future(lane.run([("BLPOP", namespace, 0)], 0.02))
    later = [asyncio.ensure_future(lane.run([("ECHO", f"{at}"), ("ECHO", "x")], 60)) for at in range(10)]
    with pytest.raises(ConnectionLost) as lost:
        await late
    assert (lost.value.reason, lost.value.sent) == ("TimeoutError", True)
    assert not any(task.done() for task in later)
    async with lane_to(redis_server.port) as other:
        await other.run([("RPUSH", namespace, "go on")], 60)
    assert await asyncio.gather(*later) == [[b"%d" % at, b"x"] for at in range(10)]
    assert await connection_number(lane) == number


async def test_a_stalled_connection_is_closed_and_its_calls_are_retried(
    redis_server: RedisServer, namespace: str
) -> None:
    async with Proxy(redis_server.port) as proxy, lane_to(proxy.port) as lane:
        memory = Memory(Store(lane, namespace, Settings(deadline_s=60, reply_timeout_s=60)))
        sessions = [memory.session(f"one-{at}") for at in range(10)]
        await sessions[0].append({"role": "user", "content": "a"})
        proxy.forget()
        proxy.break_next("freeze")
        stalled = lane._connection
        assert stalled is not None
        lane._stall_s = 0.05  # until it is lost: on a busy machine, the next connection may need longer
        appends = [asyncio.ensure_future(session.append({"role": "user", "content": "b"})) for session in sessions]
        await stalled.closed
        lane._stall_s = 60
        receipts = await asyncio.gather(*appends)
        assert [receipt.last_seq for receipt in receipts] == [2] + [1] * 9
        assert b"".join(proxy.sent).count(b"EVALSHA") == 20, "each of them twice"
        assert proxy.connections_count == 1, "a new one"


class Ahead(asyncio.SelectorEventLoop):
    """An event loop whose clock a test can advance."""

    ahead_s = 0.0

    def time(self) -> float:
        return super().time() + self.ahead_s


def test_a_connection_is_stalled_without_replies_not_with_pending_calls() -> None:
    async def turns(loop: Ahead) -> None:
        async with SilentServer() as server, lane_to(server.port, stall_s=1_000) as lane:
            calls = [asyncio.ensure_future(lane.run([("ECHO", "0")], 100_000))]
            for at in range(5):
                calls.append(asyncio.ensure_future(lane.run([("ECHO", f"{at + 1}")], 100_000)))
                await until(partial(server.has_received, b"ECHO", at + 2))
                loop.ahead_s += 600
                server.say(b"$1\r\n%d\r\n" % at)
                assert await calls[at] == [b"%d" % at]
            assert len(server.connections) == 1
            loop.ahead_s += 1_001
            with pytest.raises(ConnectionLost, match="StalledConnection"):
                await calls[-1]

    with asyncio.Runner(loop_factory=Ahead) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, Ahead)
        runner.run(turns(loop))


async def test_calls_over_the_limit_wait_in_line() -> None:
    async with SilentServer() as server, lane_to(server.port, max_calls_count=4) as lane:
        calls = [asyncio.ensure_future(lane.run([("ECHO", f"{at:03}")], 20)) for at in range(100)]
        for at in range(100):
            await until(partial(server.has_received, b"ECHO", min(100, at + 4)))
            server.say(b"$3\r\n%03d\r\n" % at)
            assert await calls[at] == [b"%03d" % at]
        order = [int(word) for word in server.received.split(b"\r\n")[4::5]]
        assert order == list(range(100))


async def test_pending_bytes_stay_within_the_limit() -> None:
    async with SilentServer() as server, lane_to(server.port, max_bytes=10_000) as lane:
        first = asyncio.ensure_future(lane.run([("PING",)], 60))
        await until(lambda: server.received.endswith(b"PING\r\n"))
        server.say(b"+PONG\r\n")
        assert await first == [b"PONG"], "it is connected now"
        calls = [lane.run([("ECHO", "x" * 3000)], 0.3) for _ in range(50)]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        await until(lambda: server.received.endswith(b"x\r\n"))
        assert server.received.count(b"ECHO") == 3
        assert [outcome.sent for outcome in outcomes if isinstance(outcome, ConnectionLost)] == [True] * 3 + [
            False
        ] * 47


async def test_a_small_call_does_not_overtake_a_large_one_in_line() -> None:
    async with SilentServer() as server, lane_to(server.port, max_bytes=10_000) as lane:
        words = ["a" * 9000, "b" * 9000, "c"]
        calls = [asyncio.ensure_future(lane.run([("ECHO", word)], 20)) for word in words]
        await until(lambda: server.received.endswith(b"aa\r\n"))
        calls.append(asyncio.ensure_future(lane.run([("ECHO", "d")], 20)))
        await asyncio.wait(calls, timeout=0.05)
        assert server.received.count(b"ECHO") == 1
        server.say(b"$1\r\na\r\n")
        await until(lambda: server.received.count(b"ECHO") == 4)
        assert [word[:1] for word in server.received.split(b"\r\n")[4::5]] == [b"a", b"b", b"c", b"d"]
        server.say(b"$1\r\nb\r\n$1\r\nc\r\n$1\r\nd\r\n")
        assert await asyncio.gather(*calls) == [[b"a"], [b"b"], [b"c"], [b"d"]]


async def test_a_call_cancelled_in_line_sends_nothing() -> None:
    async with SilentServer() as server, lane_to(server.port, max_calls_count=1) as lane:
        first, gone, last = (asyncio.ensure_future(lane.run([("ECHO", word)], 20)) for word in ("1", "2", "3"))
        await until(lambda: server.received.endswith(b"1\r\n"))
        gone.cancel()
        server.say(b"$1\r\n1\r\n")
        assert await first == [b"1"]
        await until(lambda: server.received.endswith(b"3\r\n"))
        server.say(b"$1\r\n3\r\n")
        assert await last == [b"3"]
        assert server.received.count(b"ECHO") == 2


async def test_calls_in_line_take_the_next_connection() -> None:
    async with SilentServer() as server, lane_to(server.port, max_calls_count=1) as lane:
        first, second = (asyncio.ensure_future(lane.run([("ECHO", word)], 20)) for word in ("1", "2"))
        await until(lambda: server.received.endswith(b"1\r\n"))
        server.connections[-1].transport.abort()
        with pytest.raises(ConnectionLost):
            await first
        await until(lambda: server.received.endswith(b"2\r\n"))
        server.say(b"$1\r\n2\r\n")
        assert await second == [b"2"]
        assert len(server.connections) == 2


async def test_a_call_over_the_limit_goes_alone(redis_server: RedisServer) -> None:
    async with lane_to(redis_server.port, max_bytes=1000) as lane:
        texts = [b"%d" % at * 5000 for at in range(5)]
        assert await asyncio.gather(*(lane.run([("ECHO", text)], 60) for text in texts)) == [[text] for text in texts]


async def test_bytes_that_the_server_does_not_read_do_not_pile_up() -> None:
    async with SilentServer() as server, lane_to(server.port) as lane:
        server.reads = False
        flood = asyncio.ensure_future(lane.run([("ECHO", "x" * 16_000_000)], 60))
        await until(lambda: lane._connection is not None and lane._connection.is_paused)
        more = [lane.run([("ECHO", "y")], 0.2) for _ in range(10)]
        outcomes = await asyncio.gather(*more, return_exceptions=True)
        assert [outcome.sent for outcome in outcomes if isinstance(outcome, ConnectionLost)] == [False] * 10
        await lane.aclose()
        with pytest.raises(ConnectionLost):
            await flood


async def test_the_memory_raises_that_the_store_is_down_when_the_line_stalls(namespace: str) -> None:
    async with SilentServer() as server, lane_to(server.port, max_calls_count=1) as lane:
        memory = Memory(Store(lane, namespace, Settings(deadline_s=0.1, reply_timeout_s=0.05)))
        calls = [memory.session(f"one-{at}").read() for at in range(20)]
        for outcome in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(outcome, StoreUnavailable)


async def test_a_late_call_among_answered_ones_does_not_blame_the_server() -> None:
    """Its own process had too many calls pending."""
    loop = asyncio.get_running_loop()
    for answered_at, crowded in ((-math.inf, False), (14.9, False), (15.1, True)):
        late, other = (PendingCall(b"", 1, False, loop.create_future(), 10, deadline) for deadline in (20, 30))
        assert end_late([late, other], 21, answered_at, "TimeoutError", sent=True) == 30
        assert not other.future.done()
        failure = late.future.exception()
        assert isinstance(failure, ConnectionLost)
        assert (failure.reason, failure.sent, failure.crowded) == ("TimeoutError", True, crowded)


async def test_a_call_whose_deadline_passed_in_line_is_not_sent(namespace: str) -> None:
    async with SilentServer() as server, lane_to(server.port, max_calls_count=1) as lane:
        first = asyncio.ensure_future(lane.run([("ECHO", "a")], 60))
        await until(lambda: server.received.endswith(b"a\r\n"))
        late, next_one = (asyncio.ensure_future(lane.run([("ECHO", text)], 60)) for text in ("late", "next"))
        await asyncio.sleep(0)
        lane._line[0].deadline = 0.0  # the process was too busy to notice
        server.say(b"$1\r\na\r\n")
        with pytest.raises(ConnectionLost) as lost:
            await late
        assert (lost.value.sent, lost.value.crowded) == (False, True)
        await until(lambda: server.received.endswith(b"next\r\n"))
        server.say(b"$1\r\nb\r\n")
        assert [await first, await next_one] == [[b"a"], [b"b"]]
        assert b"late" not in server.received
