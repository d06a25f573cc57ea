"""Check that the cost of a turn depends neither on the sessions in Redis nor on the messages of a session.

Sessions: one redis-server per size, all filled before the first measurement, every session with a window of 6. A round
picks 960 random sessions of each server and makes two turns in each (windows 7 to 10), 64 sessions at once.
Messages: 64 sessions with 20 messages ever appended and 64 with many more, in one server.
After a round, outside the measured time, windows are pruned to 6, as workers with threshold 10 and recent_limit 6
leave them. The last activity is set back, so that every first append of a round refreshes the activity index. Sides
alternate, in a new order in each round.

As a control, LRANGE and HGETALL of other random sessions are blasted at the same servers. Their cost grows with the
memory of Redis, and no code of redismem takes part.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from typing import Any

import hiredis

from benchmarks.blast import Blaster
from benchmarks.measuring import Server, own_server, surroundings, table
from benchmarks.running import collect_garbage, load, options, over_lane, pin_cores, ratio, run, show_results, verdict
from benchmarks.turns import ASSISTANT, USER
from redismem import Memory, Settings
from redismem.protocol.session.calls import SessionCalls

CONCURRENCY = 64
WINDOW_COUNT = 6
TURNS_COUNT = 2
SAMPLE_COUNT, QUICK_SAMPLE_COUNT = 15 * CONCURRENCY, 3 * CONCURRENCY
FIGURES = ("wall_us", "client_us", "server_us")
CONTROL = "control_us"
MOST_SESSIONS_RATIO, MOST_MESSAGES_RATIO = 1.15, 1.10
_FILL_PIECE, _FILL_BATCH = 5_000, 500
# The benchmark prunes by itself, so no session may wait for a worker.
SETTINGS = Settings(strategy="none", idle_timeout_s=86_400)


class Side:
    """Sessions of one size, and the cost of a turn on them in each round."""

    def __init__(self, label: str, server: Server, memory: Memory, sessions: Sequence[str]) -> None:
        self.label = label
        self.server = server
        self.memory = memory
        self.found: dict[str, list[float]] = {figure: [] for figure in (*FIGURES, CONTROL)}
        self._sessions = sessions
        self._blaster = Blaster(server)

    async def round(self, sample_count: int, *, is_measured: bool) -> None:
        chosen = random.sample(self._sessions, min(len(self._sessions), sample_count))
        control_us = self._control_us(random.sample(self._sessions, len(chosen)))
        collect_garbage()
        server_s, client_s, clock = self.server.cpu_s(), time.process_time(), time.perf_counter()
        await _at_once(self._turns, chosen)
        wall_s, client_s = time.perf_counter() - clock, time.process_time() - client_s
        server_s = self.server.cpu_s() - server_s
        if is_measured:
            for figure, seconds in zip(FIGURES, (wall_s, client_s, server_s), strict=True):
                self.found[figure].append(seconds / (len(chosen) * TURNS_COUNT) * 1e6)
            self.found[CONTROL].append(control_us)
        await _at_once(self._prune, chosen)
        self.server.make_idle([self.memory.store.keys.session(session_id).state for session_id in chosen])

    def _control_us(self, session_ids: Sequence[str]) -> float:
        """Return the server's time to read one session, without scripts and without redismem."""
        keys = [self.memory.store.keys.session(session_id) for session_id in session_ids]
        reads = [(("LRANGE", one.messages, 0, -1), ("HGETALL", one.state)) for one in keys]
        content = b"".join(hiredis.pack_command(read) for both in reads for read in both)  # type: ignore[arg-type]
        server_s = self.server.cpu_s()
        self._blaster.send(content)
        return (self.server.cpu_s() - server_s) / len(session_ids) * 1e6

    async def aclose(self) -> None:
        self._blaster.close()
        await self.memory.aclose()

    async def _turns(self, session_id: str) -> None:
        for _ in range(TURNS_COUNT):
            session = self.memory.session(session_id)
            context = await session.append_and_read(USER)
            context.to_openai()
            await session.append(ASSISTANT)

    async def _prune(self, session_id: str) -> None:
        await self.memory.session(session_id).prune(WINDOW_COUNT)


async def _at_once(one: Any, session_ids: Sequence[str]) -> None:
    async def caller(mine: Sequence[str]) -> None:
        for session_id in mine:
            await one(session_id)

    await asyncio.gather(*(caller(session_ids[at::CONCURRENCY]) for at in range(CONCURRENCY)))


def _ids(count: int) -> list[str]:
    return [f"session-{number:07d}" for number in range(count)]


