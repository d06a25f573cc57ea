"""Signals: SIGTERM from a supervisor and SIGINT from a keyboard stop a command, SIGHUP makes a server read its keys."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator


@contextlib.contextmanager
def stop_signals() -> Iterator[asyncio.Event]:
    """Yield an event that the first stop signal sets. A second signal ends the process at once."""
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()

    def stop() -> None:
        leave()
        stopping.set()

    def leave() -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    try:
        yield stopping
    finally:
        leave()


@contextlib.contextmanager
def hangup_signals() -> Iterator[asyncio.Event]:
    """Yield an event that each SIGHUP sets. Without this, SIGHUP would end the process."""
    loop = asyncio.get_running_loop()
    hangup = asyncio.Event()
    loop.add_signal_handler(signal.SIGHUP, hangup.set)
    try:
        yield hangup
    finally:
        loop.remove_signal_handler(signal.SIGHUP)


async def wait_for(stopping: asyncio.Event, seconds: float) -> bool:
    """Wait until the event is set, at most this long. True if it is set."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stopping.wait()
    return stopping.is_set()
