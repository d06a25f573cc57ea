"""Measure the cost of pinned messages: appends to and reads of sessions with 20 pinned messages outside the window.

Three kinds of sessions on one server have one summary each, and messages of 160 bytes. `plain` has a window of 8
messages, `pinned` additionally has 20 pinned messages before it, and `longer` has a window of 28 messages and no pinned
ones. A round measures each kind once, in random order: one append per session, 64 at once, then one read per session
with `to_openai()`. Windows are pruned after the round. Figures are medians of the rounds; a ratio compares two kinds in
the same round.
"""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from benchmarks.measuring import Server, chosen_server, surroundings, table
from benchmarks.running import collect_garbage, load, options, over_lane, pin_cores, ratio, run, show_results
from redismem import Session, Settings
from redismem.models import Draft
from redismem.workers.summaries import Worker

PINNED_COUNT, WINDOW_COUNT = 20, 8
SESSIONS_COUNT, QUICK_SESSIONS_COUNT = 640, 64
CONCURRENCY = 64
MESSAGE = {"role": "user", "content": "x" * 160}
KINDS = ("plain", "pinned", "longer")
FIGURES = ("server_us", "client_us")
FILLING = Settings(threshold=WINDOW_COUNT, recent_limit=WINDOW_COUNT)
# The benchmark prunes by itself, so no session may wait for a worker.
SETTINGS = Settings(strategy="none")
Work = Callable[[Session], Awaitable[object]]


class _Brief:
    async def compact(self, messages: Any, previous: Any) -> Draft:
        del messages, previous
        return Draft("told", 0, 0, "m")


async def _fill(url: str, name: str, kind: str, count: int) -> list[str]:
    """Create sessions of one kind, with a summary each."""
    names = [f"{kind}-{number}" for number in range(count)]
    async with over_lane(url, name, FILLING) as memory:
        for session_id in names:
            session = memory.session(session_id)
            if kind == "pinned":
                await session.append(*[MESSAGE] * PINNED_COUNT, pin=True)
            await session.append(*[MESSAGE] * 2 * WINDOW_COUNT)
        await Worker(memory.store, _Brief(), concurrency=CONCURRENCY).drain()
        for session_id in names if kind == "longer" else ():
            await memory.session(session_id).append(*[MESSAGE] * PINNED_COUNT)
    return names


async def _append(session: Session) -> None:
    await session.append(MESSAGE)


async def _read(session: Session) -> None:
    (await session.read()).to_openai()


async def _cost(server: Server, work: Work, sessions: Sequence[Session]) -> dict[str, float]:
    """Return the µs of CPU per call, of the server and of this process."""
    collect_garbage()
    server_s, client_s = server.cpu_s(), time.process_time()
    for at in range(0, len(sessions), CONCURRENCY):
        await asyncio.gather(*(work(session) for session in sessions[at : at + CONCURRENCY]))
    client_s = time.process_time() - client_s
    server_s = server.cpu_s() - server_s
    return {"server_us": server_s / len(sessions) * 1e6, "client_us": client_s / len(sessions) * 1e6}


async def measure(server: Server, name: str, rounds: int, count: int) -> dict[str, Any]:
    """Return the figures of each operation and kind, one per round."""
    found: dict[str, dict[str, list[dict[str, float]]]] = {work: {kind: [] for kind in KINDS} for work in WORKS}
    names = {kind: await _fill(server.url, name, kind, count) for kind in KINDS}
    async with over_lane(server.url, name, SETTINGS) as memory:
        for number in range(rounds + 1):
            for kind in random.sample(KINDS, len(KINDS)):
                sessions = [memory.session(session_id) for session_id in names[kind]]
                for work, call in WORKS.items():
                    cost = await _cost(server, call, sessions)
                    found[work][kind] += [cost] if number else []  # the first round warms up
                for session in sessions:
                    await session.prune(WINDOW_COUNT + (PINNED_COUNT if kind == "longer" else 0))
    return {"sessions": count, **found}


WORKS: dict[str, Work] = {"append": _append, "read": _read}
COMPARED = (("append", "pinned", "plain"), ("read", "pinned", "longer"))


def report(result: dict[str, Any]) -> str:
    rows = []
    for work in WORKS:
        for kind in KINDS:
            medians = (statistics.median(row[figure] for row in result[work][kind]) for figure in FIGURES)
            rows.append([f"{work}, {kind}", *(f"{median:.1f}" for median in medians)])
    for work, kind, other in COMPARED:
        pairs = ([[row[figure] for row in result[work][each]] for each in (kind, other)] for figure in FIGURES)
        rows.append([f"{work}, {kind} / {other}", *(f"x {ratio(*both):.2f}" for both in pairs)])
    return table(("one call", "server CPU µs", "client CPU µs"), rows)


def main() -> None:
    parser = options("benchmarks.pins", __doc__ or "", rounds=15)
    asked = parser.parse_args()
    name = f"bench-{os.getpid()}"
    with chosen_server(name) as server:
        around = surroundings(server, "benchmarks.pins") | {"cores": pin_cores(server), "load": load()}
        rounds, count = (2, QUICK_SESSIONS_COUNT) if asked.quick else (asked.rounds, SESSIONS_COUNT)
        result = run(measure(server, name, rounds, count))
    show_results(around, result, report(result), asked.json)


if __name__ == "__main__":
    main()
