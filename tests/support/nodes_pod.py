"""A process of test_campaign.py: `nodes_pod.py producer|worker <url> <namespace> <number> <ledger>`.

Either runs until its standard input ends. A producer writes to each of its sessions by itself, so that what one waits
for keeps no other; each append that was acknowledged is a line of its ledger: session, text, when it began and ended.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from redismem import Memory, Message, Settings, StoreUnavailable, Unconfirmed
from redismem.models import Draft
from redismem.workers.scheduler import Scheduler

PRODUCERS = 3
CONFIRM = int(os.environ.get("FAULT_CONFIRM", "0"))
SETTINGS = Settings(
    shards=16,
    tick_s=0.2,
    lease_s=2,
    max_sessions=100_000,
    max_attempts=100,
    max_backoff_s=0.2,
    deadline_s=5,
    confirm=CONFIRM,
)
_OWN_COUNT = 16
_PACE_S = 0.05
# A session knows its last 16 appends: one that is sent again must come before so many of others.
_SHARED_PACE_S = 0.25
SHARED = [f"shared-{number}" for number in range(4)]


def own(number: int) -> list[str]:
    return [f"own-{number}-{at}" for at in range(_OWN_COUNT)]


class Covering:
    """Says of what it covers nothing: the originals stay."""

    async def compact(self, messages: Sequence[Message], previous: str | None) -> Draft:
        return Draft(f"{len(messages)} messages", 0, 0, "covering")


async def write(
    memory: Memory, number: int, session_id: str, pace_s: float, ledger: TextIO, stop: asyncio.Event
) -> None:
    session, count = memory.session(session_id), 0
    while not stop.is_set():
        text, begun_s = f"{number}.{count}", time.monotonic()
        while True:
            try:
                await session.append({"role": "user", "content": text}, id=text)
                break
            except (StoreUnavailable, Unconfirmed):
                await asyncio.sleep(0.01)  # whoever is refused at once tries again soon
        ledger.write(json.dumps([session_id, text, begun_s, time.monotonic()]) + "\n")
        count += 1
        await asyncio.sleep(pace_s)


async def main(role: str, url: str, namespace: str, number: str, ledger: str) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def end() -> None:
        loop.remove_reader(sys.stdin)
        stop.set()

    loop.add_reader(sys.stdin, end)
    async with Memory.connect(url, namespace=namespace, settings=SETTINGS) as memory:
        if role == "worker":
            scheduler = Scheduler(memory.store, Covering())
            await scheduler.start()
            await stop.wait()
            await scheduler.stop()
            return
        with Path(ledger).open("w", buffering=1, encoding="ascii") as file:  # noqa: ASYNC230 (once, at the start)
            paces = dict.fromkeys(own(int(number)), _PACE_S) | dict.fromkeys(SHARED, _SHARED_PACE_S)
            writing = (write(memory, int(number), name, pace_s, file, stop) for name, pace_s in paces.items())
            await asyncio.gather(*writing)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
