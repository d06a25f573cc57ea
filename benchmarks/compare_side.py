"""Measure one round of one side of `benchmarks.compare`, as a script with the measured checkout on PYTHONPATH.

It imports only redis-py and redismem's public names, since the checkout may be older. It prints the figures of a turn
as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib.util
import json
import time
from typing import Any

import redis

import redismem

CONCURRENCY = 64
TURNS_A_SESSION = 8
USER = {"role": "user", "content": "u" * 160}
ASSISTANT = {"role": "assistant", "content": "a" * 160}


async def talk(memory: Any, prefix: str, sessions_count: int) -> None:
    """Play new sessions, `sessions_count` of them for each of 64 callers."""

    async def caller(number: int) -> None:
        for session_number in range(sessions_count):
            session_id = f"{prefix}-{number}-{session_number}"
            for _ in range(TURNS_A_SESSION):
                session = memory.session(session_id)
                context = await session.append_and_read(USER)
                context.to_openai()
                await session.append(ASSISTANT)

    await asyncio.gather(*map(caller, range(CONCURRENCY)))


def server_cpu_s(client: Any) -> float:
    cpu = client.info("cpu")
    return float(cpu["used_cpu_user"]) + float(cpu["used_cpu_sys"])


async def measure(url: str, namespace: str, sessions_count: int) -> dict[str, float]:
    """Return the figures of a turn, after a warm-up that connects and loads the scripts."""
    async with redismem.Memory.connect(url, namespace=namespace) as memory:
        with redis.Redis.from_url(url) as client:
            await talk(memory, "warm", 1)
            gc.collect()
            gc.freeze()
            server_s, client_s, clock_s = server_cpu_s(client), time.process_time(), time.perf_counter()
            await talk(memory, "measured", sessions_count)
            wall_s, client_s = time.perf_counter() - clock_s, time.process_time() - client_s
            server_s = server_cpu_s(client) - server_s
    turns_count = CONCURRENCY * sessions_count * TURNS_A_SESSION
    return {
        "turns_per_s": turns_count / wall_s,
        "client_us": client_s / turns_count * 1e6,
        "server_us": server_s / turns_count * 1e6,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("namespace")
    parser.add_argument("sessions_count", type=int)
    asked = parser.parse_args()
    measuring = measure(asked.url, asked.namespace, asked.sessions_count)
    if importlib.util.find_spec("uvloop") is None:
        figures = asyncio.run(measuring)
    else:
        import uvloop

        figures = uvloop.run(measuring)
    print(json.dumps({"measured": redismem.__file__, **figures}))


if __name__ == "__main__":
    main()
