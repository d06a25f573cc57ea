"""Deadlines of requests: what takes too long is cancelled once, what does not is left alone."""

from __future__ import annotations

import asyncio
from time import monotonic

import pytest

from redismem.web.http.deadlines import Deadlines


async def test_what_takes_too_long_is_told_so() -> None:
    with pytest.raises(TimeoutError), Deadlines(0.01).begin(monotonic()):
        await asyncio.Event().wait()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0, "whoever goes on is not cancelled any more"


async def test_each_has_its_own_time() -> None:
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
    deadlines.look()
    await asyncio.wait(tasks[2:])
    assert sorted(ended) == [2, 3]
    deadlines.look()
    assert not tasks[0].done()
    assert not tasks[1].done()
    for task in tasks[:2]:
        task.cancel()
    assert [type(each) for each in await asyncio.gather(*tasks[:2], return_exceptions=True)] == [
        asyncio.CancelledError
    ] * 2


async def test_a_cancellation_by_somebody_else_stays_one() -> None:
    deadlines = Deadlines(3_600)

    async def work() -> None:
        with deadlines.begin(monotonic() - 7_200):
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    deadlines.look()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_what_was_lifted_or_has_ended_is_left_alone() -> None:
    deadlines = Deadlines(3_600)
    with deadlines.begin(monotonic() - 7_200):
        pass
    with deadlines.begin(monotonic() - 7_200) as deadline:
        deadline.lift()
        deadlines.look()
        await asyncio.sleep(0)
    deadlines.look()
    await asyncio.sleep(0)


async def test_what_fails_when_it_is_late_fails_with_its_own_error() -> None:
    deadlines = Deadlines(3_600)

    async def work() -> None:
        with deadlines.begin(monotonic() - 7_200):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise KeyError from None

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    deadlines.look()
    with pytest.raises(KeyError):
        await task
