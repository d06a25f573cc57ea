"""Checkpoints per second of LangGraph's savers, in one process and one run: put, put_writes and get_tuple.

A step of a thread puts a checkpoint with one new value of 2 KB, puts the writes of two tasks, and reads the newest
checkpoint. One thread takes its steps alone, then 64 at once. Redis writes its log once a second; SQLite writes to a
file as its saver sets it up, and to the memory of this process. CPU is the time of this process, its threads and Redis
together. The sides alternate in rounds, in a new order in each round; a ratio is the median of the ratios per round.
`pip install -e '.[peers]'` installs the others; SAVERS_POSTGRES_URL names a Postgres to measure too.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base.id import uuid6

from benchmarks.measuring import Server, surroundings, table
from benchmarks.running import collect_garbage, load, one_server, options, pin_cores, ratio, run, show_results
from redismem.adapters.langgraph import RedismemSaver

OPERATIONS = ("put", "put_writes", "get_tuple")
OURS = "redismem"
TEXT = "An answer of an agent, which is about as long as this one. " * 34
PER_STEP = ("steps", "CPU", "bytes")
AT_ONCE = (1, 64)


class Side:
    """One saver, and how to ask for the bytes that it has stored."""

    def __init__(self, saver: Any, used_bytes: Callable[[], int] | None) -> None:
        self.saver = saver
        self.used_bytes = used_bytes


async def _open_sqlite(stack: contextlib.AsyncExitStack, server: Server) -> Side:
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    del server
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    saver = await stack.enter_async_context(AsyncSqliteSaver.from_conn_string(str(folder / "checkpoints.db")))
    await saver.setup()
    return Side(saver, lambda: sum(path.stat().st_size for path in folder.iterdir()))


async def _open_sqlite_in_memory(stack: contextlib.AsyncExitStack, server: Server) -> Side:
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    del server
    saver = await stack.enter_async_context(AsyncSqliteSaver.from_conn_string(":memory:"))
    await saver.setup()
    return Side(saver, None)


async def _open_ours(stack: contextlib.AsyncExitStack, server: Server) -> Side:
    saver = await stack.enter_async_context(RedismemSaver.from_conn_string(server.url))
    return Side(saver, server.used_bytes)


async def _open_valkey(stack: contextlib.AsyncExitStack, server: Server) -> Side:
    from langgraph_checkpoint_aws import AsyncValkeySaver

    saver = await stack.enter_async_context(AsyncValkeySaver.from_conn_string(server.url, pool_size=128))
    return Side(saver, server.used_bytes)


async def _open_postgres(stack: contextlib.AsyncExitStack, server: Server) -> Side:
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

    del server
    saver = await stack.enter_async_context(AsyncPostgresSaver.from_conn_string(os.environ["SAVERS_POSTGRES_URL"]))
    await saver.setup()
    return Side(saver, None)


MAKES = {
    OURS: _open_ours,
    "SQLite in a file": _open_sqlite,
    "SQLite in memory": _open_sqlite_in_memory,
    "AsyncValkeySaver": _open_valkey,
    "Postgres": _open_postgres,
}


def _checkpoint(saver: Any, versions: dict[str, Any], step: int) -> dict[str, Any]:
    """Return the checkpoint of a step: one of its six channels has a new value."""
    changed = [f"channel-{number}" for number in range(6)] if step == 0 else ["channel-0"]
    versions.update({channel: saver.get_next_version(versions.get(channel), None) for channel in changed})
    return {
        "v": 4,
        "id": str(uuid6(clock_seq=step)),
        "ts": "2026-01-01T00:00:00+00:00",
        "channel_values": dict.fromkeys(versions, "short") | {"channel-0": f"{step} {TEXT}"},
        "channel_versions": dict(versions),
        "versions_seen": {"node": dict(versions)},
        "updated_channels": changed,
    }


async def _take_steps(saver: Any, thread_id: str, steps: int, spent: dict[str, float]) -> None:
    config: Any = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
    newest: Any = config
    versions: dict[str, Any] = {}

    async def timed(operation: str, call: Awaitable[Any]) -> Any:
        clock = time.perf_counter()
        result = await call
        spent[operation] += time.perf_counter() - clock
        return result

    for step in range(steps):
        checkpoint = _checkpoint(saver, versions, step)
        metadata = {"source": "loop", "step": step, "parents": {}}
        new = {channel: versions[channel] for channel in checkpoint["updated_channels"]}
        newest = await timed("put", saver.aput(newest, checkpoint, metadata, new))
        for task in ("a", "b"):
            writes = [("channel-0", TEXT[:200]), ("branch:to:node", None)]
            await timed("put_writes", saver.aput_writes(newest, writes, f"{task}-{step}", f"~__pregel_pull, {task}"))
        found = await timed("get_tuple", saver.aget_tuple(config))
        assert found.checkpoint["channel_values"]["channel-0"].startswith(f"{step} ")


async def _measure_side(server: Server, side: Side, at_once: int, steps: int, prefix: str) -> dict[str, float]:
    collect_garbage()
    before = side.used_bytes() if side.used_bytes else 0
    spent = dict.fromkeys(OPERATIONS, 0.0)
    clock, cpu_s = time.perf_counter(), time.process_time() + server.cpu_s()
    await asyncio.gather(*(_take_steps(side.saver, f"{prefix}-{number}", steps, spent) for number in range(at_once)))
    wall_s, count = time.perf_counter() - clock, at_once * steps
    cpu_s = time.process_time() + server.cpu_s() - cpu_s
    figures = {
        "steps": count / wall_s,
        "CPU": cpu_s / count * 1e6,
        "bytes": (side.used_bytes() - before) / count if side.used_bytes else 0.0,
    }
    calls = {"put": count, "put_writes": 2 * count, "get_tuple": count}
    return figures | {name: at_once * calls[name] / spent[name] for name in OPERATIONS}


async def measure(server: Server, asked: argparse.Namespace) -> dict[str, Any]:
    rounds = 1 if asked.quick else asked.rounds
    server.client.config_set("appendonly", "yes")
    missing = []
    async with contextlib.AsyncExitStack() as stack:
        sides: dict[str, Side] = {}
        for label, make in MAKES.items():
            try:
                sides[label] = await make(stack, server)
            except (ImportError, KeyError) as absent:
                missing.append(f"{label}: not measured, {absent} is missing")
        found: dict[str, dict[str, list[dict[str, float]]]] = {}
        for at_once in AT_ONCE:
            steps = 2 if asked.quick else 200 // at_once + 8
            for number in range(-1, rounds):
                for label in random.sample(list(sides), len(sides)):
                    # The first round only opens connections and loads scripts.
                    prefix = f"{os.getpid()}-{at_once}-{number}"
                    figures = await _measure_side(server, sides[label], at_once, steps if number >= 0 else 1, prefix)
                    if number >= 0:
                        found.setdefault(f"{at_once} at once", {}).setdefault(label, []).append(figures)
    return {"found": found, "missing": missing, "rounds": rounds}


def report(result: dict[str, Any]) -> str:
    lines = []
    for title, sides in result["found"].items():
        rows = []
        for label, rounds in sides.items():
            medians = {name: sorted(each[name] for each in rounds)[len(rounds) // 2] for name in rounds[0]}
            rows.append((label, *(medians[name] for name in (*OPERATIONS, *PER_STEP))))
        head = (title, *(f"{name}/s" for name in OPERATIONS), "steps/s", "CPU µs/step", "bytes/step")
        lines += [table(head, rows), ""]
        for label in sides.keys() - {OURS}:
            words = [
                f"{name} x {ratio([each[name] for each in sides[OURS]], [each[name] for each in sides[label]]):.2f}"
                for name in (*OPERATIONS, *PER_STEP)
                if all(each[name] for each in sides[label])
            ]
            lines.append(f"{title}, {OURS} / {label}: {', '.join(words)}")
        lines.append("")
    return "\n".join([*lines, *result["missing"]])


def main() -> None:
    asked = options("benchmarks.savers", __doc__ or "", rounds=5).parse_args()
    with one_server() as server:
        around = surroundings(server, "benchmarks.savers") | {"cores": pin_cores(server), "load": f"before {load()}"}
        result = run(measure(server, asked))
    around["load"] += f", after {load()}"
    show_results(around, result, report(result), asked.json)


if __name__ == "__main__":
    main()
