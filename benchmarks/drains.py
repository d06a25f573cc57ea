"""Measure the workers, and their cost for the path of a turn.

Summaries: one worker summarises sessions with 11 messages in the window. The model answers at once or after 500 ms, at
two concurrencies. Redis' CPU per summary is the CPU of the first case, divided by the number of summaries.
Evictions: the oldest of twice as many sessions as the limit allows, with and without an `on_evict`.
Idle: one scheduler ticks once a second over 64 shards or more, and finds nothing, for 12 s, or with `--long` for a
minute, which has every kind of tick. The figures are the CPU of Redis, less that of an idle server, and the CPU of the
scheduler's process per tick.
Woken: the time from an append that overflows to its readable summary, in one process, with an hour between two ticks.
Appends: their p99 from sixteen callers that pause between appends, beside each kind of workers in turn, which write
extractive summaries of the sessions: none, `redismem worker` at the priority of the turns and at its own lower one, and
workers in the process of the turns, which write the summaries themselves or, with `workers=True`, in a child process.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any

from benchmarks.measuring import Server, surroundings, table
from benchmarks.running import (
    collect_garbage,
    load,
    one_server,
    options,
    over_lane,
    pin_cores,
    ratio,
    run,
    show_results,
    verdict,
)
from redismem import Memory, Message, Settings
from redismem.context.context import Context
from redismem.models import Draft
from redismem.workers.eviction import Eviction
from redismem.workers.scheduler import Scheduler
from redismem.workers.summaries import Worker

USER = {"role": "user", "content": "u" * 160}
CALLERS = 16
PAUSE_S = 0.01
APPENDS_A_SESSION = 24
BESIDE = (
    *("nothing", "redismem worker --nice 0", "redismem worker"),
    *("workers in this process", "workers=True in this process"),
)
OFTEN = Settings(tick_s=0.1)
SHARDS = (64, 1_024, 4_096)
MOST_P99_RATIO, MOST_IDLE_SHARE, MOST_WOKEN_MS = 1.3, 1.0, 100.0


class Model:
    """A strategy that takes time but no CPU."""

    def __init__(self, latency_s: float) -> None:
        self._latency_s = latency_s

    async def compact(self, messages: Sequence[Message], previous: str | None) -> Draft:
        del messages, previous
        if self._latency_s:
            await asyncio.sleep(self._latency_s)
        return Draft("s" * 400, 0, 0, "none")


async def fill(memory: Memory, sessions_count: int, messages_count: int) -> None:
    async def append(first: int) -> None:
        for number in range(first, sessions_count, 64):
            await memory.session(f"s-{number}").append(*[USER] * messages_count)

    await asyncio.gather(*(append(first) for first in range(64)))


async def summaries(
    server: Server, name: str, latency_s: float, concurrency: int, sessions_count: int
) -> tuple[float, float]:
    """Return the sessions that one worker summarises per second, and the µs of Redis' CPU per session."""
    memory = over_lane(server.url, f"{name}-{latency_s}-{concurrency}")
    await fill(memory, sessions_count, 11)
    collect_garbage()
    began, used_s = time.perf_counter(), server.cpu_s()
    drained = await Worker(memory.store, Model(latency_s), concurrency=concurrency).drain()
    took_s, used_s = time.perf_counter() - began, server.cpu_s() - used_s
    assert drained == sessions_count
    await memory.aclose()
    return drained / took_s, used_s / drained * 1e6


async def evictions(server: Server, name: str, handed_over: bool, sessions_count: int) -> float:
    """Return the sessions that one scheduler evicts per second."""

    async def on_evict(session_id: str, context: Context) -> None: ...

    memory = over_lane(server.url, f"{name}-{handed_over}", Settings(max_sessions=sessions_count))
    await fill(memory, 2 * sessions_count, 11)
    collect_garbage()
    began = time.perf_counter()
    evicted = await Eviction(memory.store, on_evict if handed_over else None).enforce()
    took_s = time.perf_counter() - began
    assert evicted == sessions_count
    await memory.aclose()
    return evicted / took_s


