"""Measure the cost of recall in a turn: turns per second with `append_and_read(recall=700)` against turns without it.

64 generated conversations of 500 messages run at once, each with summaries and originals. A turn is `append_and_read`
of a user message that asks for an earlier fact, `to_openai()`, and `append` of the reply. The sides alternate in
rounds, in a new order in each round; a worker summarises between the rounds, so that blocks grow as in production.
Ratios are medians of the ratios per round: of turns per second, of the process's CPU, and of `append_and_read` alone.
The first round starts with a cold cache. A last round with recall, on asyncio's own event loop, measures the longest
step before other tasks get a turn. It measures CPU, since the wall clock includes other processes of the machine.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from benchmarks.measuring import chosen_server, surroundings, table
from benchmarks.remembered.conversation import Conversation
from benchmarks.remembered.friends import friends
from benchmarks.running import collect_garbage, load, options, over_lane, ratio, run, show_results, verdict
from redismem import Memory, Session, Settings
from redismem.workers.strategies import from_settings
from redismem.workers.summaries import Worker

SESSIONS_COUNT, MESSAGES_COUNT = 64, 500
RECALL_TOKENS = 700
TURNS_A_ROUND = 4
LEAST_RATIO, LONGEST_MS = 0.2, 5.0
REPLY = {"role": "assistant", "content": "I see. " + "a" * 150}
_SETTINGS = Settings(shards=4)
_TOLD_TOGETHER = 40
SIDES = ("without", "with", "read without", "read with")


class Talks:
    """The conversations and their questions."""

    def __init__(self, memory: Memory, conversations: Sequence[Conversation]) -> None:
        self._sessions = [memory.session(f"s{number}") for number in range(len(conversations))]
        self._conversations = conversations
        strategy = from_settings(_SETTINGS)
        assert strategy is not None
        self._worker = Worker(memory.store, strategy)
        self._chosen = random.Random(7)
        self.is_asked = False
        """True while turns run, during which no worker runs."""

    async def tell(self) -> None:
        for session, conversation in zip(self._sessions, self._conversations, strict=True):
            payloads = [turn.payload for turn in conversation.turns]
            for at in range(0, len(payloads), _TOLD_TOGETHER):
                await session.append(*payloads[at : at + _TOLD_TOGETHER])
                await self._worker.drain()

    async def round(self, side: str, turns: int) -> tuple[float, float, list[float]]:
        """Make turns in all conversations at once. Returns turns per second, CPU µs per turn, and ms of each turn."""
        recall = RECALL_TOKENS if side.endswith("with") else None
        only_reads = side.startswith("read")
        took_ms: list[float] = []

        async def talk(session: Session, questions: Sequence[str]) -> None:
            for question in questions:
                begun_s = time.perf_counter()
                context = await session.append_and_read({"role": "user", "content": question}, recall=recall)
                context.to_openai()
                if not only_reads:
                    await session.append(REPLY)
                took_ms.append((time.perf_counter() - begun_s) * 1_000)

        asked = [[self._chosen.choice(each.questions).text for _ in range(turns)] for each in self._conversations]
        collect_garbage()
        self.is_asked = True
        begun_s, cpu_s = time.perf_counter(), time.process_time()
        await asyncio.gather(*map(talk, self._sessions, asked))
        wall_s, cpu_s = time.perf_counter() - begun_s, time.process_time() - cpu_s
        self.is_asked = False
        await self._worker.drain()
        count = turns * len(asked)
        return count / wall_s, cpu_s / count * 1e6, took_ms


async def _talks(url: str, name: str, conversations: Sequence[Conversation], use: Callable[[Talks], Any]) -> Any:
    async with over_lane(url, name, _SETTINGS) as memory:
        return await use(Talks(memory, conversations))


async def compare(talks: Talks, rounds: int) -> dict[str, Any]:
    """Return the figures of each side as medians of the rounds, and the ratios."""
    found: dict[str, list[tuple[float, float, list[float]]]] = {side: [] for side in SIDES}
    first = await talks.round("with", 1)
    for number in range(-1, rounds):
        for side in random.sample(SIDES, len(SIDES)):
            figures = await talks.round(side, TURNS_A_ROUND)
            if number >= 0:
                found[side].append(figures)
    sides = {side: _figures(rows) for side, rows in found.items()} | {"first": _figures([first])}
    ratios = {}
    for what, one, other in (("turns", "with", "without"), ("reads", "read with", "read without")):
        per_s = [[row[0] for row in found[side]] for side in (one, other)]
        cpu_us = [[row[1] for row in found[side]] for side in (other, one)]
        ratios[what] = {"per_s": ratio(*per_s), "cpu": ratio(*cpu_us)}
    return {"sides": sides, "ratios": ratios}


def _figures(rows: Sequence[tuple[float, float, list[float]]]) -> dict[str, float]:
    took_ms = sorted(ms for row in rows for ms in row[2])
    return {
        "per_s": statistics.median(row[0] for row in rows),
        "cpu_us": statistics.median(row[1] for row in rows),
        "p50_ms": took_ms[len(took_ms) // 2],
        "p99_ms": took_ms[len(took_ms) * 99 // 100],
    }


async def steps_ms(talks: Talks) -> list[float]:
    """Return the CPU of each step of asyncio's own event loop during turns with recall, longest first."""
    taken_s: list[float] = []
    run_one = asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        begun_s, was_asked = time.thread_time(), talks.is_asked
        run_one(handle)
        if was_asked and talks.is_asked:
            taken_s.append(time.thread_time() - begun_s)

    asyncio.Handle._run = timed  # type: ignore[method-assign,assignment] # the loop runs each step with it
    gc.disable()  # a collection of earlier garbage is not part of recall
    try:
        for side in ("with", "read with") * 2:
            await talks.round(side, TURNS_A_ROUND)
    finally:
        gc.enable()
        asyncio.Handle._run = run_one  # type: ignore[method-assign]
    return sorted((each * 1_000 for each in taken_s), reverse=True)


