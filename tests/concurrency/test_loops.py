"""The end of an event loop is noticed, and work on the loop of another thread is done or given up."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest
import uvloop

from redismem.concurrency.background import LoopBackground
from redismem.concurrency.loops import at_loop_end, call_on, run_on

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
HOUR_S = 3_600


@pytest.fixture
def elsewhere() -> Iterator[asyncio.AbstractEventLoop]:
    """Run an event loop in another thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    if not loop.is_closed():
        loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.mark.parametrize("make_loop", LOOPS.values(), ids=LOOPS)
def test_the_end_of_a_loop_calls_what_was_not_cancelled(make_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    called: list[str] = []
    kept: list[Callable[[], None]] = []

    async def later() -> None:
        await asyncio.sleep(0)
        called.append("async")

    async def main() -> None:
        kept.extend((at_loop_end(partial(called.append, "plain")), at_loop_end(later)))
        cancel = at_loop_end(partial(called.append, "cancelled"))
        cancel()
        cancel()
        await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(main())
        assert called == []
    assert sorted(called) == ["async", "plain"]


async def test_a_coroutine_runs_on_another_loop(elsewhere: asyncio.AbstractEventLoop) -> None:
    async def thread_name() -> str:
        return threading.current_thread().name

    async def fail() -> None:
        raise OSError("of the work")

    assert await run_on(elsewhere, thread_name()) != threading.current_thread().name
    with pytest.raises(OSError, match="of the work"):
        await run_on(elsewhere, fail())


async def test_a_loop_that_stops_ends_the_wait_for_its_work(elsewhere: asyncio.AbstractEventLoop) -> None:
    async def stop() -> str:
        elsewhere.stop()
        return await asyncio.sleep(HOUR_S, "done")

    assert await run_on(elsewhere, stop()) is None
    for task in asyncio.all_tasks(elsewhere):
        task.cancel()
    await asyncio.to_thread(elsewhere.run_until_complete, asyncio.sleep(0))


async def test_a_closed_loop_does_no_work() -> None:
    loop, called = asyncio.new_event_loop(), list[int]()
    loop.close()
    assert await run_on(loop, asyncio.sleep(0, "done")) is None
    call_on(loop, called.append, 1)
    assert called == []


async def test_work_in_the_background_is_woken_from_another_thread(elsewhere: asyncio.AbstractEventLoop) -> None:
    background, woken = LoopBackground(), threading.Event()

    async def work() -> None:
        await background.pause(HOUR_S)
        woken.set()

    async def start() -> None:
        background.start(work)

    await asyncio.to_thread(asyncio.run_coroutine_threadsafe(start(), elsewhere).result, 60)
    background.wake()
    assert await asyncio.to_thread(woken.wait, 60)
