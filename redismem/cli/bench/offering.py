"""Offer turns in a closed and in an open loop, and measure them. Prints nothing."""

from __future__ import annotations

import asyncio
import math
import random
import time
from array import array
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from redismem.errors import RedismemError

MakeTurn = Callable[[int], Awaitable[None]]
"""Makes one turn of the caller with this number."""


@dataclass(slots=True)
class Closed:
    """The result of a closed loop: each caller makes its next turn once the last one has ended."""

    turns: int
    seconds: float
    client_s: float
    """The CPU seconds of this process, the callers included."""

    @property
    def turns_per_s(self) -> float:
        return self.turns / self.seconds


@dataclass(slots=True)
class Open:
    """The result of an open loop: turns begin when they are due, however slow the earlier ones are."""

    offered_per_s: float
    took_ms: array[float] = field(default_factory=lambda: array("d"))
    """The time of each turn that was answered, from the moment at which it was due."""
    failures: Counter[str] = field(default_factory=Counter)
    """The number of turns that failed, by the name of the error."""
    seconds: float = 0.0
    client_s: float = 0.0
    """The CPU seconds of this process."""

    def core_share(self) -> float:
        """Return the share of a core that this process used."""
        return self.client_s / self.seconds if self.seconds else 0.0

    def possible_per_s(self) -> float:
        """Return the turns per second that would take all of a core; infinity if no turn was due."""
        turns = len(self.took_ms) + self.failures.total()
        return turns / self.client_s if turns and self.client_s else math.inf


async def closed_loop(turn: MakeTurn, callers: int, seconds: float) -> Closed:
    """Let this number of callers make turns until the time is up, and finish those that have begun.

    Raises:
        RedismemError, OSError: A turn failed.
    """
    begun_s, begun_cpu_s, count = time.perf_counter(), time.process_time(), 0

    async def call(number: int) -> None:
        nonlocal count
        while time.perf_counter() < begun_s + seconds:
            await turn(number)
            count += 1

    try:
        async with asyncio.TaskGroup() as group:
            for number in range(callers):
                group.create_task(call(number))
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return Closed(count, time.perf_counter() - begun_s, time.process_time() - begun_cpu_s)


async def open_loop(turn: MakeTurn, per_s: float, seconds: float) -> Open:
    """Begin turns at random moments, `per_s` of them a second on average, and wait for all."""
    # time.monotonic(), because the time of uvloop's own clock stands still during an iteration
    loop, offered, tasks = asyncio.get_running_loop(), Open(per_s), set[asyncio.Task[None]]()

    async def make(number: int, due_s: float) -> None:
        try:
            await turn(number)
            offered.took_ms.append((time.monotonic() - due_s) * 1000)
        except RedismemError as error:
            offered.failures[type(error).__name__] += 1

    begun_s = due_s = time.monotonic()
    begun_cpu_s, number = time.process_time(), 0
    try:
        while (due_s := due_s + random.expovariate(per_s)) < begun_s + seconds:
            if (wait_s := due_s - time.monotonic()) > 0:
                await asyncio.sleep(wait_s)
            task = loop.create_task(make(number, due_s))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            number += 1
        if tasks:
            await asyncio.wait(tasks)
        offered.seconds, offered.client_s = time.monotonic() - begun_s, time.process_time() - begun_cpu_s
    finally:
        for task in tasks:
            task.cancel()
    return offered
