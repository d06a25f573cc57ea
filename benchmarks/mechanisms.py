"""Measure what standing rules and the floor of recall change: each figure with the mechanism off and on, in one run.

A mechanism is turned off by patching the library in this process; there is no setting for it. The conversations are
made up from a seed. "Rules" are asked for long after they were told. "Asks nothing" are messages such as "Thanks".
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from statistics import fmean
from typing import Any
from unittest.mock import patch

from benchmarks.measuring import chosen_server, surroundings, table
from benchmarks.remembered.busy import busy
from benchmarks.remembered.conversation import Conversation, Question
from benchmarks.remembered.dated import dated
from benchmarks.remembered.evidence import ASKING_NOTHING, tell, tokens_of
from benchmarks.remembered.splits import ask, fill
from benchmarks.remembered.standing import standing
from benchmarks.running import load, options, over_lane, run, show_results
from redismem import Session, Settings
from redismem.recall import bm25
from redismem.text import sentences
from redismem.workers.strategies import from_settings
from redismem.workers.summaries import Worker

BUDGETS = (350, 700, 1_400)
_BUDGET = 700
Off = Callable[[], AbstractContextManager[object]]
Figures = dict[str, tuple[float, float]]
"""A figure with the mechanism off, and with it on."""


@contextmanager
def rules_off() -> Iterator[None]:
    """Let no sentence count as a rule, neither in a summary nor in recall."""
    sentences._features_of.cache_clear()
    with patch.object(sentences, "is_rule", lambda _: False), patch.object(bm25.Ranking, "rules", lambda *_: []):
        yield
    sentences._features_of.cache_clear()


@contextmanager
def floor_off() -> Iterator[None]:
    """Let a turn quote its best matches, however common their words are."""
    with patch.object(bm25, "_FLOOR", 0.0):
        yield


class Recall:
    """The figures of recall in one session, over its questions."""

    def __init__(self, session: Session, conversation: Conversation) -> None:
        self._session, self._conversation = session, conversation

    async def evidence(self, off: Off, questions: Sequence[Question], budget: int) -> tuple[float, float]:
        """Return the share of the messages with the answer that are quoted, off and on."""
        shares: tuple[list[float], list[float]] = ([], [])
        for question in questions:
            for at, switched in enumerate((off, nullcontext)):
                with switched():
                    seqs, _ = await ask(self._session, self._conversation, question, budget)
                shares[at].append(len(seqs & set(question.gold)) / len(question.gold))
        return fmean(shares[0]), fmean(shares[1])

    async def floor(self, questions: Sequence[Question]) -> tuple[tuple[float, float], tuple[float, float]]:
        """Return the mean tokens quoted for messages that ask nothing, and the evidence of questions, off and on."""
        tokens: tuple[list[float], list[float]] = ([], [])
        switches: tuple[Off, Off] = (floor_off, nullcontext)
        for text in ASKING_NOTHING:
            for at, switched in enumerate(switches):
                with switched():
                    _, quoted = await ask(self._session, self._conversation, Question(text, text), _BUDGET)
                tokens[at].append(tokens_of(quoted))
        return (fmean(tokens[0]), fmean(tokens[1])), await self.evidence(floor_off, questions, _BUDGET)

    async def cpu_us(self, off: Off, questions: Sequence[Question], rounds: int) -> tuple[float, float]:
        """Return the CPU of a search in µs, off and on, alternately and with a warm cache; the least of the rounds."""
        best = [float("inf"), float("inf")]
        for _ in range(rounds):
            for at, switched in enumerate((off, nullcontext)):
                with switched():
                    begun_s = time.process_time()
                    for question in questions:
                        await self._session.recall(question.text, max_tokens=_BUDGET)
                    best[at] = min(best[at], (time.process_time() - begun_s) / len(questions) * 1e6)
        return best[0], best[1]


async def kept_verbatim(url: str, name: str, conversation: Conversation, off: Off) -> tuple[float, float]:
    """Return the share of the rules that the default context contains verbatim, off and on."""
    shares = []
    for label, switched in (("off", off), ("on", nullcontext)):
        settings = Settings(shards=1, train_dictionaries=False)
        with switched():
            async with over_lane(url, f"{name}-{label}", settings) as memory:
                session, strategy = memory.session("conversation"), from_settings(settings)
                assert strategy is not None
                await fill(session, Worker(memory.store, strategy), conversation, settings.threshold)
                context = "\n".join(str(each["content"]) for each in (await session.read()).to_openai())
        shares.append(fmean(question.answer in context for question in conversation.questions))
    return shares[0], shares[1]


async def measure(url: str, name: str, seed: int, count: int) -> Figures:
    """Return the figures of both mechanisms in the conversations of one seed."""
    figures: Figures = {}
    ruled, chat = standing("en", count, seed), dated("en", count, seed, with_assistant=True)
    others = {"friends": dated("en", count, seed), "busy": busy("en", count, seed)}
    if ruled.questions:
        figures["rules: verbatim in the default context"] = await kept_verbatim(url, f"{name}-s", ruled, rules_off)
    for label, told in (("standing", ruled), ("assistant", chat), *others.items()):
        settings = Settings(shards=1, threshold=4, recent_limit=2, train_dictionaries=False)
        async with over_lane(url, f"{name}-{label}", settings) as memory:
            recall = Recall(await tell(memory, told), told)
            if told is ruled or told is chat:
                asked_for = "the rule" if told is ruled else "other questions"
                for budget in BUDGETS if told.questions else ():
                    share = await recall.evidence(rules_off, told.questions, budget)
                    figures[f"rules: {asked_for}, evidence at {budget:,} tokens"] = share
            if told is chat:
                figures["rules: CPU of a search, µs"] = await recall.cpu_us(rules_off, told.questions, 5)
            if told is not ruled:
                tokens, share = await recall.floor(told.questions)
                figures[f"floor: tokens quoted of {_BUDGET} where a message asks nothing, {label}"] = tokens
                figures[f"floor: questions, evidence at {_BUDGET} tokens, {label}"] = share
    return figures


def report(seeds: Sequence[Figures]) -> str:
    """Return a table of the means over the seeds."""
    rows = []
    for label in dict.fromkeys(label for figures in seeds for label in figures):
        of_seeds = [figures[label] for figures in seeds if label in figures]
        digits = 0 if "tokens quoted" in label or "CPU" in label else 3
        rows.append([label, *(f"{fmean(pair[at] for pair in of_seeds):,.{digits}f}" for at in (0, 1))])
    return table(("figure", "off", "on"), sorted(rows))


def main() -> None:
    parser = options("benchmarks.mechanisms", __doc__ or "", rounds=1)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1], help="the conversations of these seeds (0 1)")
    asked = parser.parse_args()
    found, name = list[Figures](), f"bench-{os.getpid()}"
    with chosen_server(name) as server:
        around: dict[str, Any] = surroundings(server, "benchmarks.mechanisms") | {"load": load()}
        for seed in asked.seeds[: 1 if asked.quick else None]:
            print(f"seed {seed}", file=sys.stderr, flush=True)
            found.append(run(measure(server.url, f"{name}-{seed}", seed, 200 if asked.quick else 600)))
    show_results(around, {"seeds": found}, report(found), asked.json)


if __name__ == "__main__":
    main()
