"""Work on several nodes: without threads, or started on another event loop; and when a lane may be closed."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

import pytest
from support.checks import until
from support.lanes import SilentServer, lane_to
from support.redis_server import free_port

from redismem.protocol.server_errors import ConnectionLost
from redismem.transport.lane.lane import Lane
from redismem.transport.nodes.sides import LoopSide, ThreadSide
from redismem.transport.replicas import Wanted
from redismem.transport.url import Address


@pytest.fixture
def may_begin(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Until this is set, no thread of a node starts."""
    began, allowed = threading.Thread.start, threading.Event()

    def begin(thread: threading.Thread) -> None:
        if thread.name.startswith("redismem-node") and not allowed.is_set():
            raise RuntimeError("can't start new thread")
        began(thread)

    monkeypatch.setattr(threading.Thread, "start", begin)
    return allowed


async def name() -> str:
    return threading.current_thread().name


async def lose() -> str:
    raise ConnectionLost("TimeoutError")


async def test_without_a_new_thread_work_runs_in_the_callers(may_begin: threading.Event) -> None:
    side = ThreadSide(16)
    first, failed, last = await side.run_all([name, lose, name])
    assert first == last == threading.current_thread().name
    assert isinstance(failed, ConnectionLost)
    assert await side.first_results([lose, name]) == [threading.current_thread().name]
    may_begin.set()
    assert await side.run_all([name]) == ["redismem-node"]


async def test_background_work_without_a_thread_is_started_by_the_next_call(may_begin: threading.Event) -> None:
    side, done = ThreadSide(16), threading.Event()

    async def work() -> None:
        done.set()

    side.run_in_background(work)
    assert not done.is_set()
    may_begin.set()
    side.run_in_background(work)
    assert done.wait(60)


def test_background_work_of_another_event_loop_is_not_awaited() -> None:
    side, lane, loop = LoopSide(60), Lane(Address("127.0.0.1", free_port())), asyncio.new_event_loop()
    given_up = []

    async def work() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            given_up.append(True)
            raise

    async def begin() -> None:
        side.run_in_background(work)
        await asyncio.sleep(0)
        assert side.drop(lane, may_wait=True)

    loop.run_until_complete(begin())
    asyncio.run(asyncio.wait_for(side.end(), 60))
    loop.run_until_complete(until(lambda: given_up and not asyncio.all_tasks(loop) - {asyncio.current_task(loop)}))
    loop.close()


async def test_a_lane_is_not_closed_while_replicas_are_asked() -> None:
    side = LoopSide(60)
    async with SilentServer() as server, lane_to(server.port) as lane:
        calls = [lane.run_confirmed([("ECHO", "a")], 60, None, Wanted(1, 60))]
        await until(lambda: server.has_received(b"WAIT", 1))
        calls.append(lane.run_confirmed([("ECHO", "b")], 60, None, Wanted(1, 60)))
        for waiting_count, text in ((2, b"a"), (1, b"b")):
            await until(partial(server.has_received, b"WAIT", 3 - waiting_count))
            assert lane.calls_count == waiting_count
            assert not side.drop(lane, may_wait=True)
            server.say(b"$1\r\n%b\r\n:1\r\n" % text)
            assert await calls[2 - waiting_count] == [text, 1]
        assert lane.calls_count == 0
        assert side.drop(lane, may_wait=True)
        await side.end()