def conversations(quick: bool) -> list[Conversation]:
    count, length = (8, 200) if quick else (SESSIONS_COUNT, MESSAGES_COUNT)
    return [friends("en", length, seed=seed) for seed in range(count)]


def report(found: dict[str, Any]) -> str:
    heads = ("", "a second", "client CPU µs", "p50 ms", "p99 ms")
    labels = {"with": "turns with recall", "without": "turns without", "first": "turns with recall, the first"}
    labels |= {"read with": "append_and_read with recall", "read without": "append_and_read without"}
    rows = [
        [
            labels[side],
            f"{each['per_s']:,.0f}",
            f"{each['cpu_us']:,.0f}",
            f"{each['p50_ms']:.1f}",
            f"{each['p99_ms']:.1f}",
        ]
        for side, each in found["sides"].items()
    ]
    return "\n".join([table(heads, rows), "", *_verdicts(found)])


def _verdicts(found: dict[str, Any]) -> Iterator[str]:
    ratios = found["ratios"]
    yield verdict("turns per second with recall to those without", ratios["turns"]["per_s"], LEAST_RATIO, at_most=False)
    yield f"the same by the process' CPU: x {ratios['turns']['cpu']:.2f}"
    reads = ratios["reads"]
    yield f"append_and_read alone: x {reads['per_s']:.2f}, by the process' CPU x {reads['cpu']:.2f}"
    yield verdict("longest step on the event loop", found["longest_ms"], LONGEST_MS, at_most=True, unit="ms")


def main() -> None:
    parser = options("benchmarks.recalling", __doc__ or "", rounds=7)
    chosen = parser.parse_args()
    name = f"bench-{os.getpid()}"
    told = conversations(chosen.quick)
    with chosen_server(name) as server:
        around = surroundings(server, "benchmarks.recalling") | {"load": load()}
        run(_talks(server.url, name, told, Talks.tell))
        rounds = 1 if chosen.quick else chosen.rounds
        found = run(_talks(server.url, name, told, lambda talks: compare(talks, rounds)))
        steps = asyncio.run(_talks(server.url, name, told, steps_ms))
        found |= {"longest_ms": steps[0], "steps": len(steps)}
        show_results(around, found, report(found), chosen.json)


if __name__ == "__main__":
    main()
