"""Turns per second of the adapters of frameworks and of the frameworks' own Redis stores, in one process and one run.

A turn adds a user's item, reads the history, and adds the answer, 160 bytes each. 64 new sessions of 20 turns run at
once. Redis writes its log once a second. All sides share one event loop (uvloop if installed) and one redis-server;
they alternate in rounds, in a new order in each round. A ratio is the median of the ratios per round. Frameworks that
are not installed are left out: `pip install -e '.[peers]'`.
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

SESSIONS = 64
TURNS = 20
HEAD = ("64 sessions at once, a turn", "turns/s", "client CPU µs", "server CPU µs")


async def _measure_side(server: Server, side: Side, turns: int, prefix: str) -> dict[str, float]:
    collect_garbage()
    server_s, client_s, clock = server.cpu_s(), time.process_time(), time.perf_counter()
    await asyncio.gather(*(side.talk(f"{prefix}-{number}", turns) for number in range(SESSIONS)))
    wall_s, client_s = time.perf_counter() - clock, time.process_time() - client_s
    count = SESSIONS * turns
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
    found: dict[str, list[dict[str, float]]] = {label: [] for label in sides}
    for number in range(-1, rounds):
        for side in random.sample(list(sides.values()), len(sides)):
            # The first round only opens connections and loads scripts.
            figures = await _measure_side(server, side, turns if number >= 0 else 2, f"{os.getpid()}-{number + 1}")
            if number >= 0:
                found[side.label].append(figures)
    for side in sides.values():
        await side.aclose()
    return {"sides": found, "missing": missing, "rounds": rounds, "turns": turns}


def _ratio(result: dict[str, Any], ours: str, theirs: str, figure: str) -> tuple[float, float]:
    """Return the medians of both sides' figure."""
    first, second = ([each[figure] for each in result["sides"][label]] for label in (ours, theirs))
    return ratio(first, second), ratio(second, first)


def report(result: dict[str, Any]) -> str:
    rows = []
    for label, rounds in sorted(result["sides"].items()):
        medians = (sorted(each[figure] for each in rounds)[len(rounds) // 2] for figure in rounds[0])
        rows.append((label, *medians))
    lines = [table(HEAD, rows), ""]
    for ours, theirs in PAIRS:
        if {ours.label, theirs.label} <= result["sides"].keys():
            faster, _ = _ratio(result, ours.label, theirs.label, "turns_per_s")
            _, leaner = _ratio(result, ours.label, theirs.label, "client_us")
            lines.append(f"{ours.label} / {theirs.label}: turns/s x {faster:.2f}, client CPU x {leaner:.2f}")
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
