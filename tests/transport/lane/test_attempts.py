"""Attempts to connect: calls that wait for no second one, and the time that each may take."""

from __future__ import annotations

import asyncio

import pytest
from support.answering import AnsweringServer
from support.checks import until
from support.lanes import SilentServer, lane_to
from support.proxy import Proxy
from support.redis_server import RedisServer, free_port

from redismem.protocol.server_errors import ConnectionLost
from redismem.transport.lane.attempts import Attempts
from redismem.transport.lane.lane import Lane

LONG_S = 3_600
ECHO = [("ECHO", "x")]


async def catch_lost(lane: Lane) -> ConnectionLost:
    with pytest.raises(ConnectionLost) as lost:
        await asyncio.wait_for(lane.run_if_up(ECHO, LONG_S), 60)
    return lost.value


async def test_a_refused_connection_ends_only_the_calls_that_wait_for_no_other() -> None:
    async with lane_to(free_port(), stall_s=LONG_S) as lane:
        waiting = asyncio.ensure_future(lane.run(ECHO, LONG_S))
        for _ in range(2):
            lost = await catch_lost(lane)
            assert (lost.reason, lost.sent) == ("ConnectionRefusedError", False)
        assert not waiting.done()


async def test_a_server_that_is_back_is_found_by_calls_that_wait_for_nothing(redis_server: RedisServer) -> None:
    async with Proxy(redis_server.port) as proxy, lane_to(proxy.port) as lane:
        assert await lane.run_if_up(ECHO, 60) == [b"x"]
        await proxy.refuse()
        await until(lambda: lane._connection is None)
        await catch_lost(lane)
        await proxy.accept_again()

        async def is_back() -> bool:
            try:
                return await lane.run_if_up(ECHO, LONG_S) == [b"x"]
            except ConnectionLost:
                return False

        await until(is_back)


async def test_a_slow_server_does_not_end_the_call() -> None:
    async with SilentServer() as server, lane_to(server.port) as lane:
        waiting = asyncio.ensure_future(lane.run_if_up(ECHO, LONG_S))
        await until(lambda: server.has_received(b"ECHO", 1))
        server.say(b"$1\r\nx\r\n")
        assert await waiting == [b"x"]


async def test_each_event_loop_has_attempts_of_its_own() -> None:
    async with AnsweringServer(lambda _: b"$1\r\nx\r\n") as server, lane_to(server.port) as lane:
        assert await lane.run_if_up(ECHO, 60) == [b"x"]

        def call_elsewhere() -> list[object]:
            async def call() -> list[object]:
                return await lane.run_if_up(ECHO, 60)

            return asyncio.run(call())

        assert await asyncio.to_thread(call_elsewhere) == [b"x"]


def test_each_attempt_may_take_twice_as_long_up_to_a_limit() -> None:
    attempts = Attempts(0.05, 0.3)
    assert [attempts.begin()[1] for _ in range(5)] == [0.05, 0.1, 0.2, 0.3, 0.3]
    attempts.succeed()
    assert attempts.begin() == (0, 0.05)


def test_the_pause_before_an_attempt_grows_to_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redismem.transport.lane.attempts.random.uniform", lambda _, longest_s: longest_s)
    attempts = Attempts(1, 1)
    pauses_s = [attempts.begin()[0] for _ in range(10)]
    assert pauses_s[:4] == [0, 0.01, 0.02, 0.04]
    assert pauses_s[-1] == 1
    attempts.note_lost("ConnectionClosed")
    assert attempts.begin()[0] == 0.01
