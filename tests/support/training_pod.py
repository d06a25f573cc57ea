"""A worker process that is killed by SIGKILL as soon as it trains a dictionary: before it is added, or right after.

Its arguments: the URL, the namespace, `before` or `after`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

from redismem import Memory, Settings
from redismem.workers import dictionaries
from redismem.workers.summaries import Worker
from support.writers import Echo


def killed(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def work(url: str, namespace: str, when: str) -> None:
    dictionaries.MIN_SAMPLE_BYTES, dictionaries.MIN_SESSIONS = 10_000, 5
    settings = Settings(shards=2, max_summary_bytes=1024 * 1024)
    async with Memory.connect(url, namespace=namespace, settings=settings) as memory:
        worker = Worker(memory.store, Echo())
        if when == "before":
            dictionaries.train_if_better = killed  # type: ignore[assignment]
        run = memory.store.run

        async def run_and_die(call: Any, **named: Any) -> Any:
            value = await run(call, **named)
            if call.commands[0][0] == "HSETNX":
                killed()
            return value

        memory.store.run = run_and_die  # type: ignore[method-assign]
        await worker.drain()


if __name__ == "__main__":
    asyncio.run(work(*sys.argv[1:]))
