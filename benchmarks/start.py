"""Measure a cold start, as of a serverless function: from the start of Python to the end of the first append.

Beside it: the same with a value in the environment, the idiom of redis-py, which appends JSON to a list, and
`redismem --help`. Every run is a new process. Sides alternate in each round, so a ratio compares neighbours in time.
CPU is the time that the process used, user and system; it includes the start of Python, which both sides pay.
"""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import time
from typing import Any

from benchmarks.measuring import Server, chosen_server, surroundings, table
from benchmarks.running import load, options, ratio, show_results, verdict

OURS = """
import asyncio, sys
from redismem import Memory
async def main():
    async with Memory.connect(sys.argv[1], namespace=sys.argv[2]) as memory:
        await memory.session("user-42").append({"role": "user", "content": "Where is my order?"})
asyncio.run(main())
"""
THEIRS = """
import asyncio, json, sys
import redis.asyncio as redis
async def main():
    async with redis.from_url(sys.argv[1]) as client, client.pipeline() as pipeline:
        pipeline.rpush(sys.argv[2], json.dumps({"role": "user", "content": "Where is my order?"}))
        pipeline.expire(sys.argv[2], 86400)
        await pipeline.execute()
asyncio.run(main())
"""
HELP = "from redismem.cli import main; main(['--help'])"
# The peak that a parent sees may be its own: a new process begins as its copy.
PEAK = "\nimport re, sys; sys.stderr.write(re.search(r'VmHWM:\\s+([0-9]+)', open('/proc/self/status').read())[1])"
# side -> its program, and the variables that it gets
SIDES: dict[str, tuple[str, dict[str, str]]] = {
    "redismem": (OURS, {}),
    "redismem, threshold in the environment": (OURS, {"REDISMEM_THRESHOLD": "20"}),
    "redis-py": (THEIRS, {}),
    "redismem --help": (HELP, {}),
    "python": ("pass", {}),
}
MOST_RATIO, MOST_MIB = 1.7, 41


def start(server: Server, name: str, side: str) -> tuple[float, float, float]:
    """Run the side's program in a new process, and return its time and its CPU time in ms, and its peak in MiB."""
    program, variables = SIDES[side]
    not_ours = {key: value for key, value in os.environ.items() if not key.startswith(("REDISMEM_", "PYTHONDONT"))}
    environment = {**not_ours, **variables}
    began_s = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-c", program + PEAK, server.url, name],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    written = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    took_s = time.perf_counter() - began_s
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{side}: {written.decode()}")
    return took_s * 1000, (used.ru_utime + used.ru_stime) * 1000, int(written) / 1024


def measure(server: Server, name: str, rounds: int) -> dict[str, list[tuple[float, float, float]]]:
    runs: dict[str, list[tuple[float, float, float]]] = {side: [] for side in SIDES}
    for number in range(rounds + 1):
        for side in random.sample(list(SIDES), len(SIDES)):
            run = start(server, name, side)
            runs[side].extend([run] if number else [])  # the first round writes bytecode
    return runs


def report(result: dict[str, Any]) -> str:
    runs = result["runs"]
    rows = [[side, *(f"{statistics.median(column):.0f}" for column in zip(*runs[side], strict=True))] for side in SIDES]
    lines = [table(("process", "ms", "CPU ms", "peak MiB"), rows), ""]
    for place, what in enumerate(("time", "CPU time")):
        ours, theirs = ([run[place] for run in runs[side]] for side in ("redismem", "redis-py"))
        lines.append(verdict(f"redismem / redis-py, {what}", ratio(ours, theirs), MOST_RATIO, at_most=True))
    peak_mib = statistics.median(run[2] for run in runs["redismem"])
    lines.append(verdict("redismem, peak", peak_mib, MOST_MIB, at_most=True, unit="MiB"))
    return "\n".join(lines)


def main() -> None:
    asked = options("benchmarks.start", __doc__ or "", rounds=30).parse_args()
    name = f"bench-{os.getpid()}"
    with chosen_server(name) as server:
        around = surroundings(server, "benchmarks.start") | {"load": load()}
        result = {"runs": measure(server, name, 2 if asked.quick else asked.rounds)}
    show_results(around, result, report(result), asked.json)


if __name__ == "__main__":
    main()
