"""Measure the cost of a turn: redismem against the careful redis-py idiom, and against bare RPUSH + LRANGE.

A turn appends a user message, appends an assistant message, and reads the context. The class of each side describes
its work. All texts have 160 bytes. A session has 8 turns and starts empty, so every side reads windows that grow from 1
to 16 messages; nothing is trimmed and no worker runs. The sides alternate in rounds of one run, in a new order in each
round; the figures are medians of the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from benchmarks import append_cost
from benchmarks.measuring import Server, chosen_server, surroundings, table
from benchmarks.running import run
from redismem import Memory, Settings

TURNS_A_SESSION = 8
USER = {"role": "user", "content": "u" * 160}
ASSISTANT = {"role": "assistant", "content": "a" * 160}
MOST_SERVER_RATIO = 4.0


class Side(Protocol):
    """A side of the benchmark. `name` is in every key, between colons or braces, so that its keys can be found."""

    label: str
    name: str

    async def turn(self, session: str) -> None: ...

    async def aclose(self) -> None: ...


class Redismem:
    """`append_and_read(user)`, then `append(assistant)`: dicts in, a decoded Context out, converted to dicts."""

    label = "redismem"

    def __init__(self, url: str, name: str, concurrency: int, *, confirm: int = 0) -> None:
        self.name = f"{name}-redismem-{concurrency}"
        settings = Settings(max_connections=concurrency, confirm=confirm)
        self._memory = Memory.connect(url, namespace=self.name, settings=settings)

    async def turn(self, session: str) -> None:
        handle = self._memory.session(session)
        context = await handle.append_and_read(USER)
        context.to_openai()
        await handle.append(ASSISTANT)

    async def aclose(self) -> None:
        await self._memory.aclose()


def _client(url: str, concurrency: int) -> Any:
    """Create a client with one connection per concurrent session, and without retries, since redismem has its own."""
    pool = redis.asyncio.BlockingConnectionPool.from_url(
        url, max_connections=concurrency, timeout=10, retry=Retry(NoBackoff(), 0)
    )
    return redis.asyncio.Redis.from_pool(pool)


class Careful:
    """Two MULTI pipelines, each RPUSH, LTRIM, EXPIRE, HINCRBY and LRANGE; JSON in; the user's window JSON-decoded."""

    label = "redis-py, careful"

    def __init__(self, url: str, name: str, concurrency: int) -> None:
        self.name = f"{name}-careful-{concurrency}"
        self._client = _client(url, concurrency)

    async def turn(self, session: str) -> None:
        window = await self._append(session, USER)
        [json.loads(message) for message in window]
        await self._append(session, ASSISTANT)

    async def _append(self, session: str, message: dict[str, str]) -> list[bytes]:
        messages = f"{self.name}:messages:{session}"
        async with self._client.pipeline(transaction=True) as pipeline:
            pipeline.rpush(messages, json.dumps(message))
            pipeline.ltrim(messages, -20, -1)
            pipeline.expire(messages, 86_400)
            pipeline.hincrby(f"{self.name}:state:{session}", "message_count", 1)
            pipeline.lrange(messages, 0, -1)
            window: list[bytes] = (await pipeline.execute())[-1]
            return window

    async def aclose(self) -> None:
        await self._client.aclose()
        await self._client.connection_pool.disconnect()


class Bare:
    """A pipeline of RPUSH and LRANGE, then a pipeline of RPUSH: bytes in, bytes out, no MULTI, TTL, counter or id."""

    label = "redis-py, bare"

    def __init__(self, url: str, name: str, concurrency: int) -> None:
        self.name = f"{name}-bare-{concurrency}"
        self._client = _client(url, concurrency)
        self._user, self._assistant = json.dumps(USER).encode(), json.dumps(ASSISTANT).encode()

    async def turn(self, session: str) -> None:
        key = f"{self.name}:messages:{session}"
        async with self._client.pipeline(transaction=False) as pipeline:
            pipeline.rpush(key, self._user)
            pipeline.lrange(key, 0, -1)
            await pipeline.execute()
        async with self._client.pipeline(transaction=False) as pipeline:
            pipeline.rpush(key, self._assistant)
            await pipeline.execute()

    async def aclose(self) -> None:
        await self._client.aclose()
        await self._client.connection_pool.disconnect()


SIDES: tuple[Callable[[str, str, int], Side], ...] = (Redismem, Careful, Bare)
FIGURES = ("turns_per_s", "client_us", "server_us", "reads")


async def drive(side: Side, concurrency: int, seconds: float, prefix: str) -> int:
    """Return the number of turns made by concurrent sessions that started before the time was up; each is finished."""
    until = time.perf_counter() + seconds
    made = 0

    async def caller(number: int) -> None:
        nonlocal made
        begun = 0
        while not begun or time.perf_counter() < until:
            session = f"s{prefix}-{number}-{begun}"
            for _ in range(TURNS_A_SESSION):
                await side.turn(session)
            made += TURNS_A_SESSION
            begun += 1

    await asyncio.gather(*map(caller, range(concurrency)))
    return made


