"""Errors of the caller's code, as seen by the code that awaits it."""

from __future__ import annotations

import asyncio
import traceback

import pytest
from support.checks import CANARY, Panic

from redismem.concurrency.callbacks import ENDING, awaited, awaited_within
from redismem.errors import ModelFailed


@pytest.mark.parametrize("kind", ENDING)
async def test_what_is_to_end_more_than_the_work_does(kind: type[BaseException]) -> None:
    async def ending() -> None:
        raise kind

    with pytest.raises(kind):
        await awaited(ending)


async def test_a_cancellation_of_its_own_is_told_from_one_of_those_who_await_it() -> None:
    shared: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def waiting() -> None:
        await shared

    cancelled = asyncio.create_task(awaited(waiting))
    await asyncio.sleep(0)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert shared.cancelled()
    for way in (waiting, lambda: shared, lambda: awaited_within(60, TimeoutError(), waiting)):
        with pytest.raises(Exception, match=r"^$") as raised:
            await awaited(way)
        assert type(raised.value).__name__ == "CancelledError"


async def test_another_name_for_an_error_keeps_its_place_and_says_nothing() -> None:
    def panicking() -> asyncio.Future[None]:
        raise Panic(CANARY)

    with pytest.raises(Exception, match=r"^$") as raised:
        await awaited(panicking)
    shown = "".join(traceback.format_exception(raised.value))
    assert "in panicking" in shown
    assert CANARY not in shown
    assert shown.endswith("checks.Panic\n")


async def test_who_is_late_is_told_from_who_has_a_timeout_of_his_own() -> None:
    late, own = ModelFailed("late"), TimeoutError()

    async def timing_out() -> None:
        raise own

    with pytest.raises(ModelFailed, match="late"):
        await awaited_within(0.01, late, asyncio.Event().wait)
    with pytest.raises(TimeoutError) as raised:
        await awaited_within(60, late, timing_out)
    assert raised.value is own
