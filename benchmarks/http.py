"""POST a message with `read=true`: the service against the same route in plain FastAPI, pydantic and redis-py.

Each side has one server process and 32 connections, which send the next request after the last answer. Both sides
share a redis-server. Sides alternate within the run; figures are medians of rounds. Each session takes 16 messages, so
windows are alike. `--requests` sends this many requests to the service alone, and shows if its memory stays flat.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from benchmarks.measuring import Server, own_server, surroundings

CONNECTIONS = 32
SESSION_MESSAGES = 16
NAMESPACE = "bench-http"
LEAST_RATIO = 4.0
_BODY = json.dumps(
    {"role": "user", "content": "Where is my order O-17? It should have been here by now. " * 3}
).encode()


class Asking(asyncio.Protocol):
    """A connection that sends its next request after the last answer."""

    def __init__(self, number: int, until: Until) -> None:
        self._number = number
        self._until = until
        self._buffer = bytearray()
        self._sent_count = 0
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._ask()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, separator, rest = bytes(self._buffer).partition(b"\r\n\r\n")
        if not separator:
            return
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        if len(rest) < length:
            return
        assert head.startswith(b"HTTP/1.1 201"), head[:100]
        self._until.answered(time.perf_counter() - self._asked_s)
        self._buffer.clear()
        if self._until.goes_on():
            self._ask()
        else:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        if not self.ended.done():
            self.ended.set_result(None)

    def _ask(self) -> None:
        session = f"{self._until.name}-{self._number}-{self._sent_count // SESSION_MESSAGES}"
        self._sent_count += 1
        self._asked_s = time.perf_counter()
        self._transport.write(
            b"POST /v1/sessions/%s/messages?read=true HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (session.encode(), len(_BODY), _BODY)
        )


class Until:
    """The end of a round, and the times of its requests."""

    def __init__(self, name: str, seconds: float, requests_count: int) -> None:
        self.name = name
        self.latencies_s: list[float] = []
        self._end_s = time.perf_counter() + seconds
        self._requests_count = requests_count

    def answered(self, seconds: float) -> None:
        self.latencies_s.append(seconds)

    def goes_on(self) -> bool:
        return time.perf_counter() < self._end_s and len(self.latencies_s) < self._requests_count


async def ask(port: int, until: Until) -> None:
    """Run all connections to the end of a round."""
    loop = asyncio.get_running_loop()
    pairs = [
        await loop.create_connection(lambda number=number: Asking(number, until), "127.0.0.1", port)  # type: ignore[misc]
        for number in range(CONNECTIONS)
    ]
    await asyncio.gather(*(protocol.ended for _, protocol in pairs))


@dataclass
class Side:
    """A server process, and the figures of its rounds."""

    name: str
    port: int
    pid: int
    per_s: list[float] = field(default_factory=list)
    p99_ms: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)

    def round(self, number: int, seconds: float, requests_count: int = 1 << 60) -> None:
        cpu_s, begun_s = self._cpu_s(), time.perf_counter()
        until = Until(f"{self.name}-{number}", seconds, requests_count)
        asyncio.run(ask(self.port, until))
        count = len(until.latencies_s)
        self.per_s.append(count / (time.perf_counter() - begun_s))
        self.p99_ms.append(statistics.quantiles(until.latencies_s, n=100)[98] * 1000)
        self.cpu_us.append((self._cpu_s() - cpu_s) / count * 1_000_000)

    def rss_mib(self) -> float:
        with open(f"/proc/{self.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1024 / 1024

    def forget(self) -> None:
        for figures in (self.per_s, self.p99_ms, self.cpu_us):
            figures.clear()

    def figures(self) -> dict[str, float]:
        return {
            "per_s": statistics.median(self.per_s),
            "p99_ms": statistics.median(self.p99_ms),
            "cpu_us": statistics.median(self.cpu_us),
        }

    def _cpu_s(self) -> float:
        with open(f"/proc/{self.pid}/stat") as file:
            user, system = file.read().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def serving(name: str, *words: str, **environment: str) -> Iterator[Side]:
    """Start a server process on a free port, which it prints in its first line with an address."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("REDISMEM_")} | environment
    command = [sys.executable, "-m", *words]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as running:
        assert running.stdout is not None
        try:
            line = next(line for line in running.stdout if "http://127.0.0.1:" in line)
            port = int(line.partition("http://127.0.0.1:")[2].split()[0])
            yield Side(name, port, running.pid)
        finally:
            running.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                running.communicate(timeout=20)
            running.kill()


