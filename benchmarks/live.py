"""Measure turns while they run: how late does a listener get a delta, what does it cost Redis, and how fast is a stop?

Twenty turns say 50 deltas a second each, at fixed moments. A listener over another connection takes the time from the
moment at which a delta is said. The bare side sends the same deltas by PUBLISH and hears them by SUBSCRIBE, over
redis-py: they are in no log, so nobody could join late, resume, or prove who said them. Sides alternate in each round.
"""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import sys
import time
from typing import Any

import redis.asyncio

from benchmarks.measuring import chosen_server, surroundings, table
from benchmarks.running import load, options, ratio, run, show_results, verdict
from redismem import Memory

TURNS_COUNT, DELTAS_COUNT, EVERY_S = 20, 100, 0.02
QUESTION = {"role": "user", "content": "?"}
MOST_RATIO = 2.5
MOST_STOP_MS = 20.0


def _say() -> str:
    return f"{time.perf_counter()} "


def _note(said: str, late_ms: list[float]) -> None:
    now_s = time.perf_counter()
    late_ms.extend((now_s - float(each)) * 1000 for each in said.split())


async def _pace(say: Any, count: int) -> None:
    begun_s = time.perf_counter()
    for number in range(count):
        await asyncio.sleep(max(0, begun_s + number * EVERY_S - time.perf_counter()))
        await say(_say())


async def _turn(writing: Memory, listening: Memory, count: int) -> list[float]:
    session_id = writing.new_session_id()
    late_ms: list[float] = []
    begun = asyncio.Event()

    async def listen() -> None:
        async for _, event in listening.session(session_id).follow():
            begun.set()
            if event["type"] == "text":
                _note(event["delta"], late_ms)

    async with writing.session(session_id).turn(QUESTION, id="turn") as turn:
        listener = asyncio.create_task(listen())
        await begun.wait()
        await _pace(turn.write, count)
    await listener
    return late_ms


async def _bare(writing: Any, listening: Any, count: int) -> list[float]:
    late_ms: list[float] = []
    channel = f"bench:{random.random()}"
    async with listening.pubsub() as pubsub:
        await pubsub.subscribe(channel)

        async def listen() -> None:
            async for message in pubsub.listen():
                if message["type"] == "message":
                    if message["data"] == b"end":
                        return
                    _note(message["data"].decode(), late_ms)

        listener = asyncio.create_task(listen())
        await _pace(lambda said: writing.publish(channel, said), count)
        await writing.publish(channel, "end")
        await listener
    return late_ms


async def _stop_ms(writing: Memory, stopping: Memory) -> float:
    session_id, begun, said_s = writing.new_session_id(), asyncio.Event(), 0.0

    async def body() -> float:
        async with writing.session(session_id).turn(QUESTION, id="turn"):
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                stopped_s = time.perf_counter()
        return stopped_s

    running = asyncio.create_task(body())
    await begun.wait()
    said_s = time.perf_counter()
    await stopping.session(session_id).stop()
    return (await running - said_s) * 1000


def _percentile(values: list[float], share: float) -> float:
    return sorted(values)[int(share * (len(values) - 1))]


async def _side(server: Any, both: Any, one: Any, other: Any, count: int) -> tuple[float, float, float]:
    """Return p50 and p99 in ms, and the server's CPU per delta in µs."""
    before_s = server.cpu_s()
    heard = await asyncio.gather(*(both(one, other, count) for _ in range(TURNS_COUNT)))
    late_ms = [each for of_turn in heard for each in of_turn]
    assert len(late_ms) == TURNS_COUNT * count, "deltas were lost"
    cpu_us = (server.cpu_s() - before_s) / len(late_ms) * 1e6
    return _percentile(late_ms, 0.5), _percentile(late_ms, 0.99), cpu_us


async def measure(server: Any, name: str, rounds: int, count: int) -> dict[str, Any]:
    """Return the figures of each side in each round, and the times of the stops in ms."""
    found: dict[str, list[tuple[float, float, float]]] = {"turns": [], "bare pub/sub": []}
    stops_ms: list[float] = []
    async with (
        Memory.connect(server.url, namespace=name) as writing,
        Memory.connect(server.url, namespace=name) as listening,
        redis.asyncio.Redis.from_url(server.url, max_connections=128) as publishing,
        redis.asyncio.Redis.from_url(server.url, max_connections=128) as subscribing,
    ):
        sides = {"turns": (_turn, writing, listening), "bare pub/sub": (_bare, publishing, subscribing)}
        for number in range(rounds + 1):
            for side in random.sample(list(sides), 2):
                figures = await _side(server, *sides[side], count)
                found[side].extend([figures] if number else [])  # the first round warms up
            stops_ms += [await _stop_ms(writing, listening) for _ in range(20)]
            print(f"round {number} of {rounds}", file=sys.stderr, flush=True)
    return {"sides": found, "stops_ms": stops_ms}


def report(result: dict[str, Any]) -> str:
    rows = [
        [side, *(f"{statistics.median(column):.2f}" for column in zip(*figures, strict=True))]
        for side, figures in result["sides"].items()
    ]
    p99s = {side: [p99 for _, p99, _ in figures] for side, figures in result["sides"].items()}
    late = verdict("p99, turns / bare pub/sub", ratio(p99s["turns"], p99s["bare pub/sub"]), MOST_RATIO, at_most=True)
    stop = verdict("stop, p50", statistics.median(result["stops_ms"]), MOST_STOP_MS, at_most=True, unit="ms")
    return "\n".join([table(("", "p50 ms", "p99 ms", "server CPU µs a delta"), rows), "", late, stop])


def main() -> None:
    asked = options("benchmarks.live", __doc__ or "", rounds=8).parse_args()
    rounds, count = (1, 25) if asked.quick else (asked.rounds, DELTAS_COUNT)
    name = f"bench-{os.getpid()}"
    with chosen_server(name) as server:
        around = surroundings(server, "benchmarks.live") | {"load": load()}
        result = run(measure(server, name, rounds, count))
    show_results(around, result, report(result), asked.json)


if __name__ == "__main__":
    main()
