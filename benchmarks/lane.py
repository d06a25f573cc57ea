"""Measure the lane's overhead over Redis, for one append_and_read with its context decoded into dicts.

64 at once: the CPU time of this process and the calls per second, against the same commands, packed in advance and
blasted over one socket. Both make the same calls on new sessions: 16 on each, with windows of 1 to 16.
One at a time: the time of a call, against one GET of redis-py's asyncio client, alternating call by call.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import time
from typing import Any

import hiredis
import redis.asyncio

from benchmarks.blast import Blaster
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
from redismem import Memory
from redismem.protocol.session.calls import SessionCalls

CONCURRENCY = 64
CALLS_A_SESSION = 16
USER = {"role": "user", "content": "u" * 160}
MOST_CLIENT_US, LEAST_RATE_RATIO, MOST_LATENCY_RATIO = 30, 0.85, 1.1
_WARMING = 64


def _sessions(prefix: str, sessions_count: int) -> list[list[str]]:
    """Return session names for each of the 64 callers."""
    return [[f"{prefix}-{caller}-{number}" for number in range(sessions_count)] for caller in range(CONCURRENCY)]


async def _call(memory: Memory, session_id: str) -> None:
    context = await memory.session(session_id).append_and_read(USER)
    context.to_openai()


async def _lane(memory: Memory, sessions: list[list[str]]) -> None:
    async def caller(mine: list[str]) -> None:
        for session_id in mine:
            for _ in range(CALLS_A_SESSION):
                await _call(memory, session_id)

    await asyncio.gather(*map(caller, sessions))


def _packed(memory: Memory, sessions: list[list[str]]) -> bytes:
    """Pack the same calls, in the order in which 64 callers make them."""
    packed: list[bytes] = []
    for at_once in zip(*sessions, strict=True):
        calls = [SessionCalls(memory.store.keys.session(session_id), memory.settings) for session_id in at_once]
        for _ in range(CALLS_A_SESSION):
            for one in calls:
                commands = (("MULTI",), *one.append_and_read([USER]).commands, ("EXEC",))
                packed.extend(map(hiredis.pack_command, commands))  # type: ignore[arg-type]
    return b"".join(packed)


def _figures(server: Server, begun: tuple[float, float, float], calls_count: int) -> dict[str, float]:
    client_s, wall_s = time.process_time() - begun[0], time.perf_counter() - begun[1]
    server_s = server.cpu_s() - begun[2]
    return {
        "calls_per_s": calls_count / wall_s,
        "client_us": client_s / calls_count * 1e6,
        "server_us": server_s / calls_count * 1e6,
        "server_share": server_s / wall_s,
    }


def _begin(server: Server) -> tuple[float, float, float]:
    collect_garbage()
    server_s = server.cpu_s()
    return time.process_time(), time.perf_counter(), server_s


async def saturate(server: Server, name: str, rounds: int, sessions_count: int) -> dict[str, Any]:
    """Measure lane and blast alternately; the order changes in each round."""
    memory, blaster = over_lane(server.url, name), Blaster(server)
    calls_count = CONCURRENCY * CALLS_A_SESSION * sessions_count
    found: dict[str, list[dict[str, float]]] = {"lane": [], "blast": []}
    await _lane(memory, _sessions("warm", 1))
    errors = blaster.errors_count()
    for number in range(rounds):
        for side in ("lane", "blast") if number % 2 else ("blast", "lane"):
            sessions = _sessions(f"{side}{number}", sessions_count)
            if side == "lane":
                begun = _begin(server)
                await _lane(memory, sessions)
            else:
                content = _packed(memory, sessions)
                begun = _begin(server)
                blaster.send(content)
            found[side].append(_figures(server, begun, calls_count))
    if blaster.errors_count() != errors:
        raise RuntimeError("the server refused some of the calls")
    blaster.close()
    await memory.aclose()
    medians = {
        side: {figure: statistics.median(row[figure] for row in rows) for figure in rows[0]}
        for side, rows in found.items()
    }
    medians["lane"]["least_client_us"] = min(row["client_us"] for row in found["lane"])
    rates = [[row["calls_per_s"] for row in found[side]] for side in ("lane", "blast")]
    return {**medians, "rate_ratio": ratio(*rates)}


async def alone(server: Server, name: str, calls_count: int) -> dict[str, float]:
    """Return the median microseconds of one call at a time."""
    memory, client = over_lane(server.url, name), redis.asyncio.Redis.from_url(server.url)
    key = f"{name}:get"
    await client.set(key, "g" * 160, ex=600)
    took: dict[str, list[int]] = {"append_and_read_us": [], "get_us": []}
    collect_garbage()
    for number in range(-_WARMING, calls_count):
        begun = time.perf_counter_ns()
        await client.get(key)
        between = time.perf_counter_ns()
        await _call(memory, f"alone{number // CALLS_A_SESSION}")
        ended = time.perf_counter_ns()
        if number >= 0:
            took["get_us"].append(between - begun)
            took["append_and_read_us"].append(ended - between)
    await client.aclose()
    await memory.aclose()
    medians = {what: statistics.median(times) / 1000 for what, times in took.items()}
    return {**medians, "latency_ratio": medians["append_and_read_us"] / medians["get_us"]}


def report(result: dict[str, Any]) -> str:
    busy, lone = result["concurrent_64"], result["concurrent_1"]
    rows = [
        (
            side,
            *(busy[side][figure] for figure in ("calls_per_s", "client_us", "server_us")),
            f"{busy[side]['server_share']:.0%}",
        )
        for side in ("lane", "blast")
    ]
    head = ("append_and_read, 64 at once", "calls/s", "client CPU µs", "server CPU µs", "Redis' core busy")
    rate = verdict("lane / blast", busy["rate_ratio"], LEAST_RATE_RATIO, at_most=False)
    client = verdict("client CPU", busy["lane"]["client_us"], MOST_CLIENT_US, at_most=True, unit="µs")
    client += f"; in the best round {busy['lane']['least_client_us']:.1f} µs"
    latency = verdict("append_and_read / redis-py GET", lone["latency_ratio"], MOST_LATENCY_RATIO, at_most=True)
    both = f"{lone['append_and_read_us']:.0f} µs and {lone['get_us']:.0f} µs"
    return f"{table(head, rows)}\n{rate}\n{client}\n\none at a time: {both} (medians)\n{latency}"


async def measure(server: Server, asked: argparse.Namespace) -> dict[str, Any]:
    name = f"bench-lane-{os.getpid()}"
    rounds, sessions_count, calls_count = (2, 1, 200) if asked.quick else (asked.rounds, 8, 4000)
    return {
        "concurrent_64": await saturate(server, f"{name}-64", rounds, sessions_count),
        "concurrent_1": await alone(server, f"{name}-1", calls_count),
    }


def main() -> None:
    asked = options("benchmarks.lane", __doc__ or "", rounds=21).parse_args()
    with one_server() as server:
        around = surroundings(server, "benchmarks.lane") | {"cores": pin_cores(server), "load": f"before {load()}"}
        result = run(measure(server, asked))
    around["load"] += f", after {load()}"
    show_results(around, result, report(result), asked.json)


if __name__ == "__main__":
    main()
