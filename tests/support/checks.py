"""Checks of the fault tests: sessions are consistent, and no error or log shows message text."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import traceback
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import pytest
import redis

from redismem import Session, StoreUnavailable
from support.waiting import SOON_S, START_S, pauses_s

CANARY = "canary-5d1f"
T = TypeVar("T")


class Panic(BaseException):
    """An error such as a Rust library raises: no subclass of `Exception`, and its text quotes the input."""


def user(text: object = "") -> dict[str, Any]:
    """Return a message that holds the canary."""
    return {"role": "user", "content": f"{CANARY} {text}"}


def check_silent(error: BaseException) -> None:
    """Check that neither the error nor its causes show the canary in a log."""
    assert CANARY not in "".join(traceback.format_exception(error))
    assert CANARY not in repr(error)


async def catch_unavailable(call: Awaitable[object]) -> StoreUnavailable:
    """Return the `StoreUnavailable` that the call raises."""
    with pytest.raises(StoreUnavailable) as raised:
        await call
    check_silent(raised.value)
    return raised.value


async def until_unavailable(call: Callable[[], Awaitable[object]], said: str) -> StoreUnavailable:
    """Repeat a call with a short deadline until its error says this, and return the error.

    On a busy machine, a call may just time out.
    """
    texts = []

    async def find_error() -> StoreUnavailable | None:
        error = await catch_unavailable(call())
        texts.append(str(error))
        return error if said in texts[-1] else None

    try:
        error: StoreUnavailable = await until(find_error)
    except TimeoutError:
        pytest.fail(f"{said!r} is not in {texts[-1]!r}")
    return error


@pytest.fixture(autouse=True)
def silent_logs(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Check that no log record of the test, at any level, holds message text."""
    caplog.set_level(logging.DEBUG)
    yield
    records = [*caplog.get_records("setup"), *caplog.get_records("call")]
    formatted = "".join(caplog.handler.format(record) for record in records)
    assert CANARY not in formatted


async def until(condition: Callable[[], Any], deadline_s: float = SOON_S) -> Any:
    """Poll the condition until it is true, and return its value. The condition may return an awaitable.

    A wait for a lease, a tick or a failover names a deadline that follows from it, times `PACE`.

    Raises:
        TimeoutError: It was false until the deadline.
    """
    pauses = pauses_s()
    async with asyncio.timeout(deadline_s):
        while True:
            value = condition()
            value = await value if inspect.isawaitable(value) else value
            if value:
                return value
            await asyncio.sleep(next(pauses))


async def insist(call: Callable[[], Awaitable[T]]) -> T:
    """Repeat the call until Redis answers within the deadline of its memory, which is short for another call."""
    async with asyncio.timeout(START_S):
        while True:
            with contextlib.suppress(StoreUnavailable):
                return await call()
            await asyncio.sleep(0.005)


async def contents(session: Session) -> list[Any]:
    """Return the contents of a session, and check its seqs and counters against them."""
    found, known = await session.messages(), await session.info()
    assert [message.seq for message in found] == list(range(known.first_seq, known.total_messages + 1))
    assert known.window_tokens == sum(message.tokens for message in found)
    return [message.content for message in found]


async def answers_transactions(raw: Any) -> bool:
    """True if a server out of memory runs a transaction of reads: Redis 7.0 refuses it, 8.0 does not."""
    try:
        await raw.pipeline(transaction=True).get("x").execute()
    except redis.exceptions.OutOfMemoryError:
        return False
    return True
