"""Measure what recall costs in one session of 1,000 to 100,000 messages, or a million, and if it finds the first one.

One session grows by the real path: appends, and a worker that moves the messages into the originals. The texts are the
friends' chat of `benchmarks.remembering`, from many seeds. The first message is a fact that only one question asks for.

Each length is measured three times. **Before** searches the newest 16,384 messages alone, as redismem did earlier, with
today's index; the dicts that it had then took more time and memory. **Cold** is a new process's first turn with
`recall=700`; turns follow until nothing is left unsearched. Meanwhile a task wakes up every millisecond, and the
longest delay is how long other tasks waited. **Warm** is `session.recall(question, max_tokens=700)` for questions of
the chat, one at a time.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import patch

from benchmarks.measuring import chosen_server, surroundings, table
from benchmarks.remembered.friends import friends
from benchmarks.running import load, options, over_lane, run, show_results, verdict
from redismem import Memory, Message, Settings
from redismem.recall.loading import IndexLoader
from redismem.workers.strategies import Trim
from redismem.workers.summaries import Worker

LENGTHS, QUICK_LENGTHS, MILLION = (1_000, 16_384, 100_000), (500, 2_000), 1_000_000
MOST_MS = {100_000: 20.0, MILLION: 60.0}
FACT = "My locker at the ice rink of Vintermoor has the number 4471."
ASKED = "Which locker is mine at the ice rink of Vintermoor?"
TOKENS = 700
_TURN = {"role": "user", "content": ASKED}
_SETTINGS = Settings(shards=1)
_CHAT_COUNT, _BATCH_COUNT, _QUESTIONS_COUNT = 10_000, 1_000, 60
_TURNS_LIMIT = 400


def messages() -> Iterator[dict[str, Any]]:
    """Yield the fact, then chats of friends without an end."""
    yield {"role": "user", "content": FACT}
    seed = 0
    while True:
        yield from (turn.payload for turn in friends("en", _CHAT_COUNT, seed=seed).turns)
        seed += 1


async def fill(memory: Memory, told: Iterator[dict[str, Any]], count: int) -> None:
    session, worker = memory.session("long"), Worker(memory.store, Trim())
    while count > 0:
        batch = [next(told) for _ in range(min(count, _BATCH_COUNT))]
        await session.append(*batch)
        await worker.drain()
        count -= len(batch)


def has_fact(found: Sequence[Message]) -> bool:
    return any(message.content == FACT for message in found)


async def measure_before(memory: Memory) -> dict[str, Any]:
    """Return the figures of a search in the newest 16,384 messages."""

    async def add_no_older(*_: Any) -> bool:
        return False

    with patch.object(IndexLoader, "_add_older", add_no_older):
        return await measure_warm(memory)


async def measure_warm(memory: Memory) -> dict[str, Any]:
    session = memory.session("long")
    found = await session.recall(ASKED, max_tokens=TOKENS)
    took_ms: list[float] = []
    for question in [question.text for question in friends("en", _CHAT_COUNT, seed=0).questions[:_QUESTIONS_COUNT]]:
        begun_s = time.perf_counter()
        await session.recall(question, max_tokens=TOKENS)
        took_ms.append((time.perf_counter() - begun_s) * 1_000)
    took_ms.sort()
    return {
        "found": has_fact(found),
        "unsearched": found.unsearched_count,
        "p50_ms": statistics.median(took_ms),
        "p95_ms": took_ms[len(took_ms) * 95 // 100],
        "cache_mb": memory.recall_cache.size_bytes / 1e6,
    }


async def measure_cold(memory: Memory) -> dict[str, Any]:
    """Return the figures of the first turn in a process, and of those until the index is complete."""
    session, turns = memory.session("long"), list[float]()
    cpu_s = time.process_time()
    async with longest_delay() as delays_s:
        while len(turns) < _TURNS_LIMIT:
            begun_s = time.perf_counter()
            context = await session.append_and_read(_TURN, recall=TOKENS)
            turns.append((time.perf_counter() - begun_s) * 1_000)
            if len(turns) == 1:
                first = {"first_found": has_fact(context.recalled), "first_left": context.recalled.unsearched_count}
            if context.recalled.unsearched_count == 0:
                break
    return {
        **first,
        "first_ms": turns[0],
        "turns": len(turns),
        "cpu_s": time.process_time() - cpu_s,
        "delay_ms": max(delays_s, default=0.0) * 1_000,
    }


@asynccontextmanager
async def longest_delay() -> AsyncIterator[list[float]]:
    """Yield a list to which a task adds how late it was woken up each time."""
    delays_s: list[float] = []

    async def wake() -> None:
        while True:
            begun_s = time.perf_counter()
            await asyncio.sleep(0.001)
            delays_s.append(time.perf_counter() - begun_s - 0.001)

    task = asyncio.create_task(wake())
    try:
        yield delays_s
    finally:
        task.cancel()


async def measure(url: str, name: str, lengths: Sequence[int]) -> list[dict[str, Any]]:
    told, rows, count = messages(), list[dict[str, Any]](), 0
    for length in lengths:
        begun_s = time.perf_counter()
        async with over_lane(url, name, _SETTINGS) as memory:
            await fill(memory, told, length - count)
        count, fill_s = length, time.perf_counter() - begun_s
        async with over_lane(url, name, _SETTINGS) as memory:
            before = await measure_before(memory)
        async with over_lane(url, name, _SETTINGS) as memory:
            cold = await measure_cold(memory)
            warm = await measure_warm(memory)
        rows.append({"length": length, "fill_s": fill_s, "before": before, "cold": cold, "warm": warm})
    return rows


def report(rows: Sequence[dict[str, Any]]) -> str:
    heads = ("messages", "", "first fact", "not searched", "p50 ms", "p95 ms", "cache MB")
    lines = [
        [
            f"{row['length']:,}",
            side,
            _say(each["found"]),
            f"{each['unsearched']:,}",
            *(f"{each[name]:.1f}" for name in ("p50_ms", "p95_ms", "cache_mb")),
        ]
        for row in rows
        for side, each in (("before", row["before"]), ("after", row["warm"]))
    ]
    cold_heads = ("messages", "first turn ms", "first fact", "not searched", "turns until all", "CPU s", "delay ms")
    cold_lines = [
        [
            f"{row['length']:,}",
            f"{cold['first_ms']:.0f}",
            _say(cold["first_found"]),
            f"{cold['first_left']:,}",
            cold["turns"],
            f"{cold['cpu_s']:.2f}",
            f"{cold['delay_ms']:.0f}",
        ]
        for row in rows
        for cold in [row["cold"]]
    ]
    verdicts = [
        verdict(f"recall at {row['length']:,}, p50", row["warm"]["p50_ms"], limit_ms, at_most=True, unit="ms")
        for row in rows
        if (limit_ms := MOST_MS.get(row["length"])) is not None
    ]
    return "\n".join(["warm", table(heads, lines), "", "cold", table(cold_heads, cold_lines), "", *verdicts])


def _say(found: bool) -> str:
    return "found" if found else "not found"


def main() -> None:
    parser = options("benchmarks.long_recall", __doc__ or "", rounds=1)
    parser.add_argument("--million", action="store_true", help="also a million messages: some minutes more")
    chosen = parser.parse_args()
    name = f"bench-{os.getpid()}"
    lengths = QUICK_LENGTHS if chosen.quick else LENGTHS + ((MILLION,) if chosen.million else ())
    with chosen_server(name) as server:
        around = surroundings(server, "benchmarks.long_recall") | {"load": load()}
        rows = run(measure(server.url, name, lengths))
        show_results(around, {"rows": rows}, report(rows), chosen.json)


if __name__ == "__main__":
    main()