async def idle(server: Server, name: str, first_s: float, seconds: float, shards: int) -> tuple[float, float]:
    """Return the cost of an idle scheduler: percent of a core of Redis, and ms of its own process per tick.

    The first tick polls everything once, so the measurement begins `first_s` later.
    """
    memory = over_lane(server.url, f"{name}-{shards}", Settings(shards=shards))
    await fill(memory, 500, 3)
    scheduler = Scheduler(memory.store, Model(0))
    await scheduler.start()
    await asyncio.sleep(first_s)
    began_s = time.process_time()
    ticking = await asyncio.to_thread(server.idle_cpu, seconds)
    own_ms = (time.process_time() - began_s) / seconds * 1000
    await scheduler.stop()
    without = await asyncio.to_thread(server.idle_cpu, first_s)
    await memory.aclose()
    return (ticking - without) * 100, own_ms


async def woken(server: Server, name: str, times: int) -> list[float]:
    """Return the ms from an append that overflows to its readable summary, polled about every millisecond."""
    settings = Settings(tick_s=3600)
    workers = partial(Scheduler, strategy=Model(0))
    took = []
    async with Memory.connect(server.url, namespace=name, settings=settings, workers=workers) as memory:
        for number in range(times):
            session = memory.session(f"s-{number}")
            await session.append(*[USER] * 10)
            began = time.perf_counter()
            await session.append(USER)
            while not (await session.read()).summaries:  # noqa: ASYNC110 (it could be another process)
                await asyncio.sleep(0.001)
            took.append((time.perf_counter() - began) * 1000)
    return took


async def append_times(memory: Memory, turn: int, sessions_count: int) -> list[float]:
    """Return the microseconds of each append of a turn."""
    took = []

    async def call(caller: int) -> None:
        for number in range(sessions_count):
            session = memory.session(f"t{turn}-{caller}-{number}")
            for _ in range(APPENDS_A_SESSION):
                began = time.perf_counter_ns()
                await session.append(USER)
                took.append((time.perf_counter_ns() - began) / 1000)
                await asyncio.sleep(PAUSE_S)

    collect_garbage()
    await asyncio.gather(*(call(caller) for caller in range(CALLERS)))
    return took


def p99(took: Sequence[float]) -> float:
    return statistics.quantiles(took, n=100)[98]


@contextlib.asynccontextmanager
async def beside(url: str, namespace: str, what: str) -> AsyncIterator[Memory]:
    """Yield a memory, with these workers at work on its sessions."""
    workers: Any = False
    if what.endswith("this process"):
        workers = partial(Scheduler, in_child=what.startswith("workers=True"))
    running = None
    if what.startswith("redismem worker"):
        nice = "0" if what.endswith("0") else "10"
        words = [sys.executable, "-m", "benchmarks.drains", "--worker", url, namespace, nice]
        running = subprocess.Popen(words, stdin=subprocess.PIPE)  # noqa: ASYNC220 (nothing else runs yet)
    try:
        async with Memory.connect(url, namespace=namespace, settings=OFTEN, workers=workers) as memory:
            yield memory
    finally:
        if running is not None:
            running.communicate()


async def appends(server: Server, name: str, rounds: int, sessions_count: int) -> dict[str, dict[str, float]]:
    """Return p50 and p99 of appends in µs beside each kind of workers, and the ratio to the p99 beside none."""
    found: dict[str, list[list[float]]] = {what: [] for what in BESIDE}
    async with contextlib.AsyncExitStack() as stack:
        memories = {
            what: await stack.enter_async_context(beside(server.url, f"{name}-{number}", what))
            for number, what in enumerate(BESIDE)
        }
        for turn in range(-1, rounds):
            step(f"appends beside workers, round {turn + 1} of {rounds}")
            for what in random.sample(BESIDE, len(BESIDE)):
                took = await append_times(memories[what], turn, sessions_count)
                if turn >= 0:  # the first turn warms up
                    found[what].append(took)
        for what in BESIDE[1:]:
            context = await memories[what].session(f"t{rounds - 1}-0-0").read()
            assert context.summaries, "the workers worked"
    tails = {what: [p99(took) for took in turns] for what, turns in found.items()}
    return {
        what: {
            "p50_us": statistics.median(map(statistics.median, found[what])),
            "p99_us": statistics.median(tails[what]),
            "ratio": ratio(tails[what], tails[BESIDE[0]]),
        }
        for what in BESIDE
    }


