"""A process that is overloaded, without work: the time of its admission is the test's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

import pytest

from redismem import Memory
from redismem.events import PAID_FOR
from redismem.transport import admission
from redismem.transport.admission import CALM_S, FEW_COUNT, LATE_S, TAKEN_S, Admission, Reason

BUSY_S = 2 * TAKEN_S
"""Long enough for an iteration to refuse new work, and not work that was paid for."""


class Overload:
    """Makes a process overloaded, and calm again, as its admission sees it."""

    def __init__(self) -> None:
        self._shift_s = 0.0

    def monotonic(self) -> float:
        return monotonic() + self._shift_s

    async def work(self, memory: Memory, seconds: float) -> asyncio.Future[Any]:
        """Make calls in an iteration of the event loop that has lasted this long by now. Their replies are to come."""
        handles = [memory.session(f"other-{number}") for number in range(FEW_COUNT + 1)]
        calls = asyncio.gather(*(handle.info() for handle in handles), return_exceptions=True)
        await asyncio.sleep(0)  # they are sent
        self._shift_s += seconds
        return calls

    async def begin(self, memory: Memory) -> asyncio.Future[Any]:
        """Let the queue stand, and return the calls of the iteration that now refuses new work."""
        for _ in range(4):
            await (await self.work(memory, 2 * LATE_S))
        return await self.work(memory, BUSY_S)

    async def end(self, memory: Memory) -> None:
        """Let the overload end: nothing was refused for a while, and an iteration is quick."""
        self._shift_s += 2 * CALM_S
        while admission.behind:
            await (await self.work(memory, 0))


class Refusing(Admission):
    """An admission that refuses all work but that which was paid for."""

    def reason_to_refuse(self, place: str, patience: float) -> str:
        return Reason.BUSY if patience < PAID_FOR else ""


@contextmanager
def refusing(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Let this process refuse all new work of an event loop."""
    admission.behind.add(each := Refusing("", 1))
    each.loop = loop
    try:
        yield
    finally:
        admission.behind.discard(each)


@contextmanager
def overloads() -> Iterator[Overload]:
    """Yield an overload that has not begun."""
    overload = Overload()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(admission, "monotonic", overload.monotonic)
        try:
            yield overload
        finally:
            admission.behind.clear()
