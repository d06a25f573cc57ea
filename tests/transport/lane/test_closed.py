"""A lane that is closed from another event loop: each pending call ends with an error. On both event loops."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

import pytest
from support.checks import until
from support.lanes import SilentServer, lane_to
from support.redis_server import free_port

from redismem.protocol.server_errors import ConnectionLost
from redismem.transport.lane.lane import Lane
from redismem.transport.nodes.cluster import Cluster
from redismem.transport.nodes.seeds import parse_cluster, parse_sentinel
from redismem.transport.nodes.sentinel import SentinelLane
from redismem.transport.nodes.sides import LoopSide
from redismem.transport.replicas import Wanted
from redismem.transport.url import Address

LONG_S = 3_600
ONE = Wanted(1, LONG_S)


async def close_elsewhere(transport: Any) -> None:
    """Close it in another event loop, in another thread."""
    async with asyncio.timeout(60):
        await asyncio.to_thread(asyncio.run, transport.aclose())


async def failures(calls: Sequence[asyncio.Future[Any]]) -> list[Any]:
    async with asyncio.timeout(60):
        return await asyncio.gather(*calls, return_exceptions=True)


async def test_pending_and_waiting_calls_end() -> None:
    async with SilentServer() as server, lane_to(server.port, stall_s=LONG_S, max_calls_count=1) as lane:
        calls = [asyncio.ensure_future(lane.run([("ECHO", text)], LONG_S)) for text in "abc"]
        await until(lambda: b"a\r\n" in server.received)
        await close_elsewhere(lane)
        ended = await failures(calls)
        assert [type(each) for each in ended] == [ConnectionLost] * 3
        assert [each.reason for each in ended] == ["closed"] * 3
        assert [each.sent for each in ended] == [True, False, False]
        assert lane.calls_count == 0
        with pytest.raises(RuntimeError, match="this memory is closed"):
            await lane.run([("PING",)], 60)


async def test_calls_that_wait_for_a_connection_end_without_one() -> None:
    async with SilentServer() as server:
        lane = Lane(Address.from_url(f"redis://:secret@127.0.0.1:{server.port}"), stall_s=LONG_S)
        calls = [asyncio.ensure_future(lane.run([("PING",)], LONG_S))]
        await until(lambda: b"AUTH" in server.received)
        connector = lane._connector
        assert connector is not None
        await close_elsewhere(lane)
        (ended,) = await failures(calls)
        assert isinstance(ended, ConnectionLost)
        assert (ended.reason, ended.sent) == ("closed", False)
        await until(connector.done)
        assert connector.cancelled()


async def test_calls_to_be_confirmed_end() -> None:
    async with SilentServer() as server, lane_to(server.port, stall_s=LONG_S) as lane:
        calls = [asyncio.ensure_future(lane.run_confirmed([("ECHO", "a")], LONG_S, None, ONE))]
        await until(lambda: b"WAIT" in server.received)
        calls.append(asyncio.ensure_future(lane.run_confirmed([("ECHO", "b")], LONG_S, None, ONE)))
        await close_elsewhere(lane)
        ended = await failures(calls)
        assert [type(each) for each in ended] == [ConnectionLost] * 2
        assert [(each.reason, each.sent) for each in ended] == [("closed", True), ("closed", False)]


@pytest.mark.parametrize("scheme", ["redis+cluster", "redis+sentinel"])
async def test_calls_in_search_of_their_node_end(scheme: str) -> None:
    async with SilentServer() as server:
        url = f"{scheme}://127.0.0.1:{server.port}"
        transport: Any
        if scheme == "redis+cluster":
            transport = Cluster(parse_cluster(url), LoopSide(LONG_S), reply_timeout_s=LONG_S)
        else:
            transport = SentinelLane(parse_sentinel(f"{url}/chats"), stall_s=LONG_S)
        calls = [asyncio.ensure_future(transport.run([("GET", "a")], LONG_S)) for _ in range(2)]
        await until(lambda: b"SLOTS" in server.received or b"SENTINEL" in server.received)
        await close_elsewhere(transport)
        for ended in await failures(calls):
            assert isinstance(ended, ConnectionLost)


async def test_calls_of_a_cluster_that_is_closed_meanwhile_are_lost_not_cancelled() -> None:
    async with SilentServer() as server:
        url = f"redis+cluster://127.0.0.1:{server.port}"
        transport = Cluster(parse_cluster(url), LoopSide(LONG_S), reply_timeout_s=LONG_S)
        calls = [asyncio.ensure_future(transport.run([("GET", "a")], LONG_S)) for _ in range(2)]
        await until(lambda: b"SLOTS" in server.received)
        await transport.aclose()
        for ended in await failures(calls):
            assert isinstance(ended, ConnectionLost)
            assert (ended.reason, ended.sent) == ("closed", False)


def test_the_leftovers_of_a_closed_event_loop_are_dropped() -> None:
    """No server listens there, so the loop leaves no socket open."""
    lane = Lane(Address("127.0.0.1", free_port()), stall_s=LONG_S)
    loop = asyncio.new_event_loop()

    async def begin() -> None:
        for waiting in (lane.run([("PING",)], LONG_S), lane.run_confirmed([("PING",)], LONG_S, None, ONE)):
            asyncio.ensure_future(waiting).add_done_callback(lambda _: None)

    loop.run_until_complete(begin())
    left = asyncio.all_tasks(loop)
    loop.close()
    for _ in range(2):
        asyncio.run(asyncio.wait_for(lane.aclose(), 60))
    assert lane.calls_count == 0
    with pytest.raises(RuntimeError, match="this memory is closed"):
        asyncio.run(begin())
    for task in left:
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        with contextlib.suppress(RuntimeError):
            task.get_coro().close()


async def test_another_event_loop_does_not_take_the_place_of_calls_to_be_confirmed() -> None:
    async with SilentServer() as server, lane_to(server.port, stall_s=LONG_S) as lane:
        first = asyncio.ensure_future(lane.run_confirmed([("ECHO", "a")], LONG_S, None, ONE))
        await until(lambda: b"WAIT" in server.received)

        async def ask() -> list[Any]:
            return list(await lane.run_confirmed([("ECHO", "c")], LONG_S, None, ONE))

        other = asyncio.ensure_future(asyncio.to_thread(asyncio.run, ask()))
        await until(lambda: b"c\r\n" in server.received)
        assert len(server.connections) == 2
        assert lane.calls_count == 2
        server.say(b"$1\r\nc\r\n:2\r\n")
        assert await other == [b"c", 2]
        server.connections.pop()
        server.say(b"$1\r\na\r\n:1\r\n")
        assert await first == [b"a", 1]


async def test_a_closed_lane_takes_no_call_to_be_confirmed() -> None:
    async with SilentServer() as server, lane_to(server.port) as lane:
        await lane.aclose()
        with pytest.raises(RuntimeError, match="this memory is closed"):
            await lane.run_confirmed([("ECHO", "a")], 1, None, Wanted(1, 1))
        assert not server.connections