async def work(url: str, namespace: str, nice: str) -> None:
    """Run a worker of `appends` until its standard input ends."""
    os.nice(int(nice))
    memory = over_lane(url, namespace, OFTEN)
    scheduler = Scheduler(memory.store)
    await scheduler.start()
    await asyncio.to_thread(sys.stdin.read)
    await scheduler.stop()
    await memory.aclose()


def report(result: dict[str, Any]) -> str:
    rows = [(what, figure) for what, figure in result["per_s"].items()]
    wake, shares = result["woken_ms"], result["idle_percent"]
    times = [(what, f"{found['p50_us']:.0f}", f"{found['p99_us']:.0f}") for what, found in result["appends"].items()]
    return "\n".join(
        [
            table(("one worker", "sessions/s"), rows),
            "",
            f"Redis' CPU a summary: {result['summary_server_us']:.0f} µs",
            verdict("Redis' CPU, idle scheduler", shares[0][0], MOST_IDLE_SHARE, at_most=True, unit="%"),
            *(
                f"idle, {shards:,} shards: {percent:.1f} % of a core of Redis, {own_ms:.1f} ms of its process a tick"
                for shards, (percent, own_ms) in zip(SHARDS, shares, strict=True)
            ),
            f"woken by an append: p50 {statistics.median(wake):.1f} ms, of {len(wake)}",
            verdict("the slowest of them", max(wake), MOST_WOKEN_MS, at_most=True, unit="ms"),
            "",
            table(("appends beside", "p50 µs", "p99 µs"), times),
            *(
                verdict(f"p99 beside {what} / beside nothing", found["ratio"], MOST_P99_RATIO, at_most=True)
                for what, found in list(result["appends"].items())[1:]
            ),
        ]
    )


def step(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


async def measure(server: Server, asked: argparse.Namespace) -> dict[str, Any]:
    name = f"bench-drains-{os.getpid()}"
    some, rounds, sessions_count = (200, 2, 1) if asked.quick else (4000, asked.rounds, 6)
    first_s, seconds = (0.5, 1.0) if asked.quick else (3.0, 60.0 if asked.long else 12.0)
    per_s, server_us_of = {}, []
    for latency_s in (0.0, 0.5):
        for concurrency in (16, 256):
            count = some if latency_s == 0 else min(some, 4 * concurrency)
            what = f"summaries, a model of {latency_s * 1000:.0f} ms, concurrency {concurrency}"
            step(what)
            per_s[what], server_us = await summaries(server, f"{name}-s", latency_s, concurrency, count)
            server_us_of.append(server_us)
    for handed_over in (False, True):
        what = "evictions" + (", transcripts handed over" if handed_over else "")
        step(what)
        per_s[what] = await evictions(server, f"{name}-e", handed_over, some)
    idle_percent = []
    for shards in SHARDS:
        step(f"idle, {shards:,} shards, {seconds:.0f} s")
        idle_percent.append(await idle(server, f"{name}-i", first_s, seconds, shards))
    step("woken by an append")
    woken_ms = await woken(server, f"{name}-w", some // 20)
    return {
        "per_s": per_s,
        "summary_server_us": server_us_of[0],
        "idle_percent": idle_percent,
        "woken_ms": woken_ms,
        "appends": await appends(server, f"{name}-a", rounds, sessions_count),
    }


def main() -> None:
    if sys.argv[1:2] == ["--worker"]:
        run(work(*sys.argv[2:]))
        return
    parser = options("benchmarks.drains", __doc__ or "", rounds=3)
    parser.add_argument("--long", action="store_true", help="watch an idle scheduler for a minute")
    asked = parser.parse_args()
    with one_server() as server:
        around = surroundings(server, "benchmarks.drains") | {"cores": pin_cores(server), "load": f"before {load()}"}
        result = run(measure(server, asked))
    around["load"] += f", after {load()}"
    show_results(around, result, report(result), asked.json)


if __name__ == "__main__":
    main()