def beside_streams(service: Side, streams_count: int, rounds: int, seconds: float) -> dict[str, float]:
    """Return the p99 of requests without and with streams of events beside them, a tenth of which read nothing."""
    p99_ms: dict[bool, list[float]] = {False: [], True: []}
    for number in range(rounds):
        for beside in (False, True):
            with contextlib.ExitStack() as stack:
                streams = [
                    stack.enter_context(socket.create_connection(("127.0.0.1", service.port)))
                    for _ in range(streams_count if beside else 0)
                ]
                for at, stream in enumerate(streams):
                    stream.sendall(b"GET /v1/sessions/watched-%d/events HTTP/1.1\r\nHost: localhost\r\n\r\n" % at)
                for at, stream in enumerate(streams):
                    if at % 10:  # one stream of ten reads nothing
                        stream.recv(65_536)
                service.forget()
                service.round(1_000 + 2 * number + beside, seconds)
                p99_ms[beside] += service.p99_ms
    without_ms, with_ms = (statistics.median(p99_ms[beside]) for beside in (False, True))
    return {"count": streams_count, "without_ms": without_ms, "with_ms": with_ms, "ratio": with_ms / without_ms}


def measured(server: Server, rounds: int, seconds: float, requests_count: int, streams_count: int) -> dict[str, Any]:
    peer = ("uvicorn", "benchmarks.http_peer:app", "--port", "0", "--loop", "uvloop", "--http", "httptools")
    ours = ("redismem", "serve", "--port", "0", "--namespace", NAMESPACE, "--url", server.url)
    with (
        serving("redismem", *ours, REDISMEM_STRATEGY="none") as service,
        serving("plain", *peer, "--no-access-log", BENCH_URL=server.url) as plain,
    ):
        for number in range(-1, rounds):
            for side in (service, plain) if number % 2 else (plain, service):
                side.round(number, seconds)
            if number < 0:  # the first rounds warm up
                service.forget()
                plain.forget()
        found: dict[str, Any] = {"redismem": service.figures(), "plain": plain.figures()}
        found["ratio"] = found["redismem"]["per_s"] / found["plain"]["per_s"]
        found["cpu_ratio"] = found["redismem"]["cpu_us"] / found["plain"]["cpu_us"]
        if streams_count:
            found["streams"] = beside_streams(service, streams_count, rounds, seconds)
        if requests_count:
            service.round(rounds, 600, requests_count // 10)
            before_mib = service.rss_mib()
            service.round(rounds + 1, 3_600, requests_count)
            found["memory_mib"] = {"requests": requests_count, "before": before_mib, "after": service.rss_mib()}
        return found


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--rounds", type=int, default=7)
    asked.add_argument("--seconds", type=float, default=3.0, help="of a round, for each side")
    asked.add_argument("--requests", type=int, default=0, help="to the service alone, for its memory")
    asked.add_argument("--streams", type=int, default=0, help="streams of events that are open beside the service's")
    asked.add_argument("--quick", action="store_true", help="shows that it works")
    asked.add_argument("--json", action="store_true")
    options = asked.parse_args()
    rounds, seconds = (1, 0.3) if options.quick else (options.rounds, options.seconds)
    with own_server() as server:
        found = measured(server, rounds, seconds, options.requests, options.streams)
        around = surroundings(server, "benchmarks.http")
    if options.json:
        print(json.dumps(found | {"surroundings": around}))
        return
    for name, value in around.items():
        print(f"{name:9} {value}")
    print(f"\n{CONNECTIONS} connections     requests/s    p99 ms    server CPU µs")
    for name in ("redismem", "plain"):
        figures = found[name]
        print(f"{name:18} {figures['per_s']:11,.0f} {figures['p99_ms']:9.1f} {figures['cpu_us']:16.0f}")
    ratios = f"x {found['ratio']:.2f}; server CPU x {found['cpu_ratio']:.2f}"
    print(f"redismem / plain   {ratios}; limit: at least x {LEAST_RATIO:.1f}")
    if "streams" in found:
        streams = found["streams"]
        print(
            f"p99 beside {streams['count']} streams: {streams['without_ms']:.1f} -> {streams['with_ms']:.1f} ms, "
            f"x {streams['ratio']:.2f}; limit: at most x 1.50"
        )
    if "memory_mib" in found:
        memory = found["memory_mib"]
        print(f"memory after {memory['requests']:,} requests: {memory['before']:.1f} MiB -> {memory['after']:.1f} MiB")


if __name__ == "__main__":
    main()
