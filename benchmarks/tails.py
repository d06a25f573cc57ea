"""Measure the tail latency of turns in an open loop: turns begin when they are due, however slow earlier ones are.

First, each number of processes runs turns as fast as it can, 64 at a time in each process: that is its capacity. Then
the same turns become due at random moments, at half, at four fifths and at 1.2 times that capacity. The time of a turn
counts from the moment at which it was due, not from its start, so a stall shows in all turns that it delays. A turn
that fails, or is answered later than a second after it was due, is not good; above the capacity, that is the result. A
turn is an `append_and_read` and an `append` of 160 bytes each; a session has eight. With fewer cores than processes and
Redis, the clients themselves are the limit.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
from collections import Counter
from typing import Any

from benchmarks.append_cost import TEXT
from benchmarks.measuring import Server, chosen_server, surroundings, table
from benchmarks.running import load, options, over_lane, run, show_results, verdict
from redismem import Memory
from redismem.cli.bench.offering import closed_loop, open_loop

PROCESSES = (1, 2) if (os.cpu_count() or 1) < 4 else (2, 4)
SHARES = (0.5, 0.8, 1.2)
CALLERS, SESSION_TURNS, SESSIONS_COUNT = 64, 8, 1_024
GOOD_MS = 1_000
MOST_P99_MS = 10.0
"""At half of the capacity."""


class Turns:
    """Turns on many sessions, each replaced by a new one after eight turns."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._counts: Counter[int] = Counter()
        self._sessions: dict[int, str] = {}

    async def turn(self, number: int) -> None:
        place = number % SESSIONS_COUNT
        if self._counts[place] % SESSION_TURNS == 0:
            self._sessions[place] = self._memory.new_session_id()
        self._counts[place] += 1
        session = self._memory.session(self._sessions[place])
        await session.append_and_read({"role": "user", "content": TEXT})
        await session.append({"role": "assistant", "content": TEXT})


async def client(url: str, namespace: str, per_s: float, seconds: float) -> None:
    """Print the turns per second as fast as possible, or the times of an open loop if `per_s` is not 0."""
    async with over_lane(url, namespace) as memory:
        turn = Turns(memory).turn
        await closed_loop(turn, CALLERS, 0.2)  # warms up
        if not per_s:
            print(json.dumps((await closed_loop(turn, CALLERS, seconds)).turns_per_s))
            return
        offered = await open_loop(turn, per_s, seconds)
        print(json.dumps({"ms": list(offered.took_ms), "failures": offered.failures}))


def clients(url: str, namespace: str, count: int, per_s: float, seconds: float) -> list[Any]:
    """Run this number of processes at once, with `per_s` turns in each, and return what they print."""
    words = [sys.executable, "-m", "benchmarks.tails", "--client", url, namespace, str(per_s), str(seconds)]
    running = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    return [json.loads(process.communicate()[0]) for process in running]


def offer(server: Server, name: str, count: int, per_s: float, seconds: float) -> dict[str, float]:
    """Return the figures of one open loop over all processes: percentiles in ms, and the share of good turns."""
    found = clients(server.url, name, count, per_s / count, seconds)
    took = sorted(ms for each in found for ms in each["ms"])
    failed_count = sum(sum(each["failures"].values()) for each in found)
    cuts = {f"p{part * 100:g}": took[int(part * (len(took) - 1))] if took else 0.0 for part in (0.5, 0.99, 0.999)}
    good_count = sum(ms <= GOOD_MS for ms in took)
    return cuts | {"good": good_count / max(1, len(took) + failed_count), "failed": failed_count}


def measure(server: Server, name: str, rounds: int, seconds: float) -> list[dict[str, Any]]:
    rows = []
    for count in PROCESSES:
        capacities, offered = [], dict[float, list[dict[str, float]]]()
        for number in range(rounds):
            capacities.append(sum(clients(server.url, name, count, 0, seconds)))
            for share in random.sample(SHARES, len(SHARES)):
                what = (
                    f"{count} processes, round {number + 1} of {rounds}: {share:.0%} of {capacities[-1]:,.0f} turns/s"
                )
                print(what, file=sys.stderr, flush=True)
                figures = offer(server, name, count, capacities[-1] * share, seconds)
                offered.setdefault(share, []).append(figures)
        for share in SHARES:
            figures = {key: statistics.median(one[key] for one in offered[share]) for key in offered[share][0]}
            rows.append({"processes": count, "share": share, "per_s": statistics.median(capacities), **figures})
    return rows


def report(result: dict[str, Any]) -> str:
    rows = [
        [f"{row['processes']} processes, {row['share']:.0%} of {row['per_s']:,.0f} turns/s"]
        + [f"{row[name]:.1f}" for name in ("p50", "p99", "p99.9")]
        + [f"{row['good']:.1%}", f"{row['failed']:,.0f}"]
        for row in result["rows"]
    ]
    lines = [table(("open loop, ms", "p50", "p99", "p99.9", "good", "failed"), rows), ""]
    for row in result["rows"]:
        if row["share"] == SHARES[0]:
            label = f"{row['processes']} processes, {row['share']:.0%} of the capacity: p99"
            lines.append(verdict(label, row["p99"], MOST_P99_MS, at_most=True, unit="ms"))
    return "\n".join(lines)


def main() -> None:
    if sys.argv[1:2] == ["--client"]:
        url, namespace, per_s, seconds = sys.argv[2:]
        run(client(url, namespace, float(per_s), float(seconds)))
        return
    asked = options("benchmarks.tails", __doc__ or "", rounds=3).parse_args()
    name = f"bench-{os.getpid()}"
    with chosen_server(name) as server:
        around = surroundings(server, "benchmarks.tails") | {"load": load()}
        result = {"rows": measure(server, name, *((1, 0.5) if asked.quick else (asked.rounds, 3.0)))}
    show_results(around, result, report(result), asked.json)


if __name__ == "__main__":
    main()
