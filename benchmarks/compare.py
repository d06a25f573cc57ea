"""Compare the turns of this checkout with another checkout, in one run on one redis-server.

The turn is the turn of `benchmarks.turns`, with 64 sessions at once. In each round both sides measure equally many
turns, in random order, each in a new process. That process runs this Python with its installed libraries, so the other
checkout needs no environment. The public API that a turn uses must be the same.

Each round gives a pair of figures and their ratio. The report calls this checkout slower or faster if chance would
give so many rounds in fewer than one run of a hundred (a sign test): 8 of 8 rounds, or 13 of 15.
"""

from __future__ import annotations

import json
import math
import os
import random
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import compare_side
from benchmarks.measuring import Server, chosen_server, remove_keys, surroundings, table
from benchmarks.running import load, options, pin_cores, show_results

HERE = Path(__file__).resolve().parents[1]
TURNS_COUNT, QUICK_TURNS_COUNT = 12_800, 512
QUICK_ROUNDS = 3
FEWEST_ROUNDS, MOST_CHANCE = 8, 0.01
FIGURES = {"turns_per_s": "turns/s", "client_us": "client CPU µs", "server_us": "server CPU µs"}


def measure_side(checkout: Path, url: str, namespace: str, turns_count: int) -> dict[str, float]:
    """Measure one round of a checkout. Ends the run if its process fails or measures another checkout."""
    sessions_count = max(1, turns_count // (compare_side.CONCURRENCY * compare_side.TURNS_A_SESSION))
    # -P keeps the script's folder off the path, so that PYTHONPATH comes first; -B writes no files into the checkout.
    done = subprocess.run(
        [sys.executable, "-P", "-B", compare_side.__file__, url, namespace, str(sessions_count)],
        env=os.environ | {"PYTHONPATH": str(checkout)},
        cwd=checkout,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"a turn of {checkout} failed:\n{done.stderr[-2000:]}")
    figures = json.loads(done.stdout)
    found = Path(figures.pop("measured"))
    if not found.is_relative_to(checkout):
        sys.exit(f"{found} was measured, expected that of {checkout}")
    return dict(figures)


def measure(server: Server, other: Path, name: str, rounds: int, turns_count: int) -> dict[str, Any]:
    """Return the figures of both sides in every round, their medians and their ratios."""
    checkouts = {"this": HERE, "other": other}
    found: dict[str, list[dict[str, float]]] = {side: [] for side in checkouts}
    for _ in range(rounds):
        for side in random.sample(list(checkouts), len(checkouts)):
            namespace = f"{name}-{side}"
            found[side].append(measure_side(checkouts[side], server.url, namespace, turns_count))
            remove_keys(server, namespace)
    medians = {
        side: {figure: statistics.median(row[figure] for row in rows) for figure in FIGURES}
        for side, rows in found.items()
    }
    return {
        "rounds": found,
        "medians": medians,
        "ratios": {figure: _ratios(found, medians, figure) for figure in FIGURES},
    }


def _ratios(
    found: dict[str, list[dict[str, float]]], medians: dict[str, dict[str, float]], figure: str
) -> dict[str, Any]:
    """Return the ratio of this checkout's figure to the other checkout's figure."""
    pairs = [ours[figure] / theirs[figure] for ours, theirs in zip(found["this"], found["other"], strict=True)]
    low, middle, high = statistics.quantiles(pairs, n=4, method="inclusive")
    return {
        "pairs": pairs,
        "of_medians": medians["this"][figure] / medians["other"][figure],
        "of_pairs": middle,
        "quartiles_of_pairs": [low, high],
    }


def report(result: dict[str, Any]) -> str:
    rows = [
        ("other", *result["medians"]["other"].values()),
        ("this", *result["medians"]["this"].values()),
    ]
    ratios = result["ratios"]
    rows.append(("this / other, of medians", *(f"x {ratios[figure]['of_medians']:.3f}" for figure in FIGURES)))
    rows.append(("this / other, of pairs", *(f"x {ratios[figure]['of_pairs']:.3f}" for figure in FIGURES)))
    quartiles = ("{:.3f} .. {:.3f}".format(*ratios[figure]["quartiles_of_pairs"]) for figure in FIGURES)
    rows.append(("the middle half of the pairs", *quartiles))
    head = ("64 sessions at once, a turn", *FIGURES.values())
    if len(result["rounds"]["this"]) < FEWEST_ROUNDS:
        verdicts = [f"too few rounds to tell a difference: at least {FEWEST_ROUNDS}"]
    else:
        verdicts = [f"{label}: {verdict(figure, ratios[figure]['pairs'])}" for figure, label in FIGURES.items()]
    return "\n".join([table(head, rows), "", *verdicts])


def verdict(figure: str, pairs: Sequence[float]) -> str:
    """Return the verdict: more turns per second are faster, more microseconds are slower."""
    slower_count = sum(pair < 1 if figure == "turns_per_s" else pair > 1 for pair in pairs)
    more_count = max(slower_count, len(pairs) - slower_count)
    chance = 2 * sum(math.comb(len(pairs), count) for count in range(more_count, len(pairs) + 1)) / 2 ** len(pairs)
    if chance > MOST_CHANCE:
        return f"no difference that chance would not make; slower in {slower_count} of {len(pairs)} rounds"
    which = "SLOWER" if more_count == slower_count else "faster"
    return f"{which} in {more_count} of {len(pairs)} rounds, x {statistics.median(pairs):.3f}"


def _revision(checkout: Path) -> str:
    """Return the commit, if git knows one."""
    command = ["git", "-C", str(checkout), "describe", "--always", "--dirty"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "no git here"
    return done.stdout.strip() or "not in git"


def main() -> None:
    parser = options("benchmarks.compare", __doc__ or "", rounds=15)
    parser.add_argument("other", type=Path, metavar="OTHER_CHECKOUT", help="the folder of another checkout of redismem")
    parser.add_argument("--turns", type=int, default=TURNS_COUNT, help=f"turns of a side's round ({TURNS_COUNT})")
    asked = parser.parse_args()
    other = asked.other.resolve()
    if not (other / "redismem" / "__init__.py").exists():
        parser.error(f"there is no redismem in {other}")
    if asked.rounds < 2:
        parser.error("at least 2 rounds are needed")
    rounds, turns_count = (QUICK_ROUNDS, QUICK_TURNS_COUNT) if asked.quick else (asked.rounds, asked.turns)
    name = f"bench-compare-{os.getpid()}"
    with chosen_server(name) as server:
        around = surroundings(server, "benchmarks.compare") | {"cores": pin_cores(server), "load": f"before {load()}"}
        around |= {"this": f"{HERE} ({_revision(HERE)})", "other": f"{other} ({_revision(other)})"}
        result = measure(server, other, name, rounds, turns_count)
    around["load"] += f", after {load()}"
    show_results(around, result, report(result), asked.json)


if __name__ == "__main__":
    main()
