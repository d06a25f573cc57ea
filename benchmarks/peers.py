"""Turns per second of redismem and of alternative libraries, in one process and one run.

A turn appends a user message, reads the context, and appends an assistant message, 160 bytes each. 64 new sessions of
8 turns run at once. Everything has a time to live. All sides share one event loop (uvloop if installed) and one
redis-server; they alternate in rounds, in a new order in each round. Figures are medians of the rounds; a ratio is the
median of the ratios per round. Libraries that are not installed are left out: `pip install -e '.[peers]'`.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.metadata
import os
import random
import statistics
import time
from pathlib import Path
from typing import Any

from benchmarks import chart
from benchmarks.measuring import Server, surroundings, table
from benchmarks.peer_sides import SIDES, Side
from benchmarks.running import collect_garbage, load, one_server, options, pin_cores, ratio, run, show_results

CONCURRENCY = 64
TURNS_A_SESSION = 8
LANE = "redismem, lane"
FIGURES = ("turns_per_s", "client_us", "server_us", "server_share")
HEAD = (
    "64 sessions at once, a turn",
    "turns/s",
    "client CPU µs",
    "server CPU µs",
    "Redis' core busy",
    "lane to it",
    "at most",
    "its client CPU to the lane's",
)


async def _drive(side: Side, seconds: float, prefix: str) -> int:
    """Return the number of turns made: 64 sessions at once, each started before the time was up, and finished."""
    until = time.perf_counter() + seconds
    made = 0

    async def caller(number: int) -> None:
        nonlocal made
        begun = 0
        while begun == 0 or time.perf_counter() < until:
            await side.talk(f"s{prefix}-{number}-{begun}", TURNS_A_SESSION)
            made += TURNS_A_SESSION
            begun += 1

    await asyncio.gather(*map(caller, range(CONCURRENCY)))
    return made


async def _measured(server: Server, side: Side, seconds: float, prefix: str) -> dict[str, float]:
    collect_garbage()
    server_s, client_s, clock = server.cpu_s(), time.process_time(), time.perf_counter()
    turns = await _drive(side, seconds, prefix)
    wall_s, client_s = time.perf_counter() - clock, time.process_time() - client_s
    server_s = server.cpu_s() - server_s
    return {
        "turns_per_s": turns / wall_s,
        "client_us": client_s / turns * 1e6,
        "server_us": server_s / turns * 1e6,
        "server_share": server_s / wall_s,
    }


async def _open(server: Server, name: str) -> tuple[list[Side], dict[str, str]]:
    """Return the sides that can take part, and the missing packages of the other sides."""
    sides: list[Side] = []
    missing: dict[str, str] = {}
    for make in SIDES:
        try:
            sides.append(await make.open(server.url, name, CONCURRENCY))
        except ModuleNotFoundError as absent:
            missing[make.label] = absent.name or str(absent)
    return sides, missing


async def measure(server: Server, asked: argparse.Namespace) -> dict[str, Any]:
    seconds, rounds = (0.05, 1) if asked.quick else (asked.seconds, asked.rounds)
    sides, missing = await _open(server, f"bench-{os.getpid()}")
    found: dict[str, list[dict[str, float]]] = {side.label: [] for side in sides}
    for number in range(-1, rounds):
        for side in random.sample(sides, len(sides)):
            # The first round only opens connections and loads scripts.
            figures = await _measured(server, side, seconds if number >= 0 else seconds / 4, str(number + 1))
            if number >= 0:
                found[side.label].append(figures)
    for side in sides:
        await side.aclose()
    rows = [_row(side, found) for side in sides]
    return {"rows": rows, "missing": missing, "rounds": rounds, "seconds": seconds}


def _row(side: Side, found: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    figures = {figure: [row[figure] for row in found[side.label]] for figure in FIGURES}
    ours = {figure: [row[figure] for row in found[LANE]] for figure in FIGURES}
    return {
        "label": side.label,
        "does": side.does,
        "versions": {name: importlib.metadata.version(name) for name in side.packages},
        **{figure: statistics.median(values) for figure, values in figures.items()},
        "ratio": ratio(ours["turns_per_s"], figures["turns_per_s"]),
        # On a shared machine, this figure varies less than turns per second.
        "client_ratio": ratio(figures["client_us"], ours["client_us"]),
    }


def report(result: dict[str, Any]) -> str:
    (lane,) = (row for row in result["rows"] if row["label"] == LANE)
    rows = [
        (
            row["label"],
            *(row[figure] for figure in FIGURES[:3]),
            f"{row['server_share']:.0%}",
            f"x {row['ratio']:.2f}",
            f"x {row['ratio'] / lane['server_share']:.2f}",
            f"x {row['client_ratio']:.2f}",
        )
        for row in result["rows"]
    ]
    lines = [table(HEAD, rows), ""]
    for row in result["rows"]:
        versions = " ".join(f"{name} {version}" for name, version in row["versions"].items())
        lines.append(f"{row['label']}: {row['does']}{f' ({versions})' if versions else ''}")
    limit = f"{lane['turns_per_s'] / lane['server_share']:,.0f} turns/s"
    lines += [
        "",
        f"limit of Redis' core: {limit} with these scripts; the lane reaches {lane['server_share']:.0%} of it",
    ]
    lines += [f"{row['label']} BEATS the lane" for row in result["rows"] if row["label"] != LANE and row["ratio"] < 1]
    lines += [f"{label}: not measured, {package} is not installed" for label, package in result["missing"].items()]
    return "\n".join(lines)


def main() -> None:
    parser = options("benchmarks.peers", __doc__ or "", rounds=7)
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a side's round, at least")
    parser.add_argument("--chart", type=Path, metavar="FILE", help="draw the results there, as SVG")
    asked = parser.parse_args()
    with one_server() as server:
        around = surroundings(server, "benchmarks.peers") | {"cores": pin_cores(server), "load": f"before {load()}"}
        result = run(measure(server, asked))
    around["load"] += f", after {load()}"
    show_results(around, result, report(result), asked.json)
    if asked.chart is not None:
        asked.chart.write_text(chart.draw({"surroundings": around, **result}))


if __name__ == "__main__":
    main()
