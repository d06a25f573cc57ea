"""The errors that a caller's callbacks raise, as the code that awaits them sees them."""

from __future__ import annotations

import asyncio
import traceback

import pytest
from support.checks import CANARY, Panic

from redismem.concurrency.callbacks import ENDING, run_callback, run_callback_within
from redismem.errors import ModelFailed


@pytest.mark.parametrize("kind", ENDING)
async def test_an_exception_that_ends_the_process_passes_through(kind: type[BaseException]) -> None:
    async def ending() -> None:
        raise kind

    with pytest.raises(kind):
        await run_callback(ending)


async def test_a_cancelled_future_of_the_callback_is_told_from_the_cancellation_of_the_caller() -> None:
    shared: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def waiting() -> None:
        await shared

    cancelled = asyncio.create_task(run_callback(waiting))
    await asyncio.sleep(0)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert shared.cancelled()
    for way in (waiting, lambda: shared, lambda: run_callback_within(60, TimeoutError(), waiting)):
        with pytest.raises(Exception, match=r"^$") as raised:
            await run_callback(way)
        assert type(raised.value).__name__ == "CancelledError"


async def test_a_renamed_error_keeps_its_traceback_and_no_text() -> None:
    def panicking() -> asyncio.Future[None]:
        raise Panic(CANARY)

    with pytest.raises(Exception, match=r"^$") as raised:
        await run_callback(panicking)
    shown = "".join(traceback.format_exception(raised.value))
    assert "in panicking" in shown
    assert CANARY not in shown
    assert shown.endswith("checks.Panic\n")


async def test_a_late_callback_is_told_from_a_callback_with_its_own_timeout() -> None:
    late, own = ModelFailed("late"), TimeoutError()

    async def timing_out() -> None:
        raise own

    with pytest.raises(ModelFailed, match="late"):
        await run_callback_within(0.01, late, asyncio.Event().wait)
    with pytest.raises(TimeoutError) as raised:
        await run_callback_within(60, late, timing_out)
    assert raised.value is own
