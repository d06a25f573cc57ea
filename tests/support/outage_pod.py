"""A pod of the tests of outages: `outage_pod.py <url> <namespace> <number> <ledger>`. It chats, with the fallback.

Until its standard input ends, and then until all it was told is in Redis. Each turn that was acknowledged is a line of
the ledger: session, text, whether it was degraded, when it began and ended. At the end it prints what it saw.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

from redismem import Memory, Settings
from redismem.events import Event

SETTINGS = Settings(
    strategy="none",
    shards=4,
    deadline_s=60,  # of what a busy machine makes slow, no call gives up
)
SHARED = [f"shared-{number}" for number in range(6)]
PACE_S = 0.01  # bounds what there is to check in the end


class Pod:
    def __init__(self, memory: Memory, number: int, ledger: Path) -> None:
        self._memory = memory
        self._ledger = ledger.open("w", buffering=1, encoding="ascii")
        self._number = number
        self._random = random.Random(number)
        self._own = [f"own-{number}-{at}" for at in range(3)]
        self._said = 0
        self.slowest_ms = 0.0

    async def turn(self) -> None:
        session = self._memory.session(self._random.choice(SHARED + self._own))
        text = f"{self._number}.{self._said}"
        self._said += 1
        message = {"role": "user", "content": text}
        # Half of them with an id of the caller's.
        given: Any = {"id": text} if self._random.random() < 0.5 else {}
        begun_s = time.monotonic()
        if self._random.random() < 0.1:
            context = await session.append_and_read(message, merge={f"said-{self._number}": self._said}, **given)
            assert context.messages[-1].content == text or not context.degraded
            is_degraded = context.degraded
        else:
            is_degraded = (await session.append(message, **given)).degraded
        ended_s = time.monotonic()
        self.slowest_ms = max(self.slowest_ms, (ended_s - begun_s) * 1000)
        self._ledger.write(json.dumps([session.id, text, is_degraded, begun_s, ended_s]) + "\n")


async def main(url: str, namespace: str, number: str, ledger: str) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def end() -> None:
        loop.remove_reader(sys.stdin)
        stop.set()

    loop.add_reader(sys.stdin, end)
    closed_s: list[float] = []
    caught_up_s: list[float] = []

    def note(event: Event) -> None:
        if event.op == "breaker" and event.outcome == "closed":
            closed_s.append(time.monotonic())
        elif event.op == "replay":
            caught_up_s.append(time.monotonic())

    settings = SETTINGS
    async with Memory.connect(url, namespace=namespace, settings=settings, fallback=True, on_event=note) as memory:
        pod = Pod(memory, int(number), Path(ledger))
        while not stop.is_set():
            await pod.turn()
            await asyncio.sleep(PACE_S)
        async with asyncio.timeout(60):
            while memory.health().state != "closed" or memory.health().backlog_message_count:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        health = memory.health()
    seen = {
        "slowest_ms": pod.slowest_ms,
        "replay_s": caught_up_s[-1] - closed_s[-1] if caught_up_s else 0.0,
        "replayed": len(caught_up_s),
        "outages": len(closed_s),
        "refused": health.refused_session_count,
    }
    sys.stdout.write(json.dumps(seen) + "\n")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
