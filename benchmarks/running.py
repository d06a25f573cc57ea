"""Shared code of the longer benchmarks: a server on its own core, redismem on either transport, options, results."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import os
import statistics
from collections.abc import Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import redis.asyncio
from redis.backoff import NoBackoff

from benchmarks.measuring import URL_VARIABLE, Server, event_loop_name, own_server
from redismem import Memory, Settings
from redismem.store.store import Store
from redismem.transport.redis_py.client import RedisPy

T = TypeVar("T")

_FEWEST_CORES = 4


def options(module: str, about: str, *, rounds: int) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"python -m {module}", description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=rounds, help=f"measured rounds a side ({rounds})")
    parser.add_argument("--quick", action="store_true", help="a few seconds in all: shows that it works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there too")
    return parser


def run(measuring: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on uvloop, if that is installed."""
    if event_loop_name() != "uvloop":
        return asyncio.run(measuring)
    import uvloop

    return uvloop.run(measuring)


@contextlib.contextmanager
def one_server() -> Iterator[Server]:
    """Yield the Redis at REDISMEM_BENCH_URL, which keeps its keys, else a private one."""
    url = os.environ.get(URL_VARIABLE)
    if url is None:
        with own_server() as server:
            yield server
    else:
        yield Server(url)


def pin_cores(*servers: Server) -> str:
    """Pin the servers to the last core and this process to the other cores, and return a note about it."""
    if URL_VARIABLE in os.environ or not hasattr(os, "sched_setaffinity"):
        return "nothing is pinned to a core"
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < _FEWEST_CORES:
        return f"nothing is pinned to a core: there are only {len(cores)}"
    for server in servers:
        for thread in Path(f"/proc/{server.client.info('server')['process_id']}/task").iterdir():
            os.sched_setaffinity(int(thread.name), cores[-1:])
    os.sched_setaffinity(0, cores[:-1])
    return f"redis-server on core {cores[-1]} alone, this process on the other {len(cores) - 1}"


def load() -> str:
    """Return a note about the load of the machine in the last minute."""
    return f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores" if hasattr(os, "getloadavg") else "not known"


def over_lane(url: str, namespace: str, settings: Settings | None = None) -> Memory:
    """Connect like `connect` does for a URL."""
    return Memory.connect(url, namespace=namespace, settings=settings)


def over_redis_py(url: str, namespace: str, concurrency: int) -> Memory:
    settings = Settings()
    pool = redis.asyncio.BlockingConnectionPool.from_url(
        url,
        max_connections=concurrency,
        socket_timeout=settings.reply_timeout_s,
        retry=redis.asyncio.retry.Retry(NoBackoff(), 0),
    )
    transport = RedisPy(redis.asyncio.Redis(connection_pool=pool), owned=True)
    return Memory(Store(transport, namespace, settings))


def collect_garbage() -> None:
    """Collect the garbage of one side, so that the next side does not pay for it."""
    gc.collect()
    gc.freeze()


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the median of the ratios per round, each of which compares neighbours in time."""
    return statistics.median(one / other for one, other in zip(ours, theirs, strict=True))


def verdict(label: str, found: float, limit: float, *, at_most: bool, unit: str = "x") -> str:
    """Return a line with a figure, its limit, and the distance if the figure is beyond the limit."""
    figures = (f"x {found:.2f}", f"x {limit:g}") if unit == "x" else (f"{found:.1f} {unit}", f"{limit:g} {unit}")
    beyond = found / limit - 1 if at_most else 1 - found / limit
    side, bound = ("over", "most") if at_most else ("under", "least")
    distance = f", {side} it by {beyond:.0%}" if beyond > 0 else ""
    return f"{label}: {figures[0]}; limit: at {bound} {figures[1]}{distance}"


def show_results(around: dict[str, str], result: dict[str, Any], report: str, file: Path | None) -> None:
    print("\n".join(f"{what:9} {text}" for what, text in around.items()), report, sep="\n\n")
    if file is not None:
        file.write_text(json.dumps({"surroundings": around, **result}, indent=2) + "\n")
