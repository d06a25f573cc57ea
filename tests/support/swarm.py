"""A process of the swarm that test_worker_processes.py starts: `swarm.py worker` or `swarm.py producer`.

    swarm.py worker <url> <namespace>
    swarm.py producer <url> <namespace> <number> <file>

Either runs until SIGTERM, or until its standard input ends: nobody is left behind. A producer writes down, a line each,
what was acknowledged to it; a worker prints how often it saw each outcome.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TextIO, TypeVar

from redismem import Memory, Message, Receipt, Settings, StoreUnavailable
from redismem.models import Draft
from redismem.workers.scheduler import Scheduler

SETTINGS = Settings(
    shards=4,
    lease_s=0.4,
    tick_s=0.05,
    max_attempts=100,  # an attempt is all that a killed worker leaves behind
    max_backoff_s=0.1,
    max_summary_bytes=1024 * 1024,
    deadline_s=60,
    reply_timeout_s=10,  # sent again only if the connection broke: a session knows its last 16 appends
)
PRODUCERS = 3
# A session knows its last 16 appends. When Redis comes back, one producer may be connected long before another whose
# append is still to be repeated. So each writes to all sessions in turn, a round, and no one is rounds ahead.
SHARED = [f"shared-{number}" for number in range(150)]
PACE_S = 0.003  # bounds what there is to check in the end
T = TypeVar("T")


class Recorder:
    """Its summary says which messages it stands for. It thinks for a while, so that a kill often finds it thinking."""

    async def compact(self, messages: Sequence[Message], previous: str | None) -> Draft:
        await asyncio.sleep(random.uniform(0, 0.05))
        return Draft(previous or " ".join(str(message.content) for message in messages), 0, 0, "recorder")


async def patiently(attempt: Callable[[], Awaitable[T]]) -> T:
    """Until it is acknowledged: Redis may be gone for a while."""
    while True:
        try:
            return await attempt()
        except StoreUnavailable:
            continue


async def next_round(number: int, folder: Path, stop: asyncio.Event) -> None:
    """Begins a round: the producer's file has a byte for each. Waits while another is more than one behind."""
    files = [folder / f"rounds-{producer}" for producer in range(PRODUCERS)]
    with files[number].open("ab") as rounds:
        rounds.write(b".")

    def ahead_count() -> int:
        begun = [file.stat().st_size if file.exists() else 0 for file in files]
        return begun[number] - min(begun)

    while ahead_count() > 1 and not stop.is_set():  # noqa: ASYNC110 (other processes end it)
        await asyncio.sleep(0.005)


async def produce(memory: Memory, number: int, path: Path, file: TextIO, stop: asyncio.Event) -> None:
    rng = random.Random(number)
    said = 0
    left: list[str] = []
    while not stop.is_set():
        if not left:
            await next_round(number, path.parent, stop)
            left = rng.sample(SHARED, len(SHARED))
        session_id = f"own-{number}" if rng.random() < 0.2 else left.pop()
        session = memory.session(session_id)
        contents = [f"p{number}-{said + at}" for at in range(rng.randint(1, 4))]
        said += len(contents)
        append_id = f"p{number}-{said}"
        messages = [{"role": "user", "content": content} for content in contents]

        async def append() -> Receipt:
            return await session.append(*messages, id=append_id)  # noqa: B023 (awaited before the next round)

        receipt = await patiently(append)
        await asyncio.sleep(PACE_S)
        for at, content in enumerate(contents):
            file.write(json.dumps([session_id, receipt.first_seq + at, content]) + "\n")
        if session_id not in SHARED and rng.random() < 0.1:
            # At any moment, and so often while a worker has it: the session that follows has the same name.
            file.write(json.dumps([session_id, 0, "clearing"]) + "\n")
            await patiently(session.clear)
            file.write(json.dumps([session_id, 0, "cleared"]) + "\n")


async def main(role: str, url: str, namespace: str, *rest: str) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_reader(sys.stdin, stop.set)
    async with Memory.connect(url, namespace=namespace, settings=SETTINGS) as memory:
        if role == "producer":
            number, path = rest
            with open(path, "w", buffering=1, encoding="ascii") as file:  # noqa: ASYNC230 (a line of a small file)
                await produce(memory, int(number), Path(path), file, stop)
            return
        scheduler = Scheduler(memory.store, Recorder(), concurrency=4)
        await scheduler.start()
        while not stop.is_set():
            # Again and again, for it may be killed before the next time.
            tell(scheduler)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), 0.05)
        await scheduler.stop()
        tell(scheduler)


def tell(scheduler: Scheduler) -> None:
    assert scheduler.worker is not None
    sys.stdout.write(json.dumps(scheduler.worker.outcomes) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
