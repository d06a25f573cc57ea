"""Shared code of the benchmarks: a private redis-server, its counters, facts about the machine, and tables."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
import platform
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import redis

URL_VARIABLE = "REDISMEM_BENCH_URL"


class Server:
    """A Redis with its counters."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.client = redis.Redis.from_url(url)

    def cpu_s(self) -> float:
        """Return the server's CPU time since its start, user and system."""
        cpu = self.client.info("cpu")
        return float(cpu["used_cpu_user"]) + float(cpu["used_cpu_sys"])

    def reads_count(self) -> int:
        return int(self.client.info("stats")["total_reads_processed"])

    def idle_cpu(self, seconds: float = 0.5) -> float:
        """Return the CPU seconds that the idle server uses per second."""
        before = self.cpu_s()
        time.sleep(seconds)
        return (self.cpu_s() - before) / seconds

    def used_bytes(self) -> int:
        """Return the memory in use without the buffers of connections and of the log, which may outweigh sessions."""
        memory = self.client.info("memory")
        return int(memory["used_memory"] - memory["mem_clients_normal"] - memory["mem_aof_buffer"])

    def keys_bytes(self, keys: Sequence[bytes]) -> int:
        pipeline = self.client.pipeline(transaction=False)
        for key in keys:
            pipeline.memory_usage(key, samples=0)
        return sum(size or 0 for size in pipeline.execute())

    def make_idle(self, states: Sequence[bytes]) -> None:
        """Make sessions look long idle; `states` are the keys of their states."""
        pipeline = self.client.pipeline(transaction=False)
        for state in states:
            pipeline.hget(state, "counters")
        for state, counters in zip(states, pipeline.execute(), strict=True):
            version, first_seq, message_count, tokens, _, expires_ms = counters.split()
            pipeline.hset(state, "counters", b" ".join((version, first_seq, message_count, tokens, b"0", expires_ms)))
        pipeline.execute()

    def keys(self, part: str) -> list[bytes]:
        """Return all keys with this part in their name."""
        return list(self.client.scan_iter(f"*{part}*", count=1000))


@contextlib.contextmanager
def own_server() -> Iterator[Server]:
    """Start a redis-server on loopback, on a free port, without persistence."""
    binary = shutil.which("redis-server")
    if binary is None:
        sys.exit("redis-server is not installed; `make test` installs it")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="redismem-bench-") as folder:
        options = ["--bind", "127.0.0.1", "--port", str(port), "--dir", folder, "--save", "", "--appendonly", "no"]
        running = subprocess.Popen([binary, *options], stdout=subprocess.DEVNULL)
        try:
            server = Server(f"redis://127.0.0.1:{port}/0")
            _wait(server, running)
            yield server
        finally:
            running.kill()
            running.wait()


def _wait(server: Server, running: subprocess.Popen[bytes], deadline_s: float = 10) -> None:
    until = time.monotonic() + deadline_s
    while True:
        with contextlib.suppress(redis.ConnectionError):
            server.client.ping()
            return
        if running.poll() is not None or time.monotonic() > until:
            sys.exit("redis-server did not start")
        time.sleep(0.01)


@contextlib.contextmanager
def chosen_server(name: str) -> Iterator[Server]:
    """Return the Redis at REDISMEM_BENCH_URL, else a private one. Removes keys with `name` in them afterwards."""
    url = os.environ.get(URL_VARIABLE)
    if url is None:
        with own_server() as server:
            yield server
        return
    server = Server(url)
    try:
        yield server
    finally:
        remove_keys(server, name)


def remove_keys(server: Server, name: str) -> None:
    """Remove all keys with this name in them."""
    keys = server.keys(name)
    for at in range(0, len(keys), 1000):
        server.client.unlink(*keys[at : at + 1000])


def surroundings(server: Server, module: str) -> dict[str, str]:
    """Return the machine, versions and command, which a figure needs beside it."""
    versions = {name: importlib.metadata.version(name) for name in ("redis", "hiredis", "msgspec", "redismem")}
    return {
        "machine": f"{_processor()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}",
        "server": f"redis-server {server.client.info('server')['redis_version']}, on loopback"
        + (f" ({URL_VARIABLE})" if URL_VARIABLE in os.environ else ", started for this run"),
        "python": f"{platform.python_version()}, event loop: {event_loop_name()}",
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "command": f"python -m {module} {shlex.join(sys.argv[1:])}".strip(),
    }


def event_loop_name() -> str:
    return "asyncio" if importlib.util.find_spec("uvloop") is None else "uvloop"


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Format a table, with the first column aligned to the left and numbers to the right."""
    cells = [[f"{cell:,.1f}" if isinstance(cell, float) else str(cell) for cell in row] for row in [head, *rows]]
    widths = [max(len(row[at]) for row in cells) for at in range(len(head))]
    lines = []
    for row in cells:
        first, *others = (
            cell.ljust(width) if at == 0 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        lines.append("  ".join((first, *others)).rstrip())
    return "\n".join(lines)
