"""Measure small turns beside large calls: how long does an append of 160 bytes take while large ones are under way?

Small turns begin at fixed moments, and their time counts from the moment at which they are due. Beside them run, one at
a time, appends of 1 MiB, or reads of 10,000 messages. `link` is a link of 200 Mbit/s in front of the server. Both sides
run the same scripts: over the lane, and over a pool of redis-py. Sides alternate in each round.
"""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import sys
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

from benchmarks.append_cost import TEXT
from benchmarks.link import link_to
from benchmarks.measuring import Server, chosen_server, surroundings, table
from benchmarks.running import load, options, over_lane, over_redis_py, ratio, run, show_results, verdict
from redismem import Memory, Settings
from redismem.session.session import Session

LINK_MBITS = 200
SMALL = {"role": "user", "content": TEXT}
LARGE = {"role": "user", "content": "x" * (1024 * 1024 - 64)}
LONG_WINDOW_COUNT = 9_000
EVERY_S = 0.005
POOL = 128
MOST_RATIO = 1.5
LARGE_CALLS = ("nothing", "appends of 1 MiB", "reads of 10,000 messages")


async def _prepare(memory: Memory) -> None:
    session = memory.session("long")
    for _ in range(LONG_WINDOW_COUNT // 1_000):
        await session.append(*[SMALL] * 1_000)


def _large_call(memory: Memory, what: str) -> Callable[[], Awaitable[Any]] | None:
    if what == "nothing":
        return None
    if what == "reads of 10,000 messages":
        return memory.session("long").read

    async def append() -> None:
        await memory.session("large").append(LARGE)
        await memory.session("large").clear()

    return append


async def _repeat(call: Callable[[], Awaitable[Any]], stop: asyncio.Event) -> None:
    """Call until `stop`. A cancellation could be lost: wait_for of Python 3.11, as redis-py uses it, may swallow it."""
    while not stop.is_set():
        await call()


async def _turn(session: Session, due_s: float) -> float:
    """Append and read, and return the ms from the moment at which it was due."""
    loop = asyncio.get_running_loop()
    await session.append_and_read(SMALL)
    return (loop.time() - due_s) * 1000


async def _latencies(memory: Memory, what: str, count: int) -> list[float]:
    loop = asyncio.get_running_loop()
    sessions = [memory.session(memory.new_session_id()) for _ in range(64)]
    large = _large_call(memory, what)
    stop, begun_s = asyncio.Event(), loop.time()
    beside = None if large is None else loop.create_task(_repeat(large, stop))
    turns = []
    try:
        for number in range(count):
            due_s = begun_s + number * EVERY_S
            await asyncio.sleep(max(0, due_s - loop.time()))
            turns.append(loop.create_task(_turn(sessions[number % len(sessions)], due_s)))
        return await asyncio.gather(*turns)
    finally:
        stop.set()
        if beside is not None:
            await beside


def _percentile(values: list[float], share: float) -> float:
    return sorted(values)[int(share * (len(values) - 1))]


async def measure(url: str, name: str, rounds: int, count: int) -> dict[str, Any]:
    """Return the p50 and p99 in ms of each side in each round, by what runs beside."""
    settings = Settings(threshold=10_000, max_window_count=10_000, deadline_s=60, reply_timeout_s=30)
    lane, pool = over_lane(url, name, settings), over_redis_py(url, name, POOL)
    found: dict[str, dict[str, list[tuple[float, float]]]] = {what: {"lane": [], "pool": []} for what in LARGE_CALLS}
    async with lane, pool:
        await _prepare(lane)
        for number in range(rounds + 1):
            for what in LARGE_CALLS:
                for side, memory in random.sample([("lane", lane), ("pool", pool)], 2):
                    latencies = await _latencies(memory, what, count)
                    figures = (_percentile(latencies, 0.5), _percentile(latencies, 0.99))
                    found[what][side].extend([figures] if number else [])  # the first round warms up
            print(f"{name}: round {number} of {rounds}", file=sys.stderr, flush=True)
    return found


def report(results: dict[str, Any]) -> str:
    rows, lines = [], []
    for way, result in results.items():
        for what, sides in result.items():
            p99s = {side: [p99 for _, p99 in figures] for side, figures in sides.items()}
            cells = [f"{statistics.median(column):.1f}" for side in sides for column in zip(*sides[side], strict=True)]
            rows.append([f"{way}, beside {what}", *cells])
            label = f"{way}, beside {what}: p99, lane / pool"
            lines.append(verdict(label, ratio(p99s["lane"], p99s["pool"]), MOST_RATIO, at_most=True))
    head = ("ms", "lane p50", "lane p99", "pool p50", "pool p99")
    return "\n".join([table(head, rows), "", *lines])


def main() -> None:
    asked = options("benchmarks.beside", __doc__ or "", rounds=4).parse_args()
    name = f"bench-{os.getpid()}"
    rounds, count = (1, 60) if asked.quick else (asked.rounds, 150)
    with chosen_server(name) as server:
        around = surroundings(server, "benchmarks.beside") | {"load": load()}
        with link_to(_port(server), LINK_MBITS) as port:
            ways = {"link": f"redis://127.0.0.1:{port}/0", "loopback": server.url}
            results = {way: run(measure(url, f"{name}-{way}", rounds, count)) for way, url in ways.items()}
    show_results(around, {"results": results}, report(results), asked.json)


def _port(server: Server) -> int:
    return urlsplit(server.url).port or 6379


if __name__ == "__main__":
    main()
