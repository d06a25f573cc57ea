"""Work beside the calls: one piece at a time, begun anew where an event loop has ended it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from redismem.concurrency.background import LoopBackground, Ongoing


class Begun:
    """Work that pauses until it is woken, and knows how often it was begun and has gone on."""

    def __init__(self) -> None:
        self.background = LoopBackground()
        self.ongoing = Ongoing(self.background, self.work)
        self.begun_count = self.woken_count = 0

    async def work(self) -> None:
        self.begun_count += 1
        while not self.ongoing.is_over(lambda: self.woken_count > 0):
            await self.background.pause(60)
            self.woken_count += 1

    async def start(self) -> None:
        self.ongoing.start()
        await asyncio.sleep(0)


@pytest.fixture
def begun() -> Begun:
    return Begun()


async def test_it_is_begun_once_and_again_when_it_has_ended(begun: Begun) -> None:
    for _ in range(3):
        await begun.start()
    assert begun.begun_count == 1
    begun.background.wake()
    await begun.background.end(60)
    assert (begun.woken_count, begun.ongoing.is_cut_off) == (1, False)
    await begun.start()
    assert begun.begun_count == 2


def test_what_ends_with_its_event_loop_is_begun_anew_in_the_next(begun: Begun) -> None:
    for number in range(1, 4):
        asyncio.run(begun.start())
        assert begun.begun_count == number
        assert begun.ongoing.is_cut_off


def test_so_is_what_ends_before_its_first_step(begun: Begun) -> None:
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


def test_so_is_what_a_closed_event_loop_never_ended(begun: Begun, caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.new_event_loop()
    loop.run_until_complete(begun.start())
    left: Any = begun.background._task
    loop.close()
    begun.background.wake()

    async def go_on() -> None:
        await begun.start()
        assert begun.begun_count == 2
        assert begun.ongoing.is_cut_off
        left.get_coro().close()  # as when it is collected, which ends nothing but itself
        await begun.start()
        assert begun.begun_count == 2
        begun.background.wake()
        await begun.background.end(60)
        assert begun.woken_count == 1

    asyncio.run(go_on())
    assert not caplog.records
    left._log_destroy_pending = False
