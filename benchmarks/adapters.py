"""Turns per second of the adapters of frameworks and of the frameworks' own Redis stores, in one process and one run.

A turn adds a user's item, reads the history, and adds the answer, 160 bytes each. One new session of 20 turns runs
alone, then 64 at once. Redis writes its log once a second. All sides share one event loop (uvloop if installed) and one
redis-server; they alternate in rounds, in a new order in each round. A ratio is the median of the ratios per round.
Frameworks that are not installed are left out: `pip install -e '.[peers]'`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import time
from typing import Any

from benchmarks.adapter_sides import PAIRS, Side
from benchmarks.measuring import Server, surroundings, table
from benchmarks.running import collect_garbage, load, one_server, options, pin_cores, ratio, run, show_results

AT_ONCE = (1, 64)
TURNS = 20
HEAD = ("turns/s", "client CPU µs", "server CPU µs")


async def _measure_side(server: Server, side: Side, at_once: int, turns: int, prefix: str) -> dict[str, float]:
    collect_garbage()
    server_s, client_s, clock = server.cpu_s(), time.process_time(), time.perf_counter()
    await asyncio.gather(*(side.talk(f"{prefix}-{number}", turns) for number in range(at_once)))
    wall_s, client_s = time.perf_counter() - clock, time.process_time() - client_s
    count = at_once * turns
    return {
        "turns_per_s": count / wall_s,
        "client_us": client_s / count * 1e6,
        "server_us": (server.cpu_s() - server_s) / count * 1e6,
    }


async def measure(server: Server, asked: argparse.Namespace) -> dict[str, Any]:
    turns, rounds = (2, 1) if asked.quick else (TURNS, asked.rounds)
    server.client.config_set("appendonly", "yes")
    sides: dict[str, Side] = {}
    missing = []
    for make in {make for pair in PAIRS for make in pair}:
        try:
            sides[make.label] = await make.open(server.url)
        except ModuleNotFoundError as absent:
            missing.append(f"{make.label}: not measured, {absent.name} is not installed")
    found: dict[str, dict[str, list[dict[str, float]]]] = {}
    for at_once in AT_ONCE:
        for number in range(-1, rounds):
            for side in random.sample(list(sides.values()), len(sides)):
                # The first round only opens connections and loads scripts.
                prefix = f"{os.getpid()}-{at_once}-{number}"
                figures = await _measure_side(server, side, at_once, turns if number >= 0 else 2, prefix)
                if number >= 0:
                    found.setdefault(f"{at_once} at once", {}).setdefault(side.label, []).append(figures)
    for side in sides.values():
        await side.aclose()
    return {"found": found, "missing": missing, "rounds": rounds, "turns": turns}


def report(result: dict[str, Any]) -> str:
    lines = []
    for title, sides in result["found"].items():
        rows = []
        for label, rounds in sorted(sides.items()):
            medians = (sorted(each[figure] for each in rounds)[len(rounds) // 2] for figure in rounds[0])
            rows.append((label, *medians))
        lines += [table((f"{title}, a turn", *HEAD), rows), ""]
        for ours, theirs in PAIRS:
            if {ours.label, theirs.label} <= sides.keys():
                first, second = sides[ours.label], sides[theirs.label]
                faster = ratio([each["turns_per_s"] for each in first], [each["turns_per_s"] for each in second])
                leaner = ratio([each["client_us"] for each in second], [each["client_us"] for each in first])
                lines.append(
                    f"{title}, {ours.label} / {theirs.label}: turns/s x {faster:.2f}, client CPU x {leaner:.2f}"
                )
        lines.append("")
    return "\n".join([*lines, *result["missing"]])


def main() -> None:
    asked = options("benchmarks.adapters", __doc__ or "", rounds=5).parse_args()
    with one_server() as server:
        around = surroundings(server, "benchmarks.adapters") | {"cores": pin_cores(server), "load": f"before {load()}"}
        result = run(measure(server, asked))
    around["load"] += f", after {load()}"
    show_results(around, result, report(result), asked.json)


if __name__ == "__main__":
    main()
