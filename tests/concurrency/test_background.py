"""Background work: one piece at a time, restarted when its event loop has ended it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from redismem.concurrency.background import LoopBackground, Ongoing


class Begun:
    """Work that pauses until it is woken, and counts its starts and wake-ups."""

    def __init__(self) -> None:
        self.background = LoopBackground()
        self.ongoing = Ongoing(self.background, self.work)
        self.begun_count = self.woken_count = 0

    async def work(self) -> None:
        self.begun_count += 1
        while not self.ongoing.end_if(lambda: self.woken_count > 0):
            await self.background.pause(60)
            self.woken_count += 1

    async def start(self) -> None:
        self.ongoing.start()
        await asyncio.sleep(0)


@pytest.fixture
def begun() -> Begun:
    return Begun()


async def test_work_starts_once_and_again_after_its_end(begun: Begun) -> None:
    for _ in range(3):
        await begun.start()
    assert begun.begun_count == 1
    begun.background.wake()
    await begun.background.end(60)
    assert (begun.woken_count, begun.ongoing.is_cut_off) == (1, False)
    await begun.start()
    assert begun.begun_count == 2


def test_work_that_ends_with_its_event_loop_starts_again_in_the_next(begun: Begun) -> None:
    for number in range(1, 4):
        asyncio.run(begun.start())
        assert begun.begun_count == number
        assert begun.ongoing.is_cut_off


def test_work_cancelled_before_its_first_step_starts_again(begun: Begun) -> None:
    async def start() -> None:
        begun.ongoing.start()
        task = begun.background._task
        assert task is not None
        task.cancel()

    asyncio.run(start())
    assert begun.begun_count == 0
    asyncio.run(begun.start())
    assert begun.begun_count == 1
    assert begun.ongoing.is_cut_off


def test_work_that_a_closed_event_loop_never_ended_starts_again(begun: Begun, caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.new_event_loop()
    loop.run_until_complete(begun.start())
    left: Any = begun.background._task
    loop.close()
    begun.background.wake()

    async def go_on() -> None:
        await begun.start()
        assert begun.begun_count == 2
        assert begun.ongoing.is_cut_off
        left.get_coro().close()  # as garbage collection does; it must end only this coroutine
        await begun.start()
        assert begun.begun_count == 2
        begun.background.wake()
        await begun.background.end(60)
        assert begun.woken_count == 1

    asyncio.run(go_on())
    assert not caplog.records
    left._log_destroy_pending = False