class Counted(Protocol):
    """The usage counters of one or several servers."""

    def cpu_s(self) -> float: ...

    def reads_count(self) -> int: ...


async def measured(server: Counted, idle: float, driven: Awaitable[int]) -> dict[str, float]:
    """Return the figures of the turns that `driven` makes; it returns their number."""
    reads, cpu_s, client_s, clock = server.reads_count(), server.cpu_s(), time.process_time(), time.perf_counter()
    turns = await driven
    wall_s, client_s = time.perf_counter() - clock, time.process_time() - client_s
    cpu_s, reads = server.cpu_s() - cpu_s - idle * wall_s, server.reads_count() - reads
    return {
        "turns_per_s": turns / wall_s,
        "client_us": client_s / turns * 1e6,
        "server_us": cpu_s / turns * 1e6,
        "reads": reads / turns,
    }


async def compare(server: Server, name: str, concurrency: int, rounds: int, seconds: float) -> dict[str, Any]:
    """Return the figures of every side, as medians of the rounds."""
    idle = server.idle_cpu()
    sides = [make(server.url, name, concurrency) for make in SIDES]
    found: dict[str, list[dict[str, float]]] = {side.label: [] for side in sides}
    for number in range(-1, rounds):
        for side in random.sample(sides, len(sides)):
            prefix = f"{number + 1}"
            if number < 0:
                await drive(side, concurrency, seconds / 4, prefix)
                continue
            figures = await measured(server, idle, drive(side, concurrency, seconds, prefix))
            found[side.label].append(figures)
    result: dict[str, Any] = {"concurrency": concurrency, "server_idle_cpu": idle}
    for side in sides:
        rows = found[side.label]
        result[side.label] = {figure: statistics.median(row[figure] for row in rows) for figure in FIGURES}
        result[side.label]["bytes_per_message"] = await _weight(server, side)
        await side.aclose()
    return result


async def _weight(server: Server, side: Side) -> float:
    """Return the bytes per message of one more session, by MEMORY USAGE of all its keys."""
    for _ in range(TURNS_A_SESSION):
        await side.turn("weighed")
    keys = [key for key in server.keys(side.name) if key.endswith(b"weighed")]
    return server.keys_bytes(keys) / (2 * TURNS_A_SESSION)


HEAD = ("", "turns/s", "client CPU µs", "server CPU µs", "round trips", "bytes per message")


def report(result: dict[str, Any]) -> str:
    """Return the figures of one concurrency, and redismem's ratios to the other sides."""
    sides = [label for label in result if isinstance(result[label], dict)]
    columns = (*FIGURES, "bytes_per_message")
    rows: list[list[object]] = [[label, *(result[label][column] for column in columns)] for label in sides]
    for label in sides[1:]:
        ratios = (result[sides[0]][column] / result[label][column] for column in columns)
        rows.append([f"  redismem / {label}", *(f"x {ratio:.2f}" for ratio in ratios)])
    return f"{result['concurrency']} concurrent sessions, a turn\n{table(HEAD, rows)}"


def report_cost(rows: list[dict[str, Any]]) -> str:
    """Return a table of the server's CPU time per call."""
    lines = []
    for row in rows:
        quartiles = "{:.1f} .. {:.1f}".format(*row["quartiles_us"])
        lines.append(
            (f"{row['way']}: {row['call']}", f"{row['server_us']:.1f}", quartiles, f"x {row['ratio']:.2f}"),
        )
    met = [f"x {row['ratio']:.2f} {row['way']}" for row in rows if row["call"] == "append_and_read"]
    return (
        f"server CPU of one call\n{table(('', 'median µs', 'quartiles', 'ratio'), lines)}\n"
        f"append_and_read to bare RPUSH + LRANGE: {', '.join(met)}; limit: at most x {MOST_SERVER_RATIO:.1f}"
    )


async def measure(server: Server, options: argparse.Namespace, name: str) -> dict[str, Any]:
    seconds, rounds = (0.15, 2) if options.quick else (options.seconds, options.rounds)
    turns = [await compare(server, name, concurrency, rounds, seconds) for concurrency in (1, 64)]
    cost = await append_cost.measure(server, f"{name}-cost", 2 if options.quick else max(2, 4 * rounds))
    return {"turns": turns, "server_cost": cost}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.turns", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="measured rounds a side")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a side's round")
    parser.add_argument(
        "--quick", action="store_true", help="a few seconds in all: shows that it works, measures little"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    options = parser.parse_args()
    name = f"bench-{os.getpid()}"
    with chosen_server(name) as server:
        around = surroundings(server, "benchmarks.turns")
        result = run(measure(server, options, name))
    if options.json:
        print(json.dumps({"surroundings": around, **result}, indent=2))
        return
    print("\n".join(f"{what:9} {text}" for what, text in around.items()), "", sep="\n")
    for one in result["turns"]:
        print(f"{report(one)}\n(an idle server's {one['server_idle_cpu']:.2%} of a core is subtracted)\n")
    print(report_cost(result["server_cost"]))


if __name__ == "__main__":
    main()
