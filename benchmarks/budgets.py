"""Measure how a token budget is best split between the summary and recall, and what recall finds at each budget.

Each conversation is told message by message, with the extractive summariser, once for each summary budget. Then each
question is asked in a turn with `recall=`. The figure is the share of the answer's words in the context: summary,
window and quotation. Questions for a date are left out, because a summary has many dates. The conversations are made
up from a seed; --file adds a customer's year. In "many sessions" the talks are sessions of one owner, and the asking
session is new, so it has no summary.

The evidence of recall alone is the share of the messages with the answer that are quoted. Its mean must not fall with
the budget.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.measuring import chosen_server, surroundings, table
from benchmarks.remembered.splits import MANY, Curves, Pair, conversations, measure, measure_many
from benchmarks.running import load, options, run, show_results
from redismem import Settings

TOTALS = (600, 1_200, 2_400, 4_800)
SHARES = (0, 1 / 4, 1 / 2, 3 / 4, 1)
"""The shares of a total that the summary gets."""
RECALL_TOKENS = 700
DEFAULT_TOKENS = Settings().summary_tokens_total
NAMED = ((500, 1_700), (1_500, 700), (DEFAULT_TOKENS, 0), (DEFAULT_TOKENS, RECALL_TOKENS), (DEFAULT_TOKENS, 1_200))
"""Pairs that are measured in addition: two that are often compared, and the default summary."""
BUDGETS = (100, 150, 300, 450, 600, 900, 1_200, 1_800, 2_400, 3_600, 4_000)
COUNT, QUICK_COUNT = 240, 60


def all_pairs() -> list[Pair]:
    """Return the pairs of summary and recall tokens, by total."""
    pairs = [(round(total * share), total) for total in TOTALS for share in SHARES]
    return [*((summary, total - summary) for summary, total in pairs), *NAMED]


def report(sets: dict[str, Curves], pairs: Sequence[Pair], budgets: Sequence[int]) -> str:
    """Return a table of the pairs, a table of recall alone, and how far the mean evidence falls."""
    rows = []
    for pair in pairs:
        shares = [*(each.share(pair) for each in sets.values()), _mean(sets, pair)]
        rows.append([f"{pair[0]:,} + {pair[1]:,}", *(f"{share:.3f}" for share in shares)])
    known = {name: each for name, each in sets.items() if each.count}
    found = []
    for budget in budgets:
        shares = [*(each.mean_evidence(budget) for each in known.values()), _mean_evidence(known, budget)]
        found.append([f"{budget:,}", *(f"{share:.3f}" for share in shares)])
    counts = ", ".join(f"{name} {each.count}" for name, each in known.items())
    parts = ["words of later answers", table(("summary + recall", *sets, "mean of the sets"), rows)]
    parts += ["", f"evidence of recall alone; questions: {counts}"]
    parts += [table(("recall alone", *known, "all questions"), found), ""]
    parts += [_falls(name, [each.mean_evidence(budget) for budget in budgets]) for name, each in known.items()]
    return "\n".join([*parts, _falls("all questions", [_mean_evidence(known, budget) for budget in budgets])])


def _mean(sets: dict[str, Curves], pair: Pair) -> float:
    return fmean(each.share(pair) for each in sets.values())


def _mean_evidence(sets: dict[str, Curves], budget: int) -> float:
    return sum(each.evidence[budget] for each in sets.values()) / sum(each.count for each in sets.values())


def _falls(name: str, figures: Sequence[float]) -> str:
    falls = [before - after for before, after in pairwise(figures) if after < before - 1e-9]
    said = f"falls at {len(falls)} of {len(figures) - 1} steps, by at most {max(falls):.3f}" if falls else "never falls"
    return f"mean evidence from {BUDGETS[0]} to {BUDGETS[-1]:,} tokens, {name}: {said}"


def main() -> None:
    parser = options("benchmarks.budgets", __doc__ or "", rounds=1)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="one conversation a set for each seed (0)")
    parser.add_argument("--messages", type=int, default=COUNT, help=f"messages of each conversation ({COUNT})")
    parser.add_argument("--file", type=Path, help='JSON lines of {"session_id", "messages"}: one customer\'s year')
    asked = parser.parse_args()
    pairs, sets, name = all_pairs(), dict[str, Curves](), f"bench-{os.getpid()}"
    with chosen_server(name) as server:
        around = surroundings(server, "benchmarks.budgets") | {"load": load()}
        for seed in asked.seeds:
            for of_set, told in conversations(seed, QUICK_COUNT if asked.quick else asked.messages, asked.file):
                print(f"seed {seed}: {of_set}, {len(told.questions)} questions", file=sys.stderr, flush=True)
                measuring = measure_many if of_set == MANY else measure
                curves = sets.setdefault(of_set, Curves())
                run(measuring(server.url, f"{name}-{seed}-{of_set.replace(' ', '-')}", told, pairs, BUDGETS, curves))
    shown = report(sets, pairs, BUDGETS)
    show_results(around, _figures(sets, pairs), shown, asked.json)


def _figures(sets: dict[str, Curves], pairs: Sequence[Pair]) -> dict[str, Any]:
    """Return the figures as JSON, which benchmarks.chart draws."""
    words = [
        {"summary": summary, "recall": recall, **{name: each.share((summary, recall)) for name, each in sets.items()}}
        for summary, recall in pairs
    ]
    evidence = [
        {"budget": budget, **{name: each.mean_evidence(budget) for name, each in sets.items()}} for budget in BUDGETS
    ]
    questions = {name: {"all": each.count, "words": each.asked_count} for name, each in sets.items()}
    return {"words": words, "evidence": evidence, "questions": questions}


if __name__ == "__main__":
    main()
