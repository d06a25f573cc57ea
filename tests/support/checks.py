"""What the fault tests look at: consistent sessions, and message text that shows up in no error and no log."""

from __future__ import annotations

import asyncio
import inspect
import logging
import traceback
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from redismem import Session, StoreUnavailable

CANARY = "canary-5d1f"


class Panic(BaseException):
    """An error such as a library in Rust raises: no Exception, and its words quote what it was given."""


def user(text: object = "") -> dict[str, Any]:
    """A message that holds the canary."""
    return {"role": "user", "content": f"{CANARY} {text}"}


def check_silent(error: BaseException) -> None:
    """Neither the error nor those it came from, as a log would show them."""
    assert CANARY not in "".join(traceback.format_exception(error))
    assert CANARY not in repr(error)


async def unavailable(call: Awaitable[object]) -> StoreUnavailable:
    """The StoreUnavailable that the call ends with."""
    with pytest.raises(StoreUnavailable) as raised:
        await call
    check_silent(raised.value)
    return raised.value


@pytest.fixture(autouse=True)
def silent_logs(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Whatever is logged during a test, at any level, holds no message text."""
    caplog.set_level(logging.DEBUG)
    yield
    records = [*caplog.get_records("setup"), *caplog.get_records("call")]
    formatted = "".join(caplog.handler.format(record) for record in records)
    assert CANARY not in formatted


async def until(condition: Callable[[], Any], deadline_s: float = 60, every_s: float = 0.005) -> Any:
    """Poll the condition until it is true, and return its value. The condition may return an awaitable.

    Raises:
        TimeoutError: It was false until the deadline.
    """
    async with asyncio.timeout(deadline_s):
        while True:
            value = condition()
            value = await value if inspect.isawaitable(value) else value
            if value:
                return value
            await asyncio.sleep(every_s)


async def contents(session: Session) -> list[Any]:
    """The contents of a session; its seqs must follow each other, and its counters agree with its messages."""
    found, known = await session.messages(), await session.info()
    assert [message.seq for message in found] == list(range(known.first_seq, known.total_messages + 1))
    assert known.window_tokens == sum(message.tokens for message in found)
    return [message.content for message in found]