async def _of_sessions(server: Server, name: str, count: int) -> Side:
    """Blast sessions with a window of 6 into an empty server."""
    memory, blaster = over_lane(server.url, name, SETTINGS), Blaster(server)
    sessions = _ids(count)
    # A blast cannot load its script.
    await memory.session(sessions[0]).append(USER)
    await memory.session(sessions[0]).clear()
    errors = blaster.errors_count()
    messages = [USER, ASSISTANT] * (WINDOW_COUNT // 2)
    for begin in range(0, count, _FILL_PIECE):
        packed = []
        for at in range(begin, min(count, begin + _FILL_PIECE)):
            call = SessionCalls(memory.store.keys.session(sessions[at]), memory.settings).append(messages)
            packed.append(hiredis.pack_command(call.commands[0]))  # type: ignore[arg-type]
        blaster.send(b"".join(packed))
    if blaster.errors_count() != errors or await memory.count() != count:
        raise RuntimeError("the server did not take all sessions")
    blaster.close()
    return Side(f"{count:,} sessions", server, memory, sessions)


async def _of_messages(server: Server, name: str, count: int) -> Side:
    """Create 64 sessions with this many messages ever appended, and a window never far over 500."""
    memory = over_lane(server.url, f"{name}-{count}", SETTINGS)
    sessions = _ids(CONCURRENCY)
    size = min(count, _FILL_BATCH)

    async def fill(session_id: str) -> None:
        for _ in range(count // size):
            await memory.session(session_id).append(*[USER, ASSISTANT] * (size // 2))
            await memory.session(session_id).prune(WINDOW_COUNT)

    await _at_once(fill, sessions)
    return Side(f"{count:,} messages ever", server, memory, sessions)


@contextlib.contextmanager
def _servers(count: int) -> Iterator[list[Server]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(own_server()) for _ in range(count)]


async def _compare(sides: list[Side], rounds: int, sample_count: int) -> list[dict[str, Any]]:
    """Return medians, and ratios to the first side."""
    for number in range(-1, rounds):
        for side in random.sample(sides, len(sides)):
            await side.round(sample_count, is_measured=number >= 0)
    rows = []
    for side in sides:
        medians = {figure: statistics.median(times) for figure, times in side.found.items()}
        ratios = {figure: ratio(times, sides[0].found[figure]) for figure, times in side.found.items()}
        rows.append(
            {"label": side.label, **medians, "ratios": ratios, "used_bytes": side.server.client.info()["used_memory"]}
        )
        await side.aclose()
    return rows


async def measure(servers: list[Server], sizes: list[int], asked: argparse.Namespace) -> dict[str, Any]:
    name = f"bench-flat-{os.getpid()}"
    rounds, sample_count = (3, QUICK_SAMPLE_COUNT) if asked.quick else (asked.rounds, SAMPLE_COUNT)
    sides = [await _of_sessions(server, name, size) for server, size in zip(servers, sizes, strict=True)]
    sessions = await _compare(sides, rounds, sample_count)
    many = 2_000 if asked.quick else 20_000
    # 64 sessions make a short round, so the benchmark runs more rounds.
    sides = [await _of_messages(servers[0], name, count) for count in (20, many)]
    return {"sessions": sessions, "messages": await _compare(sides, rounds * 4, sample_count), "rounds": rounds}


def report(result: dict[str, Any]) -> str:
    parts = []
    for what, most in (("sessions", MOST_SESSIONS_RATIO), ("messages", MOST_MESSAGES_RATIO)):
        rows = result[what]
        lines = [
            (
                row["label"],
                *(row[figure] for figure in FIGURES),
                *(f"x {row['ratios'][figure]:.2f}" for figure in (*FIGURES, CONTROL)),
                f"{row['used_bytes'] / 1e6:,.0f}",
            )
            for row in rows
        ]
        head = (
            "a turn",
            "wall µs",
            "client CPU µs",
            "server CPU µs",
            "wall",
            "client",
            "server",
            "control",
            "Redis MB",
        )
        verdicts = [
            verdict(f"{row['label']} to {rows[0]['label']}, {figure[:-3]}", row["ratios"][figure], most, at_most=True)
            for row in rows[1:]
            for figure in FIGURES
        ]
        parts.append("\n".join([table(head, lines), *verdicts]))
    return "\n\n".join(parts)


def main() -> None:
    parser = options("benchmarks.flat", __doc__ or "", rounds=25)
    asked = parser.parse_args()
    sizes = [1_000, 10_000] if asked.quick else [1_000, 100_000, 1_000_000]
    with _servers(len(sizes)) as servers:
        around = surroundings(servers[0], "benchmarks.flat") | {
            "cores": pin_cores(*servers),
            "load": f"before {load()}",
        }
        result = run(measure(servers, sizes, asked))
        around["load"] += f", after {load()}"
        show_results(around, result, report(result), asked.json)


if __name__ == "__main__":
    main()
