"""Measure the tail latency of turns in an open loop: turns begin when they are due, however slow earlier ones are.

First, each number of processes runs turns as fast as it can, 64 at a time in each process: that is its capacity. Then
turns become due at random moments, at half and at four fifths of that capacity, and the time of a turn counts from the
moment at which it was due, not from its start. So a stall shows in all turns that it delays. A turn is an
`append_and_read` and an `append` of 160 bytes each. With fewer cores than processes, the clients themselves are the
limit.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
from itertools import chain
from typing import Any

from benchmarks.append_cost import TEXT
from benchmarks.measuring import Server, chosen_server, surroundings, table
from benchmarks.running import load, options, over_lane, run, show_results, verdict
from redismem import Memory

PROCESSES = (2, 4)
SHARES = (0.5, 0.8)
CALLERS, SESSION_TURNS = 64, 8
MOST_P99_MS = 10.0
"""At half of the capacity."""


class Turns:
    """Turns on sessions that have eight turns each, for one caller."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._count = 0

    async def turn(self) -> None:
        if self._count % SESSION_TURNS == 0:
            self._session = self._memory.session(self._memory.new_session_id())
        self._count += 1
        session = self._session
        await session.append_and_read({"role": "user", "content": TEXT})
        await session.append({"role": "assistant", "content": TEXT})


async def closed(memory: Memory, seconds: float) -> float:
    """Return the turns per second of this process."""
    loop = asyncio.get_running_loop()
    until_s, count = loop.time() + seconds, 0

    async def call() -> None:
        nonlocal count
        turns = Turns(memory)
        while loop.time() < until_s:
            await turns.turn()
            count += 1

    await asyncio.gather(*(call() for _ in range(CALLERS)))
    return count / seconds


async def open_loop(memory: Memory, per_s: float, seconds: float) -> list[float]:
    """Return the ms of each turn from the moment at which it was due."""
    loop = asyncio.get_running_loop()
    took: list[float] = []

    async def turn(turns: Turns, due_s: float) -> None:
        await turns.turn()
        took.append((loop.time() - due_s) * 1000)

    begun_s = due_s = loop.time()
    tasks = []
    while (due_s := due_s + random.expovariate(per_s)) < begun_s + seconds:
        if (wait_s := due_s - loop.time()) > 0:
            await asyncio.sleep(wait_s)
        tasks.append(loop.create_task(turn(Turns(memory), due_s)))
    await asyncio.gather(*tasks)
    return took


async def client(url: str, namespace: str, per_s: float, seconds: float) -> None:
    """Print the turns per second as fast as possible, or the times of an open loop if `per_s` is not 0."""
    async with over_lane(url, namespace) as memory:
        await closed(memory, 0.2)  # warms up
        print(json.dumps(await open_loop(memory, per_s, seconds) if per_s else await closed(memory, seconds)))


def clients(url: str, namespace: str, count: int, per_s: float, seconds: float) -> list[Any]:
    """Run this number of processes at once, with `per_s` turns in each, and return what they print."""
    words = [sys.executable, "-m", "benchmarks.tails", "--client", url, namespace, str(per_s), str(seconds)]
    running = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    return [json.loads(process.communicate()[0]) for process in running]


def measure(server: Server, name: str, rounds: int, seconds: float) -> list[dict[str, Any]]:
    found = []
    for count in PROCESSES:
        rows: dict[float, list[list[float]]] = {share: [] for share in SHARES}
        capacities = []
        for _ in range(rounds):
            capacities.append(sum(clients(server.url, name, count, 0, seconds)))
            for share in random.sample(SHARES, len(SHARES)):
                per_s = capacities[-1] * share / count
                took = sorted(chain.from_iterable(clients(server.url, name, count, per_s, seconds)))
                rows[share].append([took[int(part * (len(took) - 1))] for part in (0.5, 0.99, 0.999)])
        for share, percentiles in rows.items():
            medians = [statistics.median(column) for column in zip(*percentiles, strict=True)]
            found.append({"processes": count, "share": share, "per_s": statistics.median(capacities), "ms": medians})
    return found


def report(result: dict[str, Any]) -> str:
    rows = [
        [f"{row['processes']} processes, {row['share']:.0%} of {row['per_s']:,.0f} turns/s"]
        + [f"{ms:.1f}" for ms in row["ms"]]
        for row in result["rows"]
    ]
    lines = [table(("open loop, ms", "p50", "p99", "p99.9"), rows), ""]
    for row in result["rows"]:
        if row["share"] == SHARES[0]:
            label = f"{row['processes']} processes, {row['share']:.0%} of the capacity: p99"
            lines.append(verdict(label, row["ms"][1], MOST_P99_MS, at_most=True, unit="ms"))
    return "\n".join(lines)


def main() -> None:
    if sys.argv[1:2] == ["--client"]:
        url, namespace, per_s, seconds = sys.argv[2:]
        run(client(url, namespace, float(per_s), float(seconds)))
        return
    asked = options("benchmarks.tails", __doc__ or "", rounds=5).parse_args()
    name = f"bench-{os.getpid()}"
    with chosen_server(name) as server:
        around = surroundings(server, "benchmarks.tails") | {"load": load()}
        result = {"rows": measure(server, name, *((1, 0.5) if asked.quick else (asked.rounds, 4.0)))}
    show_results(around, result, report(result), asked.json)


if __name__ == "__main__":
    main()
