"""Deadlines of requests: a block that takes too long is cancelled once, and no other."""

from __future__ import annotations

import asyncio
from time import monotonic

import pytest

from redismem.web.http.deadlines import Deadlines


async def test_a_block_that_takes_too_long_times_out() -> None:
    with pytest.raises(TimeoutError), Deadlines(0.01).begin(monotonic()):
        await asyncio.Event().wait()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0, "a task that goes on is no longer cancelled"


async def test_each_block_has_its_own_deadline() -> None:
    deadlines, ended = Deadlines(3_600), list[int]()

    async def work(number: int, begun_s: float) -> None:
        try:
            with deadlines.begin(begun_s):
                await asyncio.Event().wait()
        except TimeoutError:
            ended.append(number)

    now_s = monotonic()
    tasks = [asyncio.create_task(work(number, now_s - number * 1_800)) for number in range(4)]
    await asyncio.sleep(0)
    deadlines.check()
    await asyncio.wait(tasks[2:])
    assert sorted(ended) == [2, 3]
    deadlines.check()
    assert not tasks[0].done()
    assert not tasks[1].done()
    for task in tasks[:2]:
        task.cancel()
    assert [type(result) for result in await asyncio.gather(*tasks[:2], return_exceptions=True)] == [
        asyncio.CancelledError
    ] * 2


async def test_a_cancellation_by_other_code_stays_a_cancellation() -> None:
    deadlines = Deadlines(3_600)

    async def work() -> None:
        with deadlines.begin(monotonic() - 7_200):
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    deadlines.check()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_block_that_ended_or_lifted_its_deadline_is_not_cancelled() -> None:
    deadlines = Deadlines(3_600)
    with deadlines.begin(monotonic() - 7_200):
        pass
    with deadlines.begin(monotonic() - 7_200) as deadline:
        deadline.lift()
        deadlines.check()
        await asyncio.sleep(0)
    deadlines.check()
    await asyncio.sleep(0)


async def test_an_overdue_block_that_fails_raises_its_own_error() -> None:
    deadlines = Deadlines(3_600)

    async def work() -> None:
        with deadlines.begin(monotonic() - 7_200):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise KeyError from None

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    deadlines.check()
    with pytest.raises(KeyError):
        await task
