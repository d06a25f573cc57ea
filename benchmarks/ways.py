"""Compare ways to remember without a model that writes: evidence, words, and CPU, at equal tokens.

Each way stores the same made-up conversations, then gives a model at most this many tokens for each question. The
evidence is the share of the messages with the answer that the model is given; a summary has no messages, so it has
words only: the share of the answer's words, without the questions for a date. CPU is that of this process: to store a
message, with the worker's part, and to search, with warm caches. A token is four bytes.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from statistics import fmean
from typing import Any

from benchmarks.measuring import Server, chosen_server, surroundings, table
from benchmarks.remembered import ways
from benchmarks.remembered.conversation import Conversation, share
from benchmarks.remembered.evidence import OFFLINE, tokens_of
from benchmarks.remembered.splits import MANY, conversations
from benchmarks.running import load, options, run, show_results

BUDGETS = (350, 700, 1_400)
WAYS: dict[str, type[ways.Way]] = {
    "last messages": ways.Window,
    "plain BM25": ways.PlainBM25,
    f"{OFFLINE} alone": ways.Vectors,
    "summary alone": ways.SummaryOnly,
    "recall": ways.Recall,
    f"recall, {OFFLINE}": ways.RecallWithVectors,
    "half summary, half recall": ways.SummaryAndRecall,
}


@dataclass
class Figures:
    """The means of one way at one budget in one conversation."""

    evidence: float | None
    words: float
    tokens: float
    store_us: float
    search_us: float


async def measure(kind: type[ways.Way], server: Server, name: str, told: Conversation) -> dict[int, Figures]:
    """Return the figures of one way by budget."""
    figures = {}
    way, store_us = kind(), 0.0
    for budget in BUDGETS:
        if kind.stores_by_budget or budget == BUDGETS[0]:
            way, begun_s = kind(), time.process_time()
            await way.store(server, f"{name}-{budget}", told, budget)
            store_us = (time.process_time() - begun_s) / len(told.turns) * 1e6
        given = [await way.give(question, budget) for question in told.questions]
        begun_s = time.process_time()
        for question in told.questions:
            await way.search(question, budget)
        search_us = (time.process_time() - begun_s) / len(told.questions) * 1e6
        figures[budget] = judge(told, given, store_us, search_us)
        if kind.stores_by_budget or budget == BUDGETS[-1]:
            await way.aclose()
    return figures


def judge(told: Conversation, given: Sequence[ways.Given], store_us: float, search_us: float) -> Figures:
    """Return the means over the questions."""
    found, words = list[float](), list[float]()
    for question, (seqs, text) in zip(told.questions, given, strict=True):
        if seqs is not None:
            found.append(len(seqs & set(question.gold)) / len(question.gold))
        if question.kind != "when":
            words.append(share(text, replace(told, questions=[question])))
    tokens = fmean(tokens_of(text) for _, text in given)
    return Figures(fmean(found) if found else None, fmean(words), tokens, store_us, search_us)


def report(results: dict[tuple[str, int], list[Figures]]) -> str:
    """Return a table of the means over the conversations."""
    rows = []
    for (label, budget), figures in results.items():
        found = [each.evidence for each in figures if each.evidence is not None]
        means = (fmean(getattr(each, name) for each in figures) for name in ("tokens", "store_us", "search_us"))
        evidence, words = f"{fmean(found):.3f}" if found else "", f"{fmean(each.words for each in figures):.3f}"
        rows.append([f"{label}, {budget:,}", evidence, words, *(f"{mean:,.0f}" for mean in means), "0"])
    return table(("way, tokens at most", "evidence", "words", "tokens", "store µs", "search µs", "model calls"), rows)


def usable() -> Sequence[str]:
    """Return the ways whose libraries are installed."""
    return [label for label in WAYS if OFFLINE not in label or find_spec(OFFLINE) is not None]


def main() -> None:
    parser = options("benchmarks.ways", __doc__ or "", rounds=1)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="one conversation a set for each seed (0)")
    asked = parser.parse_args()
    results, name = dict[tuple[str, int], list[Figures]](), f"bench-{os.getpid()}"
    with chosen_server(name) as server:
        around: dict[str, Any] = surroundings(server, "benchmarks.ways") | {"load": load()}
        for seed in asked.seeds:
            for number, (of_set, told) in enumerate(conversations(seed, 80 if asked.quick else 400, None)):
                if of_set == MANY:
                    continue
                print(f"seed {seed}: {of_set}, {len(told.questions)} questions", file=sys.stderr, flush=True)
                for label in usable():
                    measuring = measure(WAYS[label], server, f"{name}-{seed}-{number}-{WAYS[label].__name__}", told)
                    for budget, figures in run(measuring).items():
                        results.setdefault((label, budget), []).append(figures)
    rows = [
        {"way": label, "budget": budget, "figures": [vars(each) for each in of_way]}
        for (label, budget), of_way in results.items()
    ]
    show_results(around, {"rows": rows}, report(results), asked.json)


if __name__ == "__main__":
    main()
