"""Measure the cost of vectors by dimensions: bytes per message in Redis, and the time of a recall. 0: no embedder.

The conversations are generated and keep their originals. The vectors are random numbers that take no time; a real
embedder adds its own time to the round trip. `cold`: this process has not read the conversation before.
"""

from __future__ import annotations

import os
import random
import statistics
import time
from typing import Any

from benchmarks.measuring import chosen_server, surroundings, table
from benchmarks.remembered.friends import friends
from benchmarks.running import load, options, run, show_results
from redismem import Memory, Session, Settings
from redismem.inspection.weight import stored_bytes
from redismem.workers.strategies import Trim
from redismem.workers.summaries import Worker

DIMENSIONS = (0, 256, 1_536)
LENGTHS = (500, 1_000, 4_000)
_TOLD_TOGETHER = 40


class Numbers:
    """An embedder that takes no time."""

    def __init__(self, dimensions: int) -> None:
        self.name = f"numbers/{dimensions}"
        self._dimensions = dimensions

    async def __call__(self, texts: list[str]) -> list[list[float]]:
        chosen = [random.Random(text) for text in texts]
        return [[each.gauss() for _ in range(self._dimensions)] for each in chosen]


async def measured(url: str, name: str, count: int, dimensions: int, rounds: int) -> dict[str, Any]:
    """Return the figures of one conversation of this many messages."""
    told = friends("en", count, seed=1)
    settings = Settings(shards=1, train_dictionaries=False, max_recalled_bytes=1 << 30)
    embed = Numbers(dimensions) if dimensions else None
    async with Memory.connect(url, namespace=f"{name}-{count}-{dimensions}", settings=settings, embed=embed) as memory:
        session, worker = memory.session("a"), Worker(memory.store, Trim())
        payloads = [turn.payload for turn in told.turns]
        for at in range(0, count, _TOLD_TOGETHER):
            await session.append(*payloads[at : at + _TOLD_TOGETHER])
            await worker.drain()
        asked = [random.choice(told.questions).text for _ in range(rounds)]
        hot = [await _took_ms(session, query) for query in ("to begin with", *asked)][1:]
        cold = []
        for query in asked[: max(1, rounds // 10)]:
            memory.recall_cache.forget(session.id)
            cold.append(await _took_ms(session, query))
        size_bytes = await stored_bytes(memory.store, [session.id]) or 0
    return {
        "messages": count,
        "dimensions": dimensions,
        "message_bytes": size_bytes / count,
        "hot_ms": statistics.median(hot),
        "cold_ms": statistics.median(cold),
    }


async def _took_ms(session: Session, query: str) -> float:
    begun_s = time.perf_counter()
    await session.recall(query)
    return (time.perf_counter() - begun_s) * 1_000


def report(rows: list[dict[str, Any]]) -> str:
    heads = ("messages", "dimensions", "bytes per message", "recall ms", "recall ms, cold")
    shown = [
        [
            each["messages"],
            each["dimensions"],
            f"{each['message_bytes']:.0f}",
            f"{each['hot_ms']:.2f}",
            f"{each['cold_ms']:.2f}",
        ]
        for each in rows
    ]
    return table(heads, shown)


def main() -> None:
    chosen = options("benchmarks.meaning", __doc__ or "", rounds=200).parse_args()
    name = f"bench-{os.getpid()}"
    lengths = (200,) if chosen.quick else LENGTHS
    with chosen_server(name) as server:
        around = surroundings(server, "benchmarks.meaning") | {"load": load()}
        rounds = 5 if chosen.quick else chosen.rounds
        pairs = [(count, dimensions) for count in lengths for dimensions in DIMENSIONS]
        rows = [run(measured(server.url, name, *pair, rounds)) for pair in pairs]
        show_results(around, {"rows": rows}, report(rows), chosen.json)


if __name__ == "__main__":
    main()
