"""LangGraph's stores of long-term items, in one process and one run: redismem beside SQLite in the process's memory.

A step puts an item, gets it, and searches its namespace of 20 items, by prefix and by a filter. One caller takes its
steps alone, then 64 at once. A batch puts 1,000 items, into one namespace and into 1,000. Redis writes its log once a
second. CPU is the time of this process, its threads and Redis together. The sides alternate in rounds, in a new order
in each round; a ratio is the median of the ratios per round. `pip install -e '.[peers]'` installs SQLite's store.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import time
from collections.abc import Awaitable
from typing import Any

from langgraph.store.base import PutOp

from benchmarks.measuring import Server, surroundings, table
from benchmarks.running import collect_garbage, load, one_server, options, pin_cores, ratio, run, show_results
from redismem.adapters.langgraph import RedismemStore

OPERATIONS = ("put", "get", "search", "filter")
OURS, SQLITE = "redismem", "SQLite in memory"
FIGURES = (*OPERATIONS, "steps", "CPU")
AT_ONCE = (1, 64)
BATCHES = {"a batch of 1,000 puts, 1 namespace": 1, "a batch of 1,000 puts, 1,000 namespaces": 1_000}
ITEMS = 20


async def _open_all(stack: contextlib.AsyncExitStack, server: Server) -> dict[str, Any]:
    from langgraph.store.sqlite.aio import AsyncSqliteStore

    ours = await stack.enter_async_context(RedismemStore.from_conn_string(server.url))
    sqlite = await stack.enter_async_context(AsyncSqliteStore.from_conn_string(":memory:"))
    await sqlite.setup()
    return {OURS: ours, SQLITE: sqlite}


def _value(number: int) -> dict[str, Any]:
    return {"text": f"prefers green tea, and says so for the {number}th time", "n": number}


async def _take_steps(store: Any, space: tuple[str, ...], steps: int, spent: dict[str, float]) -> None:
    async def timed(operation: str, call: Awaitable[Any]) -> Any:
        clock = time.perf_counter()
        result = await call
        spent[operation] += time.perf_counter() - clock
        return result

    await store.abatch([PutOp(space, f"{number}", _value(number)) for number in range(ITEMS)])
    for step in range(steps):
        number = step % ITEMS
        await timed("put", store.aput(space, f"{number}", _value(number)))
        item = await timed("get", store.aget(space, f"{number}"))
        assert item.value["n"] == number
        assert len(await timed("search", store.asearch(space, limit=10))) == 10
        assert len(await timed("filter", store.asearch(space, filter={"n": number}, limit=1))) == 1


async def _measure_steps(server: Server, store: Any, at_once: int, steps: int, prefix: str) -> dict[str, float]:
    collect_garbage()
    spent = dict.fromkeys(OPERATIONS, 0.0)
    clock, cpu_s = time.perf_counter(), time.process_time() + server.cpu_s()
    spaces = [("bench", f"{prefix}-{number}") for number in range(at_once)]
    await asyncio.gather(*(_take_steps(store, space, steps, spent) for space in spaces))
    wall_s, count = time.perf_counter() - clock, at_once * steps
    figures = {name: at_once * count / spent[name] for name in OPERATIONS}
    return figures | {
        "steps": count / wall_s,
        "CPU": (time.process_time() + server.cpu_s() - cpu_s) / count * 1e6,
    }


async def _measure_batch(server: Server, store: Any, spaces: int, prefix: str) -> dict[str, float]:
    collect_garbage()
    puts = [PutOp(("bench", prefix, f"{number % spaces}"), f"{number}", _value(number)) for number in range(1_000)]
    clock, cpu_s = time.perf_counter(), time.process_time() + server.cpu_s()
    await store.abatch(puts)
    wall_s = time.perf_counter() - clock
    return {"ms": wall_s * 1e3, "CPU ms": (time.process_time() + server.cpu_s() - cpu_s) * 1e3}


async def measure(server: Server, asked: argparse.Namespace) -> dict[str, Any]:
    rounds = 1 if asked.quick else asked.rounds
    server.client.config_set("appendonly", "yes")
    found: dict[str, dict[str, list[dict[str, float]]]] = {}
    async with contextlib.AsyncExitStack() as stack:
        stores = await _open_all(stack, server)
        for number in range(-1, rounds):
            for label in random.sample(list(stores), len(stores)):
                # The first round only opens connections and loads scripts.
                prefix = f"{os.getpid()}-{number + 1}"
                steps = 2 if asked.quick or number < 0 else 200
                figures = {
                    f"{at_once} at once": await _measure_steps(
                        server, stores[label], at_once, max(2, steps // at_once), f"{prefix}-{at_once}"
                    )
                    for at_once in AT_ONCE
                }
                for title, spaces in BATCHES.items():
                    figures[title] = await _measure_batch(server, stores[label], spaces, f"{prefix}-{spaces}")
                for title, measured in figures.items():
                    if number >= 0:
                        found.setdefault(title, {}).setdefault(label, []).append(measured)
    return {"found": found, "rounds": rounds}


def report(result: dict[str, Any]) -> str:
    lines = []
    for title, sides in result["found"].items():
        names = list(sides[OURS][0])
        medians = {
            label: [sorted(each[name] for each in rounds)[len(rounds) // 2] for name in names]
            for label, rounds in sides.items()
        }
        head = (title, *(f"{name}/s" if name in FIGURES and name != "CPU" else name for name in names))
        lines += [table(head, [(label, *values) for label, values in medians.items()]), ""]
        words = [
            f"{name} x {ratio([each[name] for each in sides[OURS]], [each[name] for each in sides[SQLITE]]):.2f}"
            for name in names
        ]
        lines += [f"{title}, {OURS} / {SQLITE}: {', '.join(words)}", ""]
    return "\n".join(lines)


def main() -> None:
    asked = options("benchmarks.stores", __doc__ or "", rounds=5).parse_args()
    with one_server() as server:
        around = surroundings(server, "benchmarks.stores") | {"cores": pin_cores(server), "load": f"before {load()}"}
        result = run(measure(server, asked))
    around["load"] += f", after {load()}"
    show_results(around, result, report(result), asked.json)


if __name__ == "__main__":
    main()
